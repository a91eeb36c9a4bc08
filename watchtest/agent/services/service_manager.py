"""The service manager: one process per box that keeps its services running. It outlives runs and, if allowed, agents.

It listens on a socket in the box's home and exchanges JSON lines: orders in, reports out. An order lists all services:
new ones are started, those with another key restarted, those no longer listed stopped, the others left alone. A lock
ensures that there is only one. The agent starts it by a double fork, so that no run's clean-up finds it.
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
from ..agent_error import AgentError, write_error
from ..jobs import supervisor
from ..jobs.job import complete
from .service import STOPPED, Service, ServiceContext

SOCKET, LOCK, SUPERVISORS, NAMES_FILE = "steward.sock", "steward.lock", "services.lock", "services.json"
PATIENCE_S = 3.0
"""How long an ending service manager may take before its successor kills it."""
STOP_LIMIT_S = 2.0
SEND_LIMIT_S = 2.0
ORDER_LIMIT = 4 * 1024 * 1024
STRAYS_LIMIT_S = 5.0


def run_service_manager(home: str, root: str, version: str, started_fd: int) -> NoReturn:
    """Serve until there is nothing left to do. `started_fd` gets [] once it listens, or [code, why] if it cannot."""
    try:
        os.chdir(home)  # so that the socket's path is short: its limit is 108 bytes
        manager = ServiceManager(home, root, version)
        try:
            manager.open()
        except (OSError, AgentError) as error:
            failure = error if isinstance(error, AgentError) else write_error(error, "the folder of the services")
            os.write(started_fd, json.dumps([failure.code, str(failure)]).encode("ascii"))
            raise
        os.write(started_fd, b"[]")
        os.close(started_fd)
        manager.serve()
    except BaseException:  # noqa: BLE001  log it: no parent process would report it
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(0)  # every supervisor sees its pipe close and kills what it supervises


class ManagerConnection:
    """One end of the connection between agent and service manager: JSON lines."""

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
        """Return whether there is something to receive within the limit."""
        return bool(select.select([self.connection], [], [], max(0.0, limit_s))[0])

    def receive(self) -> Optional[List[Dict[str, Any]]]:
        """Return the messages that are complete, or None at the end of the connection. Never blocks."""
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
            return None  # not our protocol
        return [message for message in messages if isinstance(message, dict)]


class ServiceManager:
    def __init__(self, home: str, root: str, version: str) -> None:
        self._home = home
        self._root = root
        self._version = version
        self._services: Dict[str, Service] = {}
        self._context = ServiceContext("logs", SUPERVISORS, self._may_start, self._kill_strays)
        self._known_names: Set[str] = set()
        """The services of the previous service manager, until the first order."""
        self._agent: Optional[ManagerConnection] = None
        self._last_agent: Optional[ManagerConnection] = None
        self._is_tied = False
        """Whether the services end with the agent."""
        self._is_ending = False
        self._has_order = False
        self._sent_reports: List[Dict[str, Any]] = []

    def open(self) -> None:
        """Become the only service manager of the box, and remove what is left of an earlier one."""
        box_lock.take_over(LOCK, "service manager", PATIENCE_S)
        box_lock.wait_until_free(SUPERVISORS, "a service of an earlier watcher")
        box_lock.kill_marked(box_lock.SERVICE_VARIABLE, self._home)
        supervisor.become_subreaper()
        self._known_names = _read_names()
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
        while self._services or not (self._is_ending or self._has_order):
            fds = [self._wake, *(fd for service in self._services.values() for fd in service.fds)]
            if not self._is_ending:
                fds.append(self._listener.fileno())
            if self._agent is not None:
                fds.append(self._agent.connection.fileno())
            for fd in select.select(fds, [], [], self._timeout_s())[0]:
                self._read(fd)
            supervisor.reap()
            self._advance()
            self._send_changes()

    def _timeout_s(self) -> Optional[float]:
        now = time.monotonic()
        due_s = min((service.due_in(now) for service in self._services.values()), default=math.inf)
        return due_s if due_s < math.inf else None

    def _read(self, fd: int) -> None:
        if fd == self._wake:
            os.read(self._wake, 4096)
        elif fd == self._listener.fileno() and not self._is_ending:
            connection, _ = self._listener.accept()
            self._close_agent()  # the latest agent is the one that serves the box
            self._agent = ManagerConnection(connection)
            self._agent.send({"t": "hello", "version": self._version})
        elif self._agent is not None and fd == self._agent.connection.fileno():
            self._receive(self._agent)
        else:
            for service in self._services.values():
                if fd in service.fds:
                    service.read(fd)
                    return

    def _receive(self, agent: ManagerConnection) -> None:
        messages = agent.receive()
        if messages is None:
            if self._is_tied or not self._services:
                self._stop_all()
                self._last_agent, self._agent = agent, None  # stays open until we exit: the agent waits for that
            self._close_agent()
            return
        for message in messages:
            if message.get("t") == "order":
                did = self._apply(message)
                self._advance()
                self._sent_reports = self._reports()
                agent.send(self._reports_message(id=message.get("id"), did=did))
            elif message.get("t") == "end":
                self._stop_all()

    def _close_agent(self) -> None:
        if self._agent is not None:
            self._agent.connection.close()
            self._agent = None

    # -- applying orders -----------------------------------------------------------------------------

    def _apply(self, order: Dict[str, Any]) -> Dict[str, str]:
        """Start, restart and stop services as the order says; return what was done, by name."""
        self._is_tied = bool(order["tied"])
        self._has_order = True
        did = {}
        listed = {str(definition["name"]): definition for definition in order["services"]}
        for name, service in self._services.items():
            if name not in listed:
                service.stop()
                did[name] = "ended"
        for name, ordered in listed.items():
            definition = complete(ordered, box_lock.SERVICE_VARIABLE, self._home, self._root)
            definition["oom_score"] = 500  # killed after the tests, before us
            did[name] = self._apply_one(name, definition, bool(order.get("retry")))
        self._known_names = set()
        _write_names(sorted(listed))
        return did

    def _apply_one(self, name: str, definition: Dict[str, Any], is_retry: bool) -> str:
        service = self._services.get(name)
        if service is None:
            self._services[name] = Service(definition, self._context)
            return "started_again" if name in self._known_names else "started"
        if not service.is_wanted or service.definition["key"] != definition["key"]:
            service.restart(definition)
            return "restarted"
        if service.state == "failed" and is_retry:
            service.restart(definition)
            return "retried"
        service.definition = definition  # the process stays, its limits may have changed
        return "kept"

    def _advance(self) -> None:
        now = time.monotonic()
        while sum(service.advance(now) for service in self._services.values()):
            pass  # one service may wait for the end of another
        for name, service in list(self._services.items()):
            if service.state == STOPPED and not service.is_wanted:
                self._send_changes()
                service.close()
                del self._services[name]

    def _may_start(self) -> bool:
        """Return whether no service is ending: it may hold the port that the next one needs."""
        return not self._is_ending and not any(service.is_ending for service in self._services.values())

    def _stop_all(self) -> None:
        """Stop all services, then this process. No new connection is accepted."""
        if self._is_ending:
            return
        self._is_ending = True
        self._listener.close()
        for service in self._services.values():
            service.definition["grace_s"] = min(service.definition["grace_s"], STOP_LIMIT_S)
            service.stop()

    def _kill_strays(self, lost_pid: int) -> None:
        """Kill what a killed supervisor left behind: our descendants that belong to no living service."""
        try:
            os.waitpid(lost_pid, 0)  # after that, its children are ours
        except ChildProcessError:
            pass  # already reaped
        deadline = time.monotonic() + STRAYS_LIMIT_S
        while time.monotonic() < deadline:
            roots = [root for service in self._services.values() for root in service.roots]
            spared = set(roots).union(*(supervisor.descendants(root) for root in roots))
            strays = [pid for pid in supervisor.descendants(os.getpid()) if pid not in spared]
            if not strays:
                return
            for pid in strays:
                box_lock.send_signal(pid)
            supervisor.reap()
            time.sleep(0.002)

    # -- reports -------------------------------------------------------------------------------------

    def _reports(self) -> List[Dict[str, Any]]:
        return [service.report() for service in self._services.values()]

    def _send_changes(self) -> None:
        """Send the reports if they have changed and an agent is connected."""
        reports = self._reports()
        if [_without_times(report) for report in reports] == [_without_times(sent) for sent in self._sent_reports]:
            return
        self._sent_reports = reports
        if self._agent is not None:
            self._agent.send(self._reports_message())

    def _reports_message(self, **fields: Any) -> Dict[str, Any]:
        """Return the reports with a sequence number, because an answer may be read after later reports.

        The number grows across service managers, too.
        """
        return dict(fields, t="services", services=self._sent_reports, seq=time.monotonic_ns())


def _without_times(report: Dict[str, Any]) -> List[Any]:
    """Return what does not change by the clock alone."""
    return [report[name] for name in ("name", "key", "state", "since", "restarts")]


def _write_names(names: List[str]) -> None:
    """Record the ordered services, so that the next service manager can tell a new service from a lost one."""
    try:
        with open(NAMES_FILE + ".new", "w") as stream:
            json.dump(names, stream)
        os.replace(NAMES_FILE + ".new", NAMES_FILE)
    except OSError:
        pass  # a full disk: the next one reports "started" instead of "started_again"


def _read_names() -> Set[str]:
    try:
        with open(NAMES_FILE) as stream:
            names = json.load(stream)
    except (OSError, ValueError):
        return set()
    return {name for name in names if isinstance(name, str)} if isinstance(names, list) else set()
