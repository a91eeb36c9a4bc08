"""The policy that stops a job: which limit ends it, and by which steps. Both kinds of boxes follow it."""

from __future__ import annotations

import pytest

from watchtest.agent.jobs import job_limits
from watchtest.agent.jobs.job_limits import BoundedOutput, StopPolicy, death_reason, join_output


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


def steps(policy: StopPolicy, clock: Clock, until_s: float) -> list[tuple[float, str]]:
    """Return every step with the time at which it is due, checking four times per second."""
    found = []
    while clock.now_s < until_s:
        clock.now_s += 0.25
        if step := policy.due_step():
            found.append((clock.now_s, step))
    return found


def test_a_run_that_takes_too_long_shows_its_stacks_and_is_ended_step_by_step(clock: Clock) -> None:
    policy = StopPolicy(run_s=2.0, silence_s=60.0, grace_s=1.0, has_stacks=True, clock=clock)
    policy.note_test_start("test_a.py::test_a")
    assert steps(policy, clock, 10.0) == [(2.25, "stacks"), (2.5, "INT"), (3.5, "TERM"), (4.5, "KILL"), (7.5, "ALL")]
    assert policy.stopped == "timed_out"
    assert policy.reason == "the run took longer than 2 s, in test_a.py::test_a"
    policy.note_test_end("test_a.py::test_a")
    assert policy.current_test == "test_a.py::test_a"


def test_silence_is_counted_from_the_last_output(clock: Clock) -> None:
    policy = StopPolicy(run_s=60.0, silence_s=2.0, grace_s=1.0, clock=clock)
    assert steps(policy, clock, 1.5) == []
    policy.note_output()
    assert steps(policy, clock, 4.0) == [(3.75, "INT")]
    assert policy.reason == "no output for 2 s"


def test_a_test_has_a_limit_of_its_own(clock: Clock) -> None:
    policy = StopPolicy(run_s=60.0, silence_s=60.0, grace_s=1.0, test_s=1.0, clock=clock)
    for name in ("a", "b"):
        policy.note_test_start(name)
        assert steps(policy, clock, clock.now_s + 1.0) == []
        policy.note_test_end(name)
    policy.note_test_start("c")
    assert steps(policy, clock, clock.now_s + 1.25)
    assert policy.reason == "a test took longer than 1 s, in c"


@pytest.mark.parametrize(("is_kill", "expected"), [(False, ["INT", "TERM", "KILL", "ALL"]), (True, ["KILL", "ALL"])])
def test_a_stop_begins_at_once_and_has_a_last_resort_where_there_is_one(
    clock: Clock, is_kill: bool, expected: list[str]
) -> None:
    policy = StopPolicy(run_s=60.0, silence_s=60.0, grace_s=1.0, clock=clock)
    policy.stop(is_kill)
    found = steps(policy, clock, 10.0)
    assert [step for _, step in found] == expected
    assert found[0][0] == 0.25
    assert policy.stopped == ("killed" if is_kill else "cancelled")


def test_a_kill_overtakes_a_cancel_but_not_the_other_way_round(clock: Clock) -> None:
    policy = StopPolicy(run_s=60.0, silence_s=60.0, grace_s=5.0, clock=clock)
    policy.stop(is_kill=False)
    assert policy.due_step() == "INT"
    policy.stop(is_kill=True)
    assert policy.due_step() == "KILL"
    policy.stop(is_kill=False)
    assert (policy.stopped, policy.due_step()) == ("killed", None)


def test_of_long_output_head_and_tail_are_kept_and_the_rest_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_limits, "HEAD_LIMIT", 4)
    monkeypatch.setattr(job_limits, "TAIL_LIMIT", 3)
    output = BoundedOutput()
    head = b"".join(output.add(piece) for piece in (b"ab", b"cdef", b"ghij"))
    assert (head, output.dropped, output.tail) == (b"abcd", 3, b"hij")
    assert join_output("abcd", 3, "hij") == "abcd\n[... 3 bytes of output left out ...]\nhij"
    assert join_output("abcd", 0, "") == "abcd"


def test_a_kill_by_the_kernel_is_only_believed_of_sigkill() -> None:
    assert death_reason("SIGKILL", True, "a") == "out of memory: the kernel killed the run in a"
    assert death_reason("SIGSEGV", True) == "the process was ended by SIGSEGV"


def test_a_job_that_does_harm_is_killed_and_its_test_is_in_error(clock: Clock) -> None:
    policy = StopPolicy(run_s=2.0, silence_s=60.0, grace_s=1.0, clock=clock)
    policy.note_test_start("test_a.py::test_a")
    policy.fail("the disk is full")
    policy.fail("the disk is still full")
    assert steps(policy, clock, 20.0) == [(0.25, "KILL"), (3.25, "ALL")]
    assert (policy.stopped, policy.reason) == (None, "the disk is full, in test_a.py::test_a")
    policy.note_test_end("test_a.py::test_a")
    assert policy.current_test == "test_a.py::test_a"
