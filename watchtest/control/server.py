"""The lifetime of the control server: begun beside the first tests, left with the watcher, and never its end.

What goes wrong here is said once and logged; the watcher goes on without its socket.

The control API of a watcher: its desk, its server and the words of the status file, put together.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from watchtest.control.address import ensure_token
from watchtest.control.gateway import Desk
from watchtest.control.guard import Door, Guard, loopback_door
from watchtest.control.sockets import Listener, PortListener
from watchtest.errors import ControlError
from watchtest.views.dashboard.watcher_screen import ScreenServer

if TYPE_CHECKING:
    from watchtest.control.uvicorn_server import Server

log = logging.getLogger(__name__)
START_LIMIT_S = 1.0
"""So long it waits for the tests of a first run to begin: with every trigger off there is none."""
LEAVE_LIMIT_S = 3.0
SOCKET, PORT = "control socket", "control port"


@dataclass(frozen=True, slots=True)
class PortWish:
    """A port of the loopback to listen on, too, and the file of its token."""

    listen: str
    token_file: Path


class ControlServer:
    """Serves `desk` while entered. `status` gives the status document, `about` says who answers (`Served`)."""

    def __init__(
        self,
        desk: Desk,
        places: Sequence[Path],
        *,
        status: Callable[[], dict[str, Any]],
        about: dict[str, Any],
        started_at: str,
        screens: ScreenServer,
        say: Callable[[str], None],
        port: PortWish | None = None,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self._desk = desk
        self._places = places
        self._status = status
        self._about = about
        self._started_at = started_at
        self._screens = screens
        self._say = say
        self._port = port
        self._start_limit_s = start_limit_s
        self._reach: dict[str, str | None] = {"socket": None, "url": None, "token_file": None}
        self._is_reach_known = asyncio.Event()
        """Whether there is a port is known before anybody can ask for it on the socket."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._tell_of(self._serve_socket, SOCKET), name="control server"))
        if self._port is None:
            self._is_reach_known.set()
        else:
            self._tasks.append(asyncio.create_task(self._tell_of(self._serve_port, PORT), name="control port"))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self._desk.close()
        _, late = await asyncio.wait(self._tasks, timeout=LEAVE_LIMIT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _tell_of(self, serve: Callable[[], Awaitable[None]], what: str) -> None:
        """Whatever ends it early is said."""
        try:
            await serve()
        except ControlError as error:
            self._say(f"no {what}: {error}")
        except Exception as error:
            log.exception("the %s failed by a bug", what)
            self._say(
                f"the {what} is lost ({type(error).__name__}: {error}): `watchtest run`, `cancel` and `pause` "
                "work again after the next start of the watcher"
                if what == SOCKET
                else f"the {what} is lost ({type(error).__name__}: {error}) until the next start of the watcher"
            )
        finally:
            self._is_reach_known.set()

    async def _serve_socket(self) -> None:
        await self._desk.wait_for_tests(self._start_limit_s)
        await self._is_reach_known.wait()
        while not self._desk.is_closed:
            with Listener(self._places) as listener:
                log.info("the control socket is %s", listener.path)
                self._reach["socket"] = listener.name
                await self._serve(listener, Door())

    async def _serve_port(self) -> None:
        wish = self._port
        assert wish is not None
        await self._desk.wait_for_tests(self._start_limit_s)
        if self._desk.is_closed:
            return
        token = ensure_token(wish.token_file)
        with PortListener(wish.listen) as listener:
            log.info("the control API is at %s", listener.name)
            self._reach |= {"url": listener.name, "token_file": str(wish.token_file)}
            self._is_reach_known.set()
            try:
                await self._serve(listener, loopback_door(listener.port, token))
            finally:
                self._reach |= {"url": None, "token_file": None}

    async def _serve(self, listener: Listener | PortListener, door: Door) -> None:
        server = await asyncio.to_thread(self._build, listener, door)
        await server.serve(sockets=[listener.socket])

    def _build(self, listener: Listener | PortListener, door: Door) -> Server:
        # Heavy, and needed by nobody but a watcher at work: imported in a thread, beside its first tests.
        from watchtest.control.api.routes import Served, application
        from watchtest.control.uvicorn_server import Server

        served = Served(
            desk=self._desk,
            status=self._status,
            about=self._about,
            reach=lambda: dict(self._reach),
            started_at=self._started_at,
            screens=self._screens,
        )
        guarded = Guard(application(served), door)
        return Server(guarded, is_there=listener.is_there, leaving=self._desk.closed)
