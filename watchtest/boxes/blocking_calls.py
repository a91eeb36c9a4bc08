"""Waiting for calls that cannot be interrupted, without being held up by them when it is time to leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(
    call: Callable[[], T], limit_s: float, too_late: Callable[[T], object] = lambda _result: None
) -> T:
    """The result of a blocking call. After the limit, or a cancel, nobody waits for it any more.

    A thread of its own, and a daemon: the pools of asyncio are joined at exit, and an engine may take minutes.
    `too_late` gets what came after nobody wanted it.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            if error is None:
                too_late(result)  # type: ignore[arg-type]
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        caught: BaseException | None = None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  handed over to whoever waits, whatever it is
            caught = error
        try:
            loop.call_soon_threadsafe(deliver, result, caught)
        except RuntimeError:
            if caught is None:
                too_late(result)  # type: ignore[arg-type]  # the loop has closed: we are leaving

    threading.Thread(target=work, name="watchtest-engine", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await future
