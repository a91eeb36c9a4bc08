"""Run blocking calls in daemon threads, so that a call that hangs cannot delay the exit."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_daemon_thread(
    call: Callable[[], T], limit_s: float, on_late_result: Callable[[T], object] = lambda _result: None
) -> T:
    """Return the result of a blocking call. A timeout or a cancel leaves the call running in its thread.

    asyncio joins its thread pools at exit, and an engine may take minutes to answer; a daemon thread is not joined.
    `on_late_result` receives a result that arrives after the timeout or the cancel.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def deliver(result: T | None, error: BaseException | None) -> None:
        if future.done():
            if error is None:
                on_late_result(result)  # type: ignore[arg-type]
        elif error is not None:
            future.set_exception(error)
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        caught: BaseException | None = None
        try:
            result = call()
        except BaseException as error:  # noqa: BLE001  passed on to the caller, whatever it is
            caught = error
        try:
            loop.call_soon_threadsafe(deliver, result, caught)
        except RuntimeError:  # the loop is closed: the program is exiting
            if caught is None:
                on_late_result(result)  # type: ignore[arg-type]

    threading.Thread(target=work, name="watchtest-engine", daemon=True).start()
    async with asyncio.timeout(limit_s):
        return await future
