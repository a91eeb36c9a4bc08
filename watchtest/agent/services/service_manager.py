"""The steward: one process a box that keeps its services as they were ordered. Outlives runs, and agents if it may.

It listens on a socket in the box's home and speaks JSON lines: an order in, reports out. Reality is made equal to the
order: what is unknown is started, what has another key restarted, what is not listed any more ended, the rest left
alone. It holds a lock, so there is one; it comes from the agent by two forks, so no run's clean-up finds it.
"""

from __future__ import annotations

import json
import math
import os
import select
import signal
import socket
import sys
import time
from typing import Any, Dict, List, NoReturn, Optional, Set

from .. import box_lock
from ..frames import MirrorError, explained
from ..jobs import supervisor as supervise
from ..jobs.job import complete
from .service import STOPPED, Service, Surroundings

SOCKET, LOCK, SUPERVISORS, REMEMBERED = "steward.sock", "steward.lock", "services.lock", "services.json"
PATIENCE_S = 3.0
"""So long a steward that is about to end has for it before the next one kills it."""
END_LIMIT_S = 2.0
SEND_LIMIT_S = 2.0
ORDER_LIMIT = 4 * 1024 * 1024
STRAYS_LIMIT_S = 5.0


def steward(home: str, root: str, version: str, told_fd: int) -> NoReturn:
    """Serve until there is nothing left to do. `told_fd` gets [] once it listens, or [code, why] if it cannot."""
    try:
        os.chdir(home)  # the path of a socket is short: below 108 bytes, wherever home is
        one = Steward(home, root, version)
        try:
            one.open()
        except (OSError, MirrorError) as error:
            failure = error if isinstance(error, MirrorError) else explained(error, "the folder of the services")
            os.write(told_fd, json.dumps([failure.code, str(failure)]).encode("ascii"))
            raise
        os.write(told_fd, b"[]")
        os.close(told_fd)
        one.serve()
    except BaseException:  # noqa: BLE001  the last chance to say it: nobody waits for this process
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)  # every supervisor sees its pipe close, and ends what it supervises


