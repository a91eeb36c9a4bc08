"""The state machine of a service: starting, ready, backoff, failed or stopped. Nothing here blocks.

The service manager calls `read` for its files and `advance` whenever something may have happened. Each failure costs
one restart: an exit before or after it was ready, a ready check that times out, a port that is in use. Past its
`restart_limit` it stays `failed`, with the reason and its last lines, until its definition changes or a retry is
requested; see `Service._restart_or_give_up`.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, Callable, Dict, List, NamedTuple, Optional

from ..jobs import supervisor
from . import ready_check
from .restart_backoff import RestartBackoff
from .service_process import ServiceProcess

FILE_LIMIT = 5 * 1024 * 1024
TAIL_LIMIT = 16 * 1024
TAIL_LINES = 15
LINE_LENGTH = 300


class ServiceLog:
    """The output of a service: a file of bounded size, the one before it, and the last lines for reports.

    A full disk costs lines of the log, but never affects the service.
    """

    def __init__(self, file: str, limit: int = FILE_LIMIT) -> None:
        self._file = file
        self._limit = limit
        self._tail = b""
        self._fd = -1
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._tail = (self._tail + piece)[-TAIL_LIMIT:]
        self._write(piece)

    def add_note(self, text: str) -> None:
        """Add a line of our own, recognisable by its prefix. It is not part of the tail."""
        line = "--- watchtest {}: {}\n".format(time.strftime("%Y-%m-%d %H:%M:%S"), text)
        self._write(line.encode("utf-8", "replace"))

    def clear_tail(self) -> None:
        self._tail = b""

    @property
    def tail(self) -> List[str]:
        """The last lines since the latest start of the service."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return [line[:LINE_LENGTH] for line in lines if line.strip()][-TAIL_LINES:]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _write(self, piece: bytes) -> None:
        try:
            self._open()
            if self._size + len(piece) > self._limit and self._size:
                self.close()
                os.replace(self._file, self._file + ".old")
                self._open()
            os.write(self._fd, piece)
            self._size += len(piece)
        except OSError:
            self.close()  # opened again with the next piece, when there may be room

    def _open(self) -> None:
        if self._fd < 0:
            os.makedirs(os.path.dirname(self._file), exist_ok=True)
            self._fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size


STARTING, READY, BACKOFF, FAILED, STOPPED = "starting", "ready", "backoff", "failed", "stopped"
FIRST_PROBE_S, LONGEST_PROBE_S = 0.05, 0.5
ALIVE_S = 0.3
"""Without a ready check, a service that has lived this long is ready."""

Definition = Dict[str, Any]


class ServiceContext(NamedTuple):
    """What services share: the folder of their logs, the lock of their supervisors, callbacks of the manager."""

    logs: str
    lock: str
    may_start: Callable[[], bool]
    kill_strays: Callable[[int], None]


