"""The lifetime of the control server: begun beside the first tests, left with the watcher, and never its end.

What goes wrong here is said once and logged; the watcher goes on without its socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from watchtest.control.desk import Desk
from watchtest.control.listening import Listener
from watchtest.errors import ControlError

if TYPE_CHECKING:
    from watchtest.control.serving import Server

log = logging.getLogger(__name__)
START_LIMIT_S = 1.0
"""So long it waits for the tests of a first run to begin: with every trigger off there is none."""
LEAVE_LIMIT_S = 3.0


class ControlServer:
    """Serves `desk` while entered. `status` gives the status document, `about` says who answers."""

    def __init__(
        self,
        desk: Desk,
        places: Sequence[Path],
        *,
        status: Callable[[], dict[str, Any]],
        about: dict[str, Any],
        say: Callable[[str], None],
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self._desk = desk
        self._places = places
        self._status = status
        self._about = about
        self._say = say
        self._start_limit_s = start_limit_s
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._serve_or_tell(), name="control server")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._desk.close()
        assert self._task is not None
        _, late = await asyncio.wait({self._task}, timeout=LEAVE_LIMIT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _serve_or_tell(self) -> None:
        try:
            await self._desk.wait_for_tests(self._start_limit_s)
            while not self._desk.is_closed:
                with Listener(self._places) as listener:
                    log.info("the control socket is %s", listener.path)
                    await self._serve(listener)
        except ControlError as error:
            self._say(f"no control socket: {error}")
        except Exception as error:
            log.exception("the control server failed by a bug")
            self._say(
                f"the control socket is lost ({type(error).__name__}: {error}): `watchtest run`, `cancel` and `pause` "
                "work again after the next start of the watcher"
            )

    async def _serve(self, listener: Listener) -> None:
        server = await asyncio.to_thread(self._build, listener)
        await server.serve(sockets=[listener.socket])

    def _build(self, listener: Listener) -> Server:
        # Heavy, and needed by nobody but a watcher at work: imported in a thread, beside its first tests.
        from watchtest.control.routes import application
        from watchtest.control.serving import Server

        served = application(self._desk, self._status, self._about)
        return Server(served, is_there=listener.is_there, leaving=self._desk.closed)