class Client:
    """The agent at the other end; lines of JSON."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = b""
        connection.settimeout(SEND_LIMIT_S)

    def send(self, message: Dict[str, Any]) -> bool:
        try:
            self.connection.sendall(json.dumps(message, separators=(",", ":")).encode("ascii") + b"\n")
        except OSError:
            return False
        return True

    def wait(self, limit_s: float) -> bool:
        """Whether there is something to receive within the limit."""
        return bool(select.select([self.connection], [], [], max(0.0, limit_s))[0])

    def receive(self) -> Optional[List[Dict[str, Any]]]:
        """The messages that are complete now; None at the end. Never waits."""
        try:
            piece = self.connection.recv(64 * 1024, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return []
        except OSError:
            piece = b""
        self._received += piece
        if not piece or len(self._received) > ORDER_LIMIT:
            return None
        *lines, self._received = self._received.split(b"\n")
        try:
            messages = [json.loads(line.decode("utf-8")) for line in lines]
        except (ValueError, RecursionError):
            return None  # not an agent of ours
        return [message for message in messages if isinstance(message, dict)]


class Steward:
    def __init__(self, home: str, root: str, version: str) -> None:
        self._home = home
        self._root = root
        self._version = version
        self._services: Dict[str, Service] = {}
        self._around = Surroundings("logs", SUPERVISORS, self._may_begin, self._end_strays)
        self._remembered: Set[str] = set()
        self._client: Optional[Client] = None
        self._last_client: Optional[Client] = None
        self._is_tied = False
        self._is_ending = False
        self._has_ordered = False
        self._shown: List[Dict[str, Any]] = []

    def open(self) -> None:
        """Be the only one, with nothing of an earlier one left."""
        box_lock.take_over(LOCK, "steward", PATIENCE_S)
        box_lock.wait_until_free(SUPERVISORS, "a service of an earlier watcher")
        box_lock.end_marked(box_lock.SERVICE, self._home)
        supervise.become_subreaper()
        self._remembered = _read_remembered()
        self._wake, wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(wake, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        if os.path.lexists(SOCKET):
            os.unlink(SOCKET)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        before = os.umask(0o077)
        self._listener.bind(SOCKET)
        os.umask(before)
        self._listener.listen(4)

    def serve(self) -> None:
        while not self._is_done():
            fds = [self._wake, *(fd for service in self._services.values() for fd in service.fds)]
            if not self._is_ending:
                fds.append(self._listener.fileno())
            if self._client is not None:
                fds.append(self._client.connection.fileno())
            for fd in select.select(fds, [], [], self._patience_s())[0]:
                self._read(fd)
            _reap()
            self._advance()
            self._show()

    def _is_done(self) -> bool:
        return (self._is_ending or self._has_ordered) and not self._services

    def _patience_s(self) -> Optional[float]:
        now = time.monotonic()
        due_s = min((service.due_in(now) for service in self._services.values()), default=math.inf)
        return due_s if due_s < math.inf else None

    def _read(self, fd: int) -> None:
        if fd == self._wake:
            os.read(self._wake, 4096)
        elif fd == self._listener.fileno() and not self._is_ending:
            connection, _ = self._listener.accept()
            self._leave_client()  # the agent that comes last is the one that serves the box
            self._client = Client(connection)
            self._client.send({"t": "hello", "version": self._version})
        elif self._client is not None and fd == self._client.connection.fileno():
            self._hear(self._client)
        else:
            for service in self._services.values():
                if fd in service.fds:
                    service.read(fd)
                    return

    def _hear(self, client: Client) -> None:
        messages = client.receive()
        if messages is None:
            if self._is_tied or not self._services:
                self._end()
                self._last_client, self._client = client, None  # left open: its end tells that all is over
            self._leave_client()
            return
        for message in messages:
            if message.get("t") == "order":
                did = self._obey(message)
                self._advance()
                self._shown = self._reports()
                client.send(self._news(id=message.get("id"), did=did))
            elif message.get("t") == "end":
                self._end()

    def _leave_client(self) -> None:
        if self._client is not None:
            self._client.connection.close()
            self._client = None

    # -- making it so --------------------------------------------------------------------------------

    def _obey(self, order: Dict[str, Any]) -> Dict[str, str]:
        """Make reality equal to the list; what was done, by name."""
        self._is_tied = bool(order["tied"])
        self._has_ordered = True
        did = {}
        listed = {str(one["name"]): one for one in order["services"]}
        for name, service in self._services.items():
            if name not in listed:
                service.end()
                did[name] = "ended"
        for name, one in listed.items():
            definition = complete(one, box_lock.SERVICE, self._home, self._root)
            definition["oom_score"] = 500  # after the tests, before us
            did[name] = self._make(name, definition, bool(order.get("retry")))
        self._remembered = set()
        _remember(sorted(listed))
        return did

    def _make(self, name: str, definition: Dict[str, Any], is_retry: bool) -> str:
        service = self._services.get(name)
        if service is None:
            self._services[name] = Service(definition, self._around)
            return "started_again" if name in self._remembered else "started"
        if not service.is_wanted or service.definition["key"] != definition["key"]:
            service.become(definition)
            return "restarted"
        if service.state == "failed" and is_retry:
            service.become(definition)
            return "retried"
        service.definition = definition  # the same process; its limits may be others
        return "kept"

    def _advance(self) -> None:
        now = time.monotonic()
        has_news = True
        while has_news:  # the end of one may be what another waits for
            has_news = sum(service.advance(now) for service in self._services.values()) > 0
        for name, service in list(self._services.items()):
            if service.state == STOPPED and not service.is_wanted:
                self._show()
                service.close()
                del self._services[name]

    def _may_begin(self) -> bool:
        """Only when nothing is on its way out: it may hold the port that the next one needs."""
        return not self._is_ending and not any(service.is_ending for service in self._services.values())

    def _end(self) -> None:
        """Everything, and then this process. Nobody new is let in."""
        if self._is_ending:
            return
        self._is_ending = True
        self._listener.close()
        for service in self._services.values():
            service.definition["grace_s"] = min(service.definition["grace_s"], END_LIMIT_S)
            service.end()

    def _end_strays(self, lost: int) -> None:
        """A supervisor was killed: what it supervised is ours now, and belongs to nobody that lives."""
        try:
            os.waitpid(lost, 0)  # only then its children have come to us
        except ChildProcessError:
            pass  # reaped already
        deadline = time.monotonic() + STRAYS_LIMIT_S
        while time.monotonic() < deadline:
            roots = [root for service in self._services.values() for root in service.roots]
            spared = set(roots).union(*(supervise.descendants(root) for root in roots))
            strays = [pid for pid in supervise.descendants(os.getpid()) if pid not in spared]
            if not strays:
                return
            for pid in strays:
                box_lock.kill(pid)
            _reap()
            time.sleep(0.002)

    # -- telling -------------------------------------------------------------------------------------

    def _reports(self) -> List[Dict[str, Any]]:
        return [service.report() for service in self._services.values()]

    def _show(self) -> None:
        """The news, if there are any. Nobody may be there to hear them."""
        reports = self._reports()
        if _lasting(reports) == _lasting(self._shown):
            return
        self._shown = reports
        if self._client is not None:
            self._client.send(self._news())

    def _news(self, **rest: Any) -> Dict[str, Any]:
        """What is shown, with a number that grows from steward to steward: an answer may be read after later news."""
        return dict(rest, t="services", services=self._shown, seq=time.monotonic_ns())


def _lasting(reports: List[Dict[str, Any]]) -> List[Any]:
    """Without what changes by the clock alone."""
    return [(report["name"], report["key"], report["state"], report["since"], report["restarts"]) for report in reports]


def _reap() -> None:
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass  # no child at all


def _remember(names: List[str]) -> None:
    """What was ordered, for the next steward: it can then tell a new service from one that was lost."""
    try:
        with open(REMEMBERED + ".new", "w") as stream:
            json.dump(names, stream)
        os.replace(REMEMBERED + ".new", REMEMBERED)
    except OSError:
        pass  # a full disk: "started" is said then where "started again" would be right


def _read_remembered() -> Set[str]:
    try:
        with open(REMEMBERED) as stream:
            names = json.load(stream)
    except (OSError, ValueError):
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