class Service:
    """`definition`: name, key, argv, env, cwd, ready, ready_timeout_s, restart_limit, grace_s, and the timing."""

    def __init__(self, definition: Definition, context: ServiceContext) -> None:
        self.name = str(definition["name"])
        self.definition = definition
        self.is_wanted = True
        self._context = context
        self._log = ServiceLog(os.path.join(context.logs, self.name + ".log"))
        self._process: Optional[ServiceProcess] = None
        self._probe: Any = None
        self._is_start_pending = True
        self._after_end: Optional[Callable[[], None]] = None
        self._kill_at = self._probe_at = self._not_ready_at = math.inf
        self._probe_every_s = FIRST_PROBE_S
        self._why_not = ""
        self._ready_at = self._retry_at = 0.0
        self.restarts = 0
        self._enter(STARTING)

    # -- for the service manager ---------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """Its process has been told to end and has not done so yet."""
        return self._after_end is not None

    @property
    def fds(self) -> List[int]:
        return [*(self._process.fds if self._process else ()), *(self._probe.fds if self._probe else ())]

    @property
    def roots(self) -> List[int]:
        """The processes whose descendants all belong to this service."""
        return [*([self._process.supervisor_pid] if self._process else ()), *([self._probe.pid] if self._probe else ())]

    def read(self, fd: int) -> None:
        if self._process is not None and fd in self._process.fds:
            self._log.add(self._process.read(fd))
        elif self._probe is not None and fd in self._probe.fds:
            self._probe.read(fd)

    def due_in(self, now: float) -> float:
        """Return the seconds until `advance` has something to do without any event."""
        times = [self._kill_at, self._not_ready_at]
        if self.state == BACKOFF:
            times.append(self._retry_at)
        if self._process is not None and self._probe is None:
            times.append(self._probe_at)
        return max(0.0, min(times) - now)

    def report(self) -> Dict[str, Any]:
        return {
            "name": self.name,
            "key": self.definition["key"],
            "state": self.state,
            "since": self.since,
            "restarts": self.restarts,
            "reason": self.reason,
            "retry_in_s": max(0.0, self._retry_at - time.monotonic()) if self.state == BACKOFF else None,
            "tail": self._log.tail if self.state in (BACKOFF, FAILED) else [],
        }

    def restart(self, definition: Definition) -> None:
        """End what is running, then start it again with this definition and no restarts counted."""
        self.definition = definition
        self.is_wanted = True
        self.restarts = 0
        self._enter(STARTING)
        self._end_process(self._start_when_possible)

    def stop(self) -> None:
        self.is_wanted = False
        self._end_process(lambda: self._enter(STOPPED))

    def close(self) -> None:
        self._log.close()

    # -- state transitions ---------------------------------------------------------------------------

    def advance(self, now: float) -> bool:
        """Do whatever is due. Return True if something happened that other services may be waiting for."""
        try:
            return self._advance(now)
        except OSError as error:  # out of processes or file descriptors, which is temporary
            why = "could not be started: {}".format(error.strerror or error)
            self._end_process(lambda: self._restart_or_give_up(why))
            return True

    def _advance(self, now: float) -> bool:
        if self._probe is not None and self._probe.is_over:
            self._on_probe_end(now)
            return True
        if self._process is not None and self._process.is_over:
            self._on_process_end(now)
            return True
        if now >= self._kill_at and self._process is not None:
            self._kill_at = math.inf
            self._process.command(supervisor.KILL)
        elif self._is_start_pending and self.state == STARTING and self._context.may_start():
            self._is_start_pending = False
            self._check_port_and_start(now)
            return True
        elif self.state == BACKOFF and now >= self._retry_at:
            self.restarts += 1
            self._enter(STARTING)
            self._check_port_and_start(now)
            return True
        elif now >= self._not_ready_at:
            why = "not ready within {:g} s".format(self.definition["ready_timeout_s"])
            why += ": " + self._why_not if self._why_not else ""
            self._end_process(lambda: self._restart_or_give_up(why))
        elif now >= self._probe_at and self._process is not None and self._probe is None:
            self._probe_at = math.inf
            if self.definition.get("ready"):
                self._probe = ready_check.start_probe(self.definition, self._context.lock)
            else:
                self._become_ready(now)
        return False

    def _start_when_possible(self) -> None:
        self._is_start_pending = True

    def _check_port_and_start(self, now: float) -> None:
        self._why_not = ""
        self._log.clear_tail()
        self._probe = ready_check.start_port_probe(self.definition.get("ready"))
        if self._probe is None:
            self._start(now)

    def _start(self, now: float) -> None:
        self._log.add_note("starting {}".format(" ".join(self.definition["argv"])))
        self._process = ServiceProcess(self.definition, self._context.lock)
        self._probe_every_s = FIRST_PROBE_S
        if self.definition.get("ready"):
            self._probe_at = now + self._probe_every_s
            self._not_ready_at = now + self.definition["ready_timeout_s"]
        else:
            self._probe_at = now + ALIVE_S

    def _on_probe_end(self, now: float) -> None:
        self._why_not = self._probe.why_not
        self._probe = None
        if self._process is None:
            if self._why_not:
                self._restart_or_give_up(self._why_not)
            else:
                self._start(now)
        elif not self._why_not:
            self._become_ready(now)
        else:
            self._probe_every_s = min(self._probe_every_s * 1.5, LONGEST_PROBE_S)
            self._probe_at = now + self._probe_every_s

    def _become_ready(self, now: float) -> None:
        self._ready_at = now
        self._not_ready_at = math.inf
        self._enter(READY)

    def _on_process_end(self, now: float) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        self._log.add(process.close())
        if process.was_abandoned:
            self._context.kill_strays(process.supervisor_pid)
        self._drop_probe()
        self._kill_at = self._probe_at = self._not_ready_at = math.inf
        after_end, self._after_end = self._after_end, None
        if after_end is not None:
            self._log.add_note("ended")
            after_end()
        elif self.state == READY:
            lived_s = now - self._ready_at
            if lived_s >= self.definition["settled_s"]:
                self.restarts = 0
            hint = " (a service must stay in the foreground)" if process.exit_code == 0 else ""
            self._restart_or_give_up("{} after it was ready for {:.1f} s{}".format(process.end, lived_s, hint))
        else:
            self._restart_or_give_up("{} before it was ready".format(process.end))

    def _end_process(self, after_end: Callable[[], None]) -> None:
        self._drop_probe()
        self._is_start_pending = False
        self._probe_at = self._not_ready_at = math.inf
        if self._process is None:
            after_end()
            return
        if self._after_end is None:
            self._process.command(supervisor.TERMINATE)
            self._kill_at = time.monotonic() + self.definition["grace_s"]
        self._after_end = after_end

    def _drop_probe(self) -> None:
        if self._probe is not None:
            self._probe.abandon()
            self._probe = None

    def _restart_or_give_up(self, reason: str) -> None:
        """After a failure: restart it when its backoff is over, or give it up if it has used up its `restart_limit`."""
        self._log.add_note(reason)
        if self.restarts >= self.definition["restart_limit"]:
            self._enter(FAILED, reason)
            return
        timing = RestartBackoff(self.definition["backoff_s"], self.definition["longest_backoff_s"])
        self._retry_at = time.monotonic() + timing.wait_s(self.restarts)
        self._enter(BACKOFF, reason)

    def _enter(self, state: str, reason: str = "") -> None:
        self.state = state
        self.reason = reason
        self.since = time.time()
