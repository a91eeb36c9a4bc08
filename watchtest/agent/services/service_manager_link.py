"""The agent's line to the steward: finds the one that lives, starts one where there is none, passes words both ways.

Between the host and the steward: passes orders and news on, and has a steward that was killed brought back.
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
from ..frames import Header, MirrorError
from .service_manager import LOCK, SOCKET, Client, steward
from .supervised_process import shed

START_LIMIT_S = 20.0
END_LIMIT_S = 4.0
LEAVE_LIMIT_S = 1.5
HELLO_LIMIT_S = 3.0
REVIVE_AFTER_S = 5.0
"""A steward that lived so long is replaced at once when it is killed; one that dies young, with the next order."""

Message = Dict[str, Any]


class StewardLink:
    """`still_alive` is called while this waits."""

    def __init__(self, home: str, root: str, still_alive: Callable[[], None]) -> None:
        self._home = home
        self._root = root
        self._still_alive = still_alive
        self._version = ""
        self._client: Optional[Client] = None
        self._order: Optional[Message] = None
        self.unanswered: Optional[int] = None
        """The id of an order that the steward has not answered yet."""
        self._connected_at = 0.0

    @property
    def fd(self) -> Optional[int]:
        return self._client.connection.fileno() if self._client is not None else None

    @property
    def is_there(self) -> bool:
        """A steward lives in this box, whoever started it."""
        return box_lock.is_held(os.path.join(self._home, LOCK))

    def order(self, message: Message) -> None:
        """Pass an order on; the answer comes by `receive`."""
        self._order = dict(message, id=None)
        self.unanswered = message["id"]
        if self._client is None:
            self._client = self._connected()
        if not self._client.send(message):
            self.lose()
            self._client = self._connected()
            self._client.send(message)

    def receive(self) -> Optional[List[Message]]:
        """What the steward says; None when it has ended."""
        messages = self._client.receive() if self._client is not None else None
        if any(message.get("id") == self.unanswered for message in messages or ()):
            self.unanswered = None
        return messages

    def lose(self) -> bool:
        """The steward has ended. True if it was not meant to."""
        if self._client is not None:
            self._client.connection.close()
        self._client = None
        return self._order is not None and bool(self._order["services"])

    def revive(self) -> bool:
        """Start another in place of one that was killed, with the same order. False if that would be a loop."""
        if self._order is None or time.monotonic() - self._connected_at < REVIVE_AFTER_S:
            return False
        self.order(self._order)
        return True

    def close(self) -> None:
        """Services of a tied steward end with us: wait for that, but not for long."""
        if self._client is None or self._order is None or not self._order["tied"]:
            return
        try:
            self._client.connection.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it is gone already
        deadline = time.monotonic() + LEAVE_LIMIT_S
        while self._client.wait(deadline - time.monotonic()) and self._client.receive() is not None:
            pass

    # -- finding it ----------------------------------------------------------------------------------

    def _connected(self) -> Client:
        self._version = self._version or _version()
        client = self._found()
        if client is None:
            self._start()
            client = self._found()
        if client is None:
            raise MirrorError("services", "the steward of the services was started and does not answer")
        self._connected_at = time.monotonic()
        return client

    def _found(self) -> Optional[Client]:
        """The living one, if it is of our own version; one of another is asked to end."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        here = os.open(".", os.O_RDONLY)
        try:
            os.chdir(self._home)  # the path of a socket has to be short
            connection.connect(SOCKET)
        except OSError:
            connection.close()
            return None
        finally:
            os.fchdir(here)
            os.close(here)
        client = Client(connection)
        hello = self._hello(client)
        if hello is not None and hello.get("version") == self._version:
            return client
        client.send({"t": "end"})
        self._until_it_ends(client, END_LIMIT_S)
        connection.close()
        return None

    def _start(self) -> None:
        told, told_child = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setsid()
                if os.fork() == 0:
                    _leave_the_agent(self._home, told_child)
                    steward(self._home, self._root, self._version, told_child)
            finally:
                os._exit(0)
        os.close(told_child)
        os.waitpid(child, 0)
        try:
            answer = self._told(told)
        finally:
            os.close(told)
        if not answer:
            raise MirrorError("services", "the steward of the services ended as it was started")
        if json.loads(answer.decode("ascii")):
            raise MirrorError(*json.loads(answer.decode("ascii")))

    def _told(self, told: int) -> bytes:
        deadline = time.monotonic() + START_LIMIT_S
        while time.monotonic() < deadline:
            if select.select([told], [], [], 0.5)[0]:
                return os.read(told, 4096)
            self._still_alive()
        raise MirrorError("services", "the steward of the services did not start within {:g} s".format(START_LIMIT_S))

    def _hello(self, client: Client) -> Optional[Message]:
        deadline = time.monotonic() + HELLO_LIMIT_S
        while time.monotonic() < deadline:
            self._still_alive()
            messages = client.receive() if client.wait(1.0) else []
            if messages is None:
                return None
            for message in messages:
                return message
        return None

    def _until_it_ends(self, client: Client, limit_s: float) -> None:
        deadline = time.monotonic() + limit_s
        while time.monotonic() < deadline:
            self._still_alive()
            if client.wait(min(1.0, deadline - time.monotonic())) and client.receive() is None:
                return


