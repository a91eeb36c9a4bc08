"""One service as the steward sees it: starting, ready, backoff, failed or stopped. Nothing here blocks.

The steward calls `read` for its files and `advance` whenever something may have happened. Each failure - an end before
it was ready, an end after, not ready in time, a port that others serve - costs one restart; past the limit it stays
`failed`, with the reason and its last lines, until its definition changes or somebody asks for another try.

What a service prints: a file of bounded size with one older one beside it, and its last lines for reports.
"""

from __future__ import annotations

import math
import os
import time
from typing import Any, Callable, Dict, List, Optional

from . import ready_check as ready
from .supervised_process import Supervised

FILE_LIMIT = 5 * 1024 * 1024
TAIL_LIMIT = 16 * 1024
TAIL_LINES = 15
LINE_LENGTH = 300


class ServiceLog:
    """Never fails its writer: a full disk costs lines of the log, not the service."""

    def __init__(self, file: str, limit: int = FILE_LIMIT) -> None:
        self._file = file
        self._limit = limit
        self._tail = b""
        self._fd = -1
        self._size = 0

    def add(self, piece: bytes) -> None:
        self._tail = (self._tail + piece)[-TAIL_LIMIT:]
        try:
            self._write(piece)
        except OSError:
            self.close()  # opened again with the next piece, when there may be room

    def say(self, words: str) -> None:
        """A line of our own, told from the service's by its start. Not part of the tail."""
        line = "--- watchtest {}: {}\n".format(time.strftime("%Y-%m-%d %H:%M:%S"), words)
        try:
            self._write(line.encode("utf-8", "replace"))
        except OSError:
            self.close()

    def forget_tail(self) -> None:
        self._tail = b""

    @property
    def tail(self) -> List[str]:
        """The last lines since the service was last started."""
        lines = self._tail.decode("utf-8", "replace").splitlines()
        return [line[:LINE_LENGTH] for line in lines if line.strip()][-TAIL_LINES:]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
        self._fd = -1

    def _write(self, piece: bytes) -> None:
        if self._fd < 0:
            os.makedirs(os.path.dirname(self._file), exist_ok=True)
            self._fd = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
            self._size = os.fstat(self._fd).st_size
        if self._size + len(piece) > self._limit and self._size:
            self.close()
            os.replace(self._file, self._file + ".old")
            self._write(piece)
            return
        os.write(self._fd, piece)
        self._size += len(piece)


STARTING, READY, BACKOFF, FAILED, STOPPED = "starting", "ready", "backoff", "failed", "stopped"
FIRST_LOOK_S, LONGEST_LOOK_S = 0.05, 0.5
ALIVE_S = 0.3
"""Without a ready check, a service that lives so long is ready."""

Definition = Dict[str, Any]


class Surroundings:
    """What services share: the folder of their logs, the lock of their supervisors, and two words of the steward's."""

    def __init__(self, logs: str, lock: str, may_begin: Callable[[], bool], end_strays: Callable[[int], None]) -> None:
        self.logs = logs
        self.lock = lock
        self.may_begin = may_begin
        self.end_strays = end_strays


