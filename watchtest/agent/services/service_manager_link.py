"""The agent's connection to the service manager: finds or starts it, and relays orders and reports.

A service manager that was killed is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import selectors
import signal
import socket
import time
from typing import Any, Callable, Dict, Iterator, Optional

from .. import FOLDER, box_lock
from ..agent_error import AgentError
from ..frames import Header
from .service_manager import LOCK, SOCKET, ManagerConnection, run_service_manager
from .service_process import detach_from_parent

START_LIMIT_S = 20.0
END_LIMIT_S = 4.0
CLOSE_LIMIT_S = 1.5
HELLO_LIMIT_S = 3.0
REVIVE_AFTER_S = 5.0
"""A killed service manager that lived this long is replaced at once; a younger one only with the next order."""

Message = Dict[str, Any]


class ServiceManagerLink:
    """Passes orders of the host to the service manager, and its reports to the host by `send`.

    Registers its connection with the selector. Calls `still_alive` while it waits.
    """

    def __init__(
        self,
        home: str,
        root: str,
        selector: selectors.BaseSelector,
        send: Callable[..., None],
        still_alive: Callable[[], None],
    ) -> None:
        self._home = home
        self._root = root
        self._selector = selector
        self._send = send
        self._still_alive = still_alive
        self._version = ""
        self._connection: Optional[ManagerConnection] = None
        self._order: Optional[Message] = None
        self._unanswered: Optional[int] = None
        """The id of an order that has not been answered yet."""
        self._connected_at = 0.0

    @property
    def fd(self) -> Optional[int]:
        return self._connection.connection.fileno() if self._connection is not None else None

    @property
    def is_running(self) -> bool:
        """A service manager lives in this box, whichever agent started it."""
        return box_lock.is_held(os.path.join(self._home, LOCK))

    def order(self, header: Header, body: bytes) -> None:
        """Pass an order of the host on; `_on_readable` gets the answer."""
        self._pass_on(dict(json.loads(body.decode("ascii")), t="order", id=header["id"]))

    def _pass_on(self, order: Message) -> None:
        self._order = dict(order, id=None)
        self._unanswered = order["id"]
        box_lock.signal_holder(os.path.join(self._home, LOCK), signal.SIGCONT)  # a test may have stopped it
        if self._connection is None:
            self._connect()
        assert self._connection is not None
        if not self._connection.send(order):
            self._disconnect()
            self._connect()
            self._connection.send(order)

    def _on_readable(self, _fd: int) -> None:
        """Pass the service manager's reports on."""
        assert self._connection is not None
        messages = self._connection.receive()
        for message in messages or ():
            order_id = message.pop("id", None)
            if order_id == self._unanswered:
                self._unanswered = None
            self._send({"t": "services", "id": order_id}, json.dumps(message, separators=(",", ":")).encode("ascii"))
        if messages is None:
            self._on_manager_end()

    def _on_manager_end(self) -> None:
        """It has ended because there is nothing left to do, or because it was killed, and all services with it."""
        self._disconnect()
        was_killed = self._order is not None and bool(self._order["services"])
        if not was_killed and self._unanswered is None:
            return
        # A host that waits for an answer orders again; otherwise the agent brings the services back.
        if self._unanswered is None and self._revive():
            return
        self._send({"t": "services", "id": self._unanswered}, b'{"lost":true,"services":[]}')
        self._unanswered = None

    def _revive(self) -> bool:
        """Replace a killed service manager, with the same order; return False if that fails, or could become a loop."""
        if self._order is None or time.monotonic() - self._connected_at < REVIVE_AFTER_S:
            return False
        try:
            self._pass_on(self._order)
        except (AgentError, OSError):
            return False
        return True

    def close(self) -> None:
        """Wait a moment for services that end with the agent."""
        if self._connection is None or self._order is None or not self._order["tied"]:
            return
        try:
            self._connection.connection.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is gone already
        deadline = time.monotonic() + CLOSE_LIMIT_S
        while self._connection.wait(deadline - time.monotonic()) and self._connection.receive() is not None:
            pass

    def _connect(self) -> None:
        self._version = self._version or _version()
        connection = self._connect_to_living()
        if connection is None:
            self._start()
            connection = self._connect_to_living()
        if connection is None:
            raise AgentError("services", "the service manager was started but does not answer")
        self._connected_at = time.monotonic()
        self._connection = connection
        self._selector.register(connection.connection, selectors.EVENT_READ, self._on_readable)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._selector.unregister(self._connection.connection)
            self._connection.connection.close()
        self._connection = None

    def _connect_to_living(self) -> Optional[ManagerConnection]:
        """Connect to the living service manager; if it is of another version, end it and return None."""
        raw = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(self._home)  # so that the socket's path is short
            raw.connect(SOCKET)
        except OSError:
            raw.close()
            return None
        finally:
            os.fchdir(here)
            os.close(here)
        connection = ManagerConnection(raw)
        hello = next(self._messages(connection, HELLO_LIMIT_S), {})
        if hello.get("version") == self._version:
            return connection
        connection.send({"t": "end"})
        for _ in self._messages(connection, END_LIMIT_S):
            pass
        raw.close()
        return None

    def _start(self) -> None:
        started, started_child = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    _detach_from_agent(self._home, started_child)
                    run_service_manager(self._home, self._root, self._version, started_child)
            finally:
                os._exit(0)
        os.close(started_child)
        os.waitpid(child, 0)
        try:
            answer = self._read_start(started)
        finally:
            os.close(started)
        if not answer:
            raise AgentError("services", "the service manager ended while it was starting")
        failure = json.loads(answer.decode("ascii"))
        if failure:
            raise AgentError(*failure)

    def _read_start(self, started: int) -> bytes:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if select.select([started], [], [], 0.5)[0]:
                return os.read(started, 4096)
            self._still_alive()
        raise AgentError("services", "the service manager did not start within {:g} s".format(START_LIMIT_S))

    def _messages(self, connection: ManagerConnection, limit_s: float) -> Iterator[Message]:
        """Yield what the service manager sends until it ends or the time is over."""
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self._still_alive()
            messages = connection.receive() if connection.wait(min(1.0, deadline - time.monotonic())) else []
            if messages is None:
                return
            yield from messages


def _detach_from_agent(home: str, kept: int) -> None:
    """Close the agent's files in the service manager, its channel and locks included."""
    detach_from_parent([kept])
    log = os.open(os.path.join(home, "steward.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(log, 2)
    os.close(log)


def _version() -> str:
    """Return a digest of the agent's source: the service manager of another watchtest version is replaced."""
    digest = hashlib.sha1()
    for folder, _, names in sorted(os.walk(FOLDER)):
        for name in sorted(names):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as stream:
                    digest.update(json.dumps(name).encode("ascii") + stream.read())
    return digest.hexdigest()[:16]
