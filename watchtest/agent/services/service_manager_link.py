"""The agent's connection to the service manager: finds or starts it, and relays orders and reports.

A service manager that was killed is replaced.
"""

from __future__ import annotations

import hashlib
import json
import os
import select
import selectors
import socket
import time
from typing import Any, Callable, Dict, List, Optional

from .. import FOLDER, box_lock
from ..agent_error import AgentError
from ..frames import Header
from .service_manager import LOCK, SOCKET, ManagerConnection, run_service_manager
from .supervised_process import detach_from_parent

START_LIMIT_S = 20.0
END_LIMIT_S = 4.0
CLOSE_LIMIT_S = 1.5
HELLO_LIMIT_S = 3.0
REVIVE_AFTER_S = 5.0
"""A killed service manager that lived this long is replaced at once; a younger one only with the next order."""

Message = Dict[str, Any]


class ServiceManagerLink:
    """Sends orders and receives reports. Calls `still_alive` while it waits."""

    def __init__(self, home: str, root: str, still_alive: Callable[[], None]) -> None:
        self._home = home
        self._root = root
        self._still_alive = still_alive
        self._version = ""
        self._connection: Optional[ManagerConnection] = None
        self._order: Optional[Message] = None
        self.unanswered: Optional[int] = None
        """The id of an order that has not been answered yet."""
        self._connected_at = 0.0

    @property
    def fd(self) -> Optional[int]:
        return self._connection.connection.fileno() if self._connection is not None else None

    @property
    def is_running(self) -> bool:
        """A service manager lives in this box, whichever agent started it."""
        return box_lock.is_held(os.path.join(self._home, LOCK))

    def order(self, message: Message) -> None:
        """Send an order; `receive` returns the answer."""
        self._order = dict(message, id=None)
        self.unanswered = message["id"]
        if self._connection is None:
            self._connection = self._connect()
        if not self._connection.send(message):
            self.disconnect()
            self._connection = self._connect()
            self._connection.send(message)

    def receive(self) -> Optional[List[Message]]:
        """Return the messages that have arrived; None when the service manager has ended."""
        messages = self._connection.receive() if self._connection is not None else None
        if any(message.get("id") == self.unanswered for message in messages or ()):
            self.unanswered = None
        return messages

    def disconnect(self) -> bool:
        """Close the connection to a service manager that has ended; return True if it should still be running."""
        if self._connection is not None:
            self._connection.connection.close()
        self._connection = None
        return self._order is not None and bool(self._order["services"])

    def revive(self) -> bool:
        """Replace a killed service manager, with the same order; return False if that could become a loop."""
        if self._order is None or time.monotonic() - self._connected_at < REVIVE_AFTER_S:
            return False
        self.order(self._order)
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

    # -- connecting ----------------------------------------------------------------------------------

    def _connect(self) -> ManagerConnection:
        self._version = self._version or _version()
        connection = self._connect_to_living()
        if connection is None:
            self._start()
            connection = self._connect_to_living()
        if connection is None:
            raise AgentError("services", "the service manager was started but does not answer")
        self._connected_at = time.monotonic()
        return connection

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
        hello = self._receive_hello(connection)
        if hello is not None and hello.get("version") == self._version:
            return connection
        connection.send({"t": "end"})
        self._wait_until_ended(connection, END_LIMIT_S)
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
        if json.loads(answer.decode("ascii")):
            raise AgentError(*json.loads(answer.decode("ascii")))

    def _read_start(self, started: int) -> bytes:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if select.select([started], [], [], 0.5)[0]:
                return os.read(started, 4096)
            self._still_alive()
        raise AgentError("services", "the service manager did not start within {:g} s".format(START_LIMIT_S))

    def _receive_hello(self, connection: ManagerConnection) -> Optional[Message]:
        deadline = time.monotonic() + HELLO_LIMIT_S
        while time.monotonic() < deadline:
            self._still_alive()
            messages = connection.receive() if connection.wait(1.0) else []
            if messages is None:
                return None
            for message in messages:
                return message
        return None

    def _wait_until_ended(self, connection: ManagerConnection, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self._still_alive()
            if connection.wait(min(1.0, deadline - time.monotonic())) and connection.receive() is None:
                return


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


class ServiceRelay:
    """Passes orders of the host to the service manager, and its reports to the host."""

    def __init__(
        self,
        home: str,
        root: str,
        selector: selectors.BaseSelector,
        send: Callable[..., None],
        still_alive: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._send = send
        self._manager = ServiceManagerLink(home, root, still_alive)

    @property
    def fd(self) -> Optional[int]:
        return self._manager.fd

    @property
    def has_manager(self) -> bool:
        return self._manager.is_running

    def order(self, header: Header, body: bytes) -> None:
        order = json.loads(body.decode("ascii"))
        before = self._manager.fd
        try:
            self._manager.order(dict(order, t="order", id=header["id"]))
        finally:
            self._reregister(before)

    def on_readable(self, fd: int) -> bool:
        """Pass reports on if this is the service manager's connection; return whether it is."""
        if fd != self._manager.fd:
            return False
        messages = self._manager.receive()
        for message in messages or ():
            frame = {"t": "services", "id": message.pop("id", None)}
            self._send(frame, json.dumps(message, separators=(",", ":")).encode("ascii"))
        if messages is None:
            self._on_manager_end()
        return True

    def close(self) -> None:
        self._manager.close()

    def _reregister(self, before: Optional[int]) -> None:
        if before is not None:
            self._selector.unregister(before)
        if self._manager.fd is not None:
            self._selector.register(self._manager.fd, selectors.EVENT_READ)

    def _on_manager_end(self) -> None:
        """It has ended because there is nothing left to do, or because it was killed, and all services with it."""
        before = self._manager.fd
        was_killed = self._manager.disconnect()
        self._reregister(before)
        if not was_killed and self._manager.unanswered is None:
            return
        # A host that waits for an answer orders again; otherwise the agent brings the services back.
        if self._manager.unanswered is None and self._revive():
            return
        self._send({"t": "services", "id": self._manager.unanswered}, b'{"lost":true,"services":[]}')
        self._manager.unanswered = None

    def _revive(self) -> bool:
        try:
            return self._manager.revive()
        except (AgentError, OSError):
            return False
        finally:
            self._reregister(None)
