"""When a job is stopped and by which steps, and how much of its output is kept.

The one policy for both kinds of boxes: the agent carries the steps out by its supervisor (`job`), a box without Python
by signals from its shell script (`boxes.no_python.shell_job`). Decides only; must be importable on every host.
"""

from __future__ import annotations

import time
from typing import Callable, Dict, List, Optional

HEAD_LIMIT = 256 * 1024
TAIL_LIMIT = 64 * 1024
LINE_LIMIT = 4 * 1024 * 1024
DUMP_STACKS, INTERRUPT, TERMINATE, KILL, KILL_SUPERVISOR = "stacks", "INT", "TERM", "KILL", "ALL"
"""The steps of a stop, from the mildest to the last. KILL ends everything that the job started."""
STACKS_S = 0.2
"""How long the stacks of a job that has timed out may take before it is interrupted."""
KILL_S = 3.0
"""How long a kill may take before the supervisor itself is killed."""
SUPERVISOR_SLACK_S, HOST_SLACK_S = 6.0, 10.0


def hard_limit_s(run_s: float, grace_s: float) -> float:
    """Return when a supervisor acts by itself: after the limit of the run and all steps of a stop."""
    return run_s + 2 * grace_s + SUPERVISOR_SLACK_S


def last_resort_s(run_s: float, grace_s: float) -> float:
    """Return when the host kills the whole box, because neither agent nor supervisor has ended the run."""
    return run_s + 2 * grace_s + HOST_SLACK_S


class StopPolicy:
    """The limits of one job and the state of its stop: `due_step` returns what has to be done now, if anything.

    `has_stacks`: the job can dump the stacks of its threads.
    """

    def __init__(
        self,
        run_s: float,
        silence_s: float,
        grace_s: float,
        test_s: float = 0.0,
        has_stacks: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._clock = clock
        self._run_s = run_s
        self._silence_s = silence_s
        self._grace_s = grace_s
        self._test_s = test_s
        self._has_stacks = has_stacks
        self._began = self._last_output_at = self._clock()
        self._running_tests: Dict[str, float] = {}
        self._steps: List[str] = []
        self._next_step_at = 0.0
        self._blamed_test = ""
        self.has_started_tests = False
        self.stopped: Optional[str] = None
        """Why it was stopped: cancelled, killed or timed_out."""
        self.reason = ""
        """Which limit it exceeded."""

    @property
    def duration_s(self) -> float:
        return self._clock() - self._began

    @property
    def current_test(self) -> str:
        """The test that was running when the job was ended, or is now; of parallel tests, the first that began."""
        return self._blamed_test or next(iter(self._running_tests), "")

    def note_output(self) -> None:
        self._last_output_at = self._clock()

    def note_test_start(self, test: str) -> None:
        self.has_started_tests = True
        self._running_tests[test] = self._clock()

    def note_test_end(self, test: str) -> None:
        self._running_tests.pop(test, None)

    def stop(self, is_kill: bool) -> None:
        """The user asked for a stop: at once, or politely first."""
        if is_kill:
            self.stopped = "killed"
            self._begin([KILL, KILL_SUPERVISOR])
        elif self.stopped is None:
            self.stopped = "cancelled"
            self._begin([INTERRUPT, TERMINATE, KILL, KILL_SUPERVISOR])

    def fail(self, reason: str) -> None:
        """Kill the job because of what it does. This is an error of the test, not a stop."""
        if self.stopped is None and not self.reason:
            self._blame(reason)
            self._begin([KILL, KILL_SUPERVISOR])

    def due_step(self) -> Optional[str]:
        """Check the limits; return the next step of a stop if it is time for it."""
        now = self._clock()
        if self.stopped is None and not self.reason:
            self._check_limits(now)
        if not self._steps or now < self._next_step_at:
            return None
        step = self._steps.pop(0)
        self._next_step_at = now + {DUMP_STACKS: STACKS_S, KILL: KILL_S}.get(step, self._grace_s)
        return step

    def _check_limits(self, now: float) -> None:
        if now - self._began > self._run_s:
            self._time_out("the run took longer than {:g} s".format(self._run_s))
        elif now - self._last_output_at > self._silence_s:
            self._time_out("no output for {:g} s".format(self._silence_s))
        elif self._test_s and now - self._running_tests.get(self.current_test, now) > self._test_s:
            self._time_out("a test took longer than {:g} s".format(self._test_s))

    def _time_out(self, reason: str) -> None:
        self.stopped = "timed_out"
        self._blame(reason)
        stacks = [DUMP_STACKS] if self._has_stacks else []
        self._begin([*stacks, INTERRUPT, TERMINATE, KILL, KILL_SUPERVISOR])

    def _blame(self, reason: str) -> None:
        self._blamed_test = self.current_test
        self.reason = "{}, in {}".format(reason, self.current_test) if self.current_test else reason

    def _begin(self, steps: List[str]) -> None:
        self._steps = steps
        self._next_step_at = self._clock()


def death_reason(signal_name: str, is_out_of_memory: bool, test: str = "") -> str:
    """Say that a signal ended a run: in this test, if one was running."""
    where = " in {}".format(test) if test else ""
    if signal_name == "SIGKILL" and is_out_of_memory:
        return "out of memory: the kernel killed the run{}".format(where)
    return "the process was ended by {}{}".format(signal_name, where)


class BoundedOutput:
    """The output of a job: its head is passed on at once, of the rest only the tail is kept."""

    def __init__(self) -> None:
        self._passed_on = 0
        self.tail = b""
        self.dropped = 0
        """The number of bytes between head and tail."""

    def add(self, piece: bytes) -> bytes:
        """Take a piece of output; return the part of it that belongs to the head."""
        room = max(0, HEAD_LIMIT - self._passed_on)
        head = piece[:room]
        self._passed_on += len(head)
        self.tail += piece[room:]
        surplus = len(self.tail) - TAIL_LIMIT
        if surplus > 0:
            self.tail = self.tail[surplus:]
            self.dropped += surplus
        return head


def join_output(head: str, dropped: int, tail: str) -> str:
    """Return head and tail of an output as one text that says how much is missing between them."""
    gap = "\n[... {} bytes of output left out ...]\n".format(dropped) if dropped else ""
    return head + gap + tail
