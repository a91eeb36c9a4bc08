"""The lifetime of the control server: it starts beside the first tests and stops with the watcher.

Errors are reported once and logged; the watcher continues without its socket.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

from watchtest.control.address import ensure_token
from watchtest.control.gateway import ApiContext
from watchtest.control.guard import AccessRules, Guard, loopback_access
from watchtest.control.sockets import PortListener, SocketListener
from watchtest.errors import ControlError

if TYPE_CHECKING:
    from watchtest.control.uvicorn_server import UvicornServer

log = logging.getLogger(__name__)
START_LIMIT_S = 1.0
"""How long to wait for the first tests; if every trigger is off there are none."""
STOP_LIMIT_S = 3.0
SOCKET, PORT = "control socket", "control port"


@dataclass(frozen=True, slots=True)
class TcpEndpoint:
    """A port of the loopback interface to listen on, and the file of its token."""

    listen: str
    token_file: Path


class ControlServer:
    """Serves the API while entered."""

    def __init__(
        self,
        context: ApiContext,
        socket_paths: Sequence[Path],
        *,
        say: Callable[[str], None],
        port: TcpEndpoint | None = None,
        start_limit_s: float = START_LIMIT_S,
    ) -> None:
        self._context = context
        self._gateway = context.gateway
        self._socket_paths = socket_paths
        self._say = say
        self._port = port
        self._start_limit_s = start_limit_s
        self._is_port_known = asyncio.Event()
        """Set before the socket accepts requests, so that GET /info always includes the port."""
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        self._tasks.append(asyncio.create_task(self._report_errors(self._serve_socket, SOCKET), name=SOCKET))
        if self._port is None:
            self._is_port_known.set()
        else:
            self._tasks.append(asyncio.create_task(self._report_errors(self._serve_port, PORT), name=PORT))
        return self

    async def __aexit__(self, *_: object) -> None:
        self._gateway.close()
        _done, late = await asyncio.wait(self._tasks, timeout=STOP_LIMIT_S)
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _report_errors(self, serve: Callable[[], Awaitable[None]], what: str) -> None:
        try:
            await serve()
        except ControlError as error:
            self._say(f"no {what}: {error}")
        except Exception as error:
            log.exception("a bug ended the %s", what)
            lost = "`watchtest run`, `cancel` and `pause` do not work" if what == SOCKET else "it stays closed"
            self._say(f"the {what} failed ({type(error).__name__}: {error}); {lost} until the watcher is started again")
        finally:
            self._is_port_known.set()

    async def _serve_socket(self) -> None:
        await self._gateway.wait_for_tests(self._start_limit_s)
        await self._is_port_known.wait()
        while not self._gateway.is_closed:
            with SocketListener(self._socket_paths) as listener:
                log.info("the control socket is %s", listener.path)
                self._context.addresses["socket"] = listener.name
                await self._serve(listener, AccessRules())

    async def _serve_port(self) -> None:
        assert self._port is not None
        await self._gateway.wait_for_tests(self._start_limit_s)
        if self._gateway.is_closed:
            return
        token = ensure_token(self._port.token_file)
        addresses = self._context.addresses
        with PortListener(self._port.listen) as listener:
            log.info("the control API is at %s", listener.name)
            addresses.update(url=listener.name, token_file=str(self._port.token_file))
            self._is_port_known.set()
            try:
                await self._serve(listener, loopback_access(listener.port, token))
            finally:
                addresses.update(url=None, token_file=None)

    async def _serve(self, listener: SocketListener | PortListener, access: AccessRules) -> None:
        server = await asyncio.to_thread(self._build, listener, access)
        await server.serve(sockets=[listener.socket])

    def _build(self, listener: SocketListener | PortListener, access: AccessRules) -> UvicornServer:
        # These imports are slow, so they happen in a thread while the first tests run.
        from watchtest.control.api.routes import application
        from watchtest.control.uvicorn_server import UvicornServer

        guarded = Guard(application(self._context), access)
        return UvicornServer(guarded, is_reachable=listener.is_reachable, stopped=self._gateway.closed)