class Service:
    """`definition`: name, key, argv, env, cwd, ready, ready_timeout_s, restart_limit, grace_s, and the timing."""

    def __init__(self, definition: Definition, around: Surroundings) -> None:
        self.name = str(definition["name"])
        self.definition = definition
        self.is_wanted = True
        self._around = around
        self._log = ServiceLog(os.path.join(around.logs, self.name + ".log"))
        self._process: Optional[Supervised] = None
        self._look: Any = None
        self._waits = True
        self._after: Optional[Callable[[], None]] = None
        self._kill_at = self._look_at = self._not_ready_at = math.inf
        self._look_every_s = FIRST_LOOK_S
        self._why_not = ""
        self._ready_at = self._retry_at = 0.0
        self.restarts = 0
        self._enter(STARTING)

    # -- what the steward asks -----------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """A process of it is on its way out."""
        return self._after is not None

    @property
    def fds(self) -> List[int]:
        return [*(self._process.fds if self._process else ()), *(self._look.fds if self._look else ())]

    @property
    def roots(self) -> List[int]:
        """The processes below which everything belongs to this service."""
        return [*([self._process.supervisor] if self._process else ()), *([self._look.pid] if self._look else ())]

    def read(self, fd: int) -> None:
        if self._process is not None and fd in self._process.fds:
            self._log.add(self._process.read(fd))
        elif self._look is not None and fd in self._look.fds:
            self._look.read(fd)

    def due_in(self, now: float) -> float:
        """Seconds until `advance` has something to do by itself."""
        times = [self._kill_at, self._not_ready_at]
        if self.state == BACKOFF:
            times.append(self._retry_at)
        if self._process is not None and self._look is None:
            times.append(self._look_at)
        return max(0.0, min(times) - now)

    def report(self) -> Dict[str, Any]:
        has_trouble = self.state in (BACKOFF, FAILED)
        return {
            "name": self.name,
            "key": self.definition["key"],
            "state": self.state,
            "since": self.since,
            "restarts": self.restarts,
            "reason": self.reason,
            "retry_in_s": max(0.0, self._retry_at - time.monotonic()) if self.state == BACKOFF else None,
            "tail": self._log.tail if has_trouble else [],
        }

    # -- what it is told -----------------------------------------------------------------------------

    def become(self, definition: Definition) -> None:
        """Go on as this, with a clean slate: what ran before is ended first."""
        self.definition = definition
        self.is_wanted = True
        self.restarts = 0
        self._enter(STARTING)
        self._end(self._begin_when_possible)

    def end(self) -> None:
        self.is_wanted = False
        self._end(lambda: self._enter(STOPPED))

    def close(self) -> None:
        self._log.close()

    # -- going on ------------------------------------------------------------------------------------

    def advance(self, now: float) -> bool:
        """Whatever is due. True if something happened, and others may have to look again."""
        try:
            return self._advance(now)
        except OSError as error:  # no process, or no file, is to be had any more: that passes
            why = "could not be started: {}".format(error.strerror or error)
            self._end(lambda: self._fail(why))
            return True

    def _advance(self, now: float) -> bool:
        if self._look is not None and self._look.is_over:
            self._looked(now)
            return True
        if self._process is not None and self._process.is_over:
            self._ended(now)
            return True
        if now >= self._kill_at and self._process is not None:
            self._kill_at = math.inf
            self._process.kill()
        elif self._waits and self.state == STARTING and self._around.may_begin():
            self._waits = False
            self._begin(now)
            return True
        elif self.state == BACKOFF and now >= self._retry_at:
            self.restarts += 1
            self._enter(STARTING)
            self._begin(now)
            return True
        elif now >= self._not_ready_at:
            why = "not ready within {:g} s".format(self.definition["ready_timeout_s"])
            why += ": " + self._why_not if self._why_not else ""
            self._end(lambda: self._fail(why))
        elif now >= self._look_at and self._process is not None and self._look is None:
            self._look_again(now)
        return False

    def _begin_when_possible(self) -> None:
        self._waits = True

    def _begin(self, now: float) -> None:
        self._why_not = ""
        self._log.forget_tail()
        self._look = ready.look_for_others(self.definition.get("ready"))
        if self._look is None:
            self._start(now)

    def _start(self, now: float) -> None:
        self._log.say("starting {}".format(" ".join(self.definition["argv"])))
        self._process = Supervised(self.definition, self._around.lock)
        self._look_every_s = FIRST_LOOK_S
        if self.definition.get("ready"):
            self._look_at = now + self._look_every_s
            self._not_ready_at = now + self.definition["ready_timeout_s"]
        else:
            self._look_at = now + ALIVE_S

    def _look_again(self, now: float) -> None:
        check = self.definition.get("ready")
        self._look_at = math.inf
        if check:
            self._look = ready.look_for(check, self.definition, self._around.lock)
        else:
            self._is_ready(now)

    def _looked(self, now: float) -> None:
        self._why_not = self._look.why_not
        self._look = None
        if self._process is None:
            if self._why_not:
                self._fail(self._why_not)
            else:
                self._start(now)
        elif not self._why_not:
            self._is_ready(now)
        else:
            self._look_every_s = min(self._look_every_s * 1.5, LONGEST_LOOK_S)
            self._look_at = now + self._look_every_s

    def _is_ready(self, now: float) -> None:
        self._ready_at = now
        self._not_ready_at = math.inf
        self._enter(READY)

    def _ended(self, now: float) -> None:
        assert self._process is not None
        process, self._process = self._process, None
        self._log.add(process.close())
        if process.was_abandoned:
            self._around.end_strays(process.supervisor)
        self._drop_look()
        self._kill_at = self._look_at = self._not_ready_at = math.inf
        after, self._after = self._after, None
        if after is not None:
            self._log.say("ended")
            after()
        elif self.state == READY:
            lived_s = now - self._ready_at
            if lived_s >= self.definition["settled_s"]:
                self.restarts = 0
            hint = " (a service has to stay in the foreground)" if process.exit_code == 0 else ""
            self._fail("{} after it was ready for {:.1f} s{}".format(process.end, lived_s, hint))
        else:
            self._fail("{} before it was ready".format(process.end))

    def _end(self, after: Callable[[], None]) -> None:
        self._drop_look()
        self._waits = False
        self._look_at = self._not_ready_at = math.inf
        if self._process is None:
            after()
            return
        if self._after is None:
            self._process.terminate()
            self._kill_at = time.monotonic() + self.definition["grace_s"]
        self._after = after

    def _drop_look(self) -> None:
        if self._look is not None:
            self._look.abandon()
            self._look = None

    def _fail(self, reason: str) -> None:
        self._log.say(reason)
        if self.restarts >= self.definition["restart_limit"]:
            self._enter(FAILED, reason)
            return
        wait_s = min(self.definition["backoff_s"] * 2 ** min(self.restarts, 30), self.definition["longest_backoff_s"])
        self._retry_at = time.monotonic() + wait_s
        self._enter(BACKOFF, reason)

    def _enter(self, state: str, reason: str = "") -> None:
        self.state = state
        self.reason = reason
        self.since = time.time()