def _leave_the_agent(home: str, kept: int) -> None:
    """Nothing of the agent's may be held open by the steward: not its channel, not its locks."""
    shed([kept])
    words = os.open(os.path.join(home, "steward.log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    os.dup2(words, 2)
    os.close(words)


def _version() -> str:
    """Of the agent's source: a steward of another watchtest is replaced, not trusted."""
    digest = hashlib.sha1()
    for folder, _, names in sorted(os.walk(FOLDER)):
        for name in sorted(names):
            if name.endswith(".py"):
                with open(os.path.join(folder, name), "rb") as stream:
                    digest.update(json.dumps(name).encode("ascii") + stream.read())
    return digest.hexdigest()[:16]


class ServiceRelay:
    def __init__(
        self,
        home: str,
        root: str,
        selector: selectors.BaseSelector,
        send: Callable[..., None],
        show_life: Callable[[], None],
    ) -> None:
        self._selector = selector
        self._send = send
        self._steward = StewardLink(home, root, show_life)

    @property
    def fd(self) -> Optional[int]:
        return self._steward.fd

    @property
    def are_there(self) -> bool:
        return self._steward.is_there

    def order(self, header: Header, body: bytes) -> None:
        order = json.loads(body.decode("ascii"))
        before = self._steward.fd
        try:
            self._steward.order(dict(order, t="order", id=header["id"]))
        finally:
            self._listen_instead_of(before)

    def heard(self, fd: int) -> bool:
        """Whether that was the steward; its news has been passed on then."""
        if fd != self._steward.fd:
            return False
        messages = self._steward.receive()
        for message in messages or ():
            frame = {"t": "services", "id": message.pop("id", None)}
            self._send(frame, json.dumps(message, separators=(",", ":")).encode("ascii"))
        if messages is None:
            self._lose()
        return True

    def close(self) -> None:
        self._steward.close()

    def _listen_instead_of(self, before: Optional[int]) -> None:
        if before is not None:
            self._selector.unregister(before)
        if self._steward.fd is not None:
            self._selector.register(self._steward.fd, selectors.EVENT_READ)

    def _lose(self) -> None:
        """It has ended: because there is nothing left to do, or because somebody killed it and all services with it."""
        before = self._steward.fd
        was_killed = self._steward.lose()
        self._listen_instead_of(before)
        if not was_killed and self._steward.unanswered is None:
            return
        # Whoever waits for an answer orders again; else it is on us to bring the services back.
        if self._steward.unanswered is None and self._revive():
            return
        self._send({"t": "services", "id": self._steward.unanswered}, b'{"lost":true,"services":[]}')
        self._steward.unanswered = None

    def _revive(self) -> bool:
        try:
            return self._steward.revive()
        except (MirrorError, OSError):
            return False
        finally:
            self._listen_instead_of(None)
