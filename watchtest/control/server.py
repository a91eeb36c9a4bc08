"""The lifetime of the control server: begun beside the first tests, left with the watcher, and never its end.

What goes wrong here is said once and logged; the watcher goes on without its socket.

The control API of a watcher: its desk, its server and the words of the status file, put together.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from watchtest import __version__
from watchtest.control.address import ensure_token, socket_places, token_file
from watchtest.control.event_messages import Words
from watchtest.control.gateway import Desk, Explain
from watchtest.control.guard import Door, Guard, loopback_door
from watchtest.control.past_runs import PastRuns
from watchtest.control.run_reports import timestamp
from watchtest.control.sockets import Listener, PortListener
from watchtest.core.state import LaneState
from watchtest.core.text import cut
from watchtest.errors import ControlError
from watchtest.history.store.opening import history_path
from watchtest.loop import Loop, View
from watchtest.views.dashboard.watcher_screen import Screens, StateScene
from watchtest.views.status.status_document import activity, box_document, head, problem_document, result_document
from watchtest.views.status.status_writer import StatusFile
from watchtest.wiring import Setting

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
    """Serves `desk` while entered. `status` gives the status document, `about` says who answers, `activity` the word
    for what a lane does, `schemas` the JSON Schemas; they are documented where they are told (`routes.Served`)."""

    def __init__(
        self,
        desk: Desk,
        places: Sequence[Path],
        *,
        status: Callable[[], dict[str, Any]],
        about: dict[str, Any],
        started_at: str,
        activity: Callable[[LaneState], str],
        schemas: Callable[[], dict[str, dict[str, Any]]],
        screens: Screens,
        say: Callable[[str], None],
        port: PortWish | None = None,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self._desk = desk
        self._places = places
        self._status = status
        self._about = about
        self._started_at = started_at
        self._activity = activity
        self._schemas = schemas
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
            activity=self._activity,
            schemas=self._schemas,
            screens=self._screens,
        )
        guarded = Guard(application(served), door)
        return Server(guarded, is_there=listener.is_there, leaving=self._desk.closed)


WORDS = Words(head=head, box=box_document, problem=problem_document, result=result_document, text=cut)


async def enter_control(
    stack: AsyncExitStack,
    setting: Setting,
    loop: Loop,
    views: list[View],
    status: StatusFile,
    say: Callable[[str], None],
    explain: Explain,
    scene: StateScene,
) -> None:
    """What `watchtest run`, `cancel`, `pause` and `why` speak with, and every other program."""
    past = PastRuns(history_path(setting.folders.state, setting.workspace), setting.workspace)
    desk = Desk(lambda: loop.state, loop.post, past, explain, WORDS)
    screens = Screens(scene, lambda: loop.state)
    views += [View(desk.show), View(screens.show)]
    listen = setting.config.api.listen
    server = ControlServer(
        desk,
        socket_places(setting.workspace, setting.folders.runtime),
        status=lambda: status.document(loop.state),
        about={"version": __version__, "pid": os.getpid(), "workspace": str(setting.workspace)},
        started_at=timestamp(status.started_at),
        activity=activity,
        schemas=schemas,
        screens=screens,
        say=say,
        port=PortWish(listen, token_file(setting.folders.state, setting.workspace)) if listen else None,
    )
    await stack.enter_async_context(server)


def schemas() -> dict[str, dict[str, Any]]:
    """Of the documents that the API takes and gives, by name."""
    from watchtest.config import json_schema
    from watchtest.views.status.status_schema import status_schema

    return {"status": status_schema(), "config": json_schema()}
