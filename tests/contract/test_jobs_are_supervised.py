"""What holds for processes in every kind of box: their end is noticed, limits are enforced, and nothing is left
over."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time

import pytest
from support.box_bench import NASTY, Bench, Tree, left_over

from watchtest.boxes.protocols import Command, JobLimits, JobResult, JobSpec, PytestCommand
from watchtest.boxes.session import Session
from watchtest.errors import ChannelLost

STOP_AGENT = "kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat)"
"""The agent is the parent of the job's supervisor."""


async def never_revived() -> bool:
    return False


def test_output_and_exit_code_come_back(bench: Bench) -> None:
    end = bench.sh("echo out; echo err >&2; exit 3")
    assert (end.exit_code, end.stopped) == (3, None)
    assert sorted(end.output.split()) == ["err", "out"]


def test_a_command_that_is_not_there_says_so(bench: Bench) -> None:
    job = JobSpec(Command(("no-such-command",)), JobLimits(10, 10, 1))
    end = bench.do(bench.open().run(job, bench.rows.extend, lambda _text: None))
    assert end.exit_code == 127
    assert "cannot start no-such-command" in end.output


def test_a_signal_is_named(bench: Bench) -> None:
    end = bench.sh("kill -SEGV $$")
    assert end.exit_code is None
    assert "SIGSEGV" in end.reason


def test_endless_output_is_bounded_and_counted(bench: Bench) -> None:
    end = bench.sh("yes 0123456789 | head -c 50000000; echo; echo the end")
    assert end.exit_code == 0
    assert len(end.output) < 400_000
    assert "bytes of output left out" in end.output
    assert end.output.endswith("the end\n")


@pytest.mark.python_in_the_box
def test_nothing_of_a_finished_job_is_left(bench: Bench) -> None:
    bench.sync(Tree({"nasty.py": NASTY.encode()}))
    end = bench.sh(f"{bench.python} nasty.py mark-of-the-finished")
    assert "started" in end.output
    assert left_over(bench, "mark-of-the-finished") == 0


@pytest.mark.parametrize("is_kill", [True, False])
@pytest.mark.python_in_the_box
def test_nothing_of_a_stopped_job_is_left(bench: Bench, is_kill: bool) -> None:
    bench.sync(Tree({"nasty.py": NASTY.encode()}))
    session = bench.open()
    job = JobSpec(Command((bench.python, "nasty.py", "mark-of-the-stopped", "stay")), JobLimits(60, 60, 0.3))
    stops: asyncio.Queue[bool] = asyncio.Queue()

    def stop_when_started(text: str) -> None:
        if "started" in text:
            stops.put_nowait(is_kill)

    end: JobResult = bench.do(session.run(job, bench.rows.extend, stop_when_started, stops))
    assert end.stopped == ("killed" if is_kill else "cancelled")
    assert left_over(bench, "mark-of-the-stopped") == 0


@pytest.mark.python_in_the_box
def test_a_job_that_ignores_every_polite_signal_is_killed(bench: Bench) -> None:
    script = "import signal, time\nfor n in (2, 15): signal.signal(n, signal.SIG_IGN)\ntime.sleep(60)"
    bench.sync(Tree({"deaf.py": script.encode()}))
    began = time.monotonic()
    end = bench.sh(f"exec {bench.python} deaf.py", limit_s=1)
    assert end.stopped == "timed_out"
    assert time.monotonic() - began < 1 + 5


@pytest.mark.python_in_the_box
def test_the_run_limit_ends_a_hanging_test_and_shows_where(bench: Bench) -> None:
    hanging = b"import time\ndef test_hangs():\n    wait_for_ever()\ndef wait_for_ever():\n    time.sleep(600)\n"
    bench.sync(Tree({"test_hang.py": hanging}))
    end = bench.pytest(limit_s=3)
    assert end.stopped == "timed_out"
    assert "test_hang.py::test_hangs" in end.reason
    assert "wait_for_ever" in end.stacks


def test_silence_is_a_limit_of_its_own(bench: Bench) -> None:
    end = bench.sh("echo one; sleep 30", silence_s=1)
    assert end.stopped == "timed_out"
    assert "no output for" in end.reason


def test_a_chatty_job_is_not_silent(bench: Bench) -> None:
    end = bench.sh("for i in 1 2 3 4 5; do echo $i; sleep 0.4; done", silence_s=1.2)
    assert end.exit_code == 0


@pytest.mark.python_in_the_box
def test_the_loss_of_the_agent_is_told_and_its_job_ends(bench: Bench) -> None:
    bench.sync(Tree({"nasty.py": NASTY.encode()}))
    session = bench.open()
    job = JobSpec(Command((bench.python, "nasty.py", "mark-of-the-orphan", "stay")), JobLimits(60, 60, 0.3))

    def cut(text: str) -> None:
        if "started" in text:
            session.channel._stream.close()

    with pytest.raises(ChannelLost):
        bench.do(session.run(job, bench.rows.extend, cut))
    assert left_over(bench, "mark-of-the-orphan") == 0


@pytest.mark.python_in_the_box
def test_an_agent_that_is_killed_leaves_nothing_and_is_replaced(bench: Bench) -> None:
    bench.sync(Tree({"nasty.py": NASTY.encode(), "a": b"1"}))
    session = bench.open()
    # The agent is the parent of the job's supervisor.
    script = """
import os, re, signal, subprocess, sys
subprocess.Popen([sys.executable, 'nasty.py', 'mark-of-the-killed', 'stay'])
parent = lambda pid: int(open('/proc/%d/stat' % pid).read().rpartition(')')[2].split()[1])
import time; time.sleep(0.5)
os.kill(parent(os.getppid()), signal.SIGKILL)
time.sleep(60)
"""
    with pytest.raises(ChannelLost):
        bench.do(
            session.run(
                JobSpec(Command((bench.python, "-c", script)), JobLimits(60, 60, 0.3)),
                bench.rows.extend,
                lambda _text: None,
            )
        )
    assert left_over(bench, "mark-of-the-killed") == 0
    assert not bench.sync(Tree({"nasty.py": NASTY.encode(), "a": b"1"}))


@pytest.mark.python_in_the_box
@pytest.mark.thorough
def test_an_agent_that_a_job_stops_continues_and_the_job_goes_on(bench: Bench) -> None:
    bench.open()
    began = time.monotonic()
    end = bench.sh(f"{STOP_AGENT}; echo stopped; sleep 1; echo done")
    assert (end.exit_code, end.output) == (0, "stopped\ndone\n")
    assert time.monotonic() - began < 8 + 4


@pytest.mark.python_in_the_box
@pytest.mark.thorough
def test_a_job_that_stops_the_agent_again_and_again_is_ended(bench: Bench) -> None:
    session = bench.open()
    job = JobSpec(Command(("/bin/sh", "-c", f"while {STOP_AGENT}; do sleep 0.01; done")), JobLimits(2, 2, 0.3))
    began = time.monotonic()
    with contextlib.suppress(ChannelLost):  # or the agent has ended it in a moment in which it ran
        assert bench.do(session.run(job, bench.rows.extend, lambda _text: None)).stopped == "timed_out"
    assert time.monotonic() - began < 2 + 15
    assert bench.said("echo alive") == "alive\n"


@pytest.mark.python_in_the_box
@pytest.mark.thorough
def test_an_agent_that_stands_still_in_the_middle_of_a_sync_is_given_up(bench: Bench) -> None:
    session = bench.open()
    assert isinstance(session, Session)
    session.channel.revive = never_revived
    job = JobSpec(Command(("/bin/sh", "-c", STOP_AGENT)), JobLimits(60, 60, 0.3))

    async def stop_and_sync() -> None:
        running = asyncio.create_task(session.run(job, bench.rows.extend, lambda _: None))
        await asyncio.sleep(0.5)
        big = Tree({"big": bytes(30 * 1024 * 1024)})
        try:
            await session.sync(big.snapshot(), big.read)
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    began = time.monotonic()
    with pytest.raises(ChannelLost):
        bench.do(stop_and_sync())
    assert time.monotonic() - began < 8 + 6
    assert bench.said("echo alive") == "alive\n"


@pytest.mark.python_in_the_box
def test_a_job_that_stops_its_supervisor_is_ended_all_the_same(bench: Bench) -> None:
    began = time.monotonic()
    end = bench.sh("kill -STOP $PPID; exec sleep 600", limit_s=1)
    assert end.stopped == "timed_out"
    assert time.monotonic() - began < 1 + 5
    assert bench.said("echo alive") == "alive\n"


@pytest.mark.python_in_the_box
def test_a_job_that_keeps_stopping_its_supervisor_is_ended_all_the_same(bench: Bench) -> None:
    began = time.monotonic()
    end = bench.sh("while kill -STOP $PPID; do :; done", limit_s=1)
    assert end.stopped == "timed_out"
    assert time.monotonic() - began < 1 + 9
    assert bench.said("echo alive") == "alive\n"


@pytest.mark.python_in_the_box
def test_a_job_that_kills_its_supervisor_is_ended_all_the_same(bench: Bench) -> None:
    began = time.monotonic()
    script = "import os, time; os.kill(os.getppid(), 9); time.sleep(600)"
    job = JobSpec(Command((bench.python, "-c", script, "mark-of-the-unsupervised")), JobLimits(60, 60, 0.3))
    end = bench.do(bench.open().run(job, bench.rows.extend, lambda _: None))
    assert time.monotonic() - began < 10
    assert end.exit_code is None
    assert "supervisor" in end.reason
    assert left_over(bench, "mark-of-the-unsupervised") == 0


@pytest.mark.python_in_the_box
def test_a_session_that_raised_is_not_used_again(bench: Bench) -> None:
    def raise_it(_rows: object) -> None:
        raise RuntimeError("a bug of ours")

    bench.sync(Tree({"test_a.py": b"def test_a():\n    pass\n"}))
    session = bench.open()
    job = JobSpec(PytestCommand(bench.python), JobLimits(30, 30, 0.5))
    with pytest.raises(RuntimeError):
        bench.do(session.run(job, raise_it, lambda _: None))
    assert bench.open() is not session
    assert bench.said("echo alive") == "alive\n"


def test_a_word_is_remembered_by_the_box(bench: Bench) -> None:
    bench.do(bench.open().save_state({"setup": "key"}))
    bench.do(bench.box.disconnect())
    assert bench.open().saved_state == {"setup": "key"}


@pytest.mark.python_in_the_box
def test_two_sessions_never_share_a_box(bench: Bench) -> None:
    """The second watcher's agent ends the first one, whose host is dead or has lost it."""
    first = bench.open()
    other = Bench(bench.provider, bench.python)
    try:
        other.open()
        deadline = time.monotonic() + 10
        while not first.channel.is_lost and time.monotonic() < deadline:
            bench.do(asyncio.sleep(0.05))
        assert first.channel.is_lost
        assert other.said("echo alive") == "alive\n"
    finally:
        other.close()


@pytest.mark.python_in_the_box
@pytest.mark.thorough
def test_a_job_cannot_open_the_files_or_the_memory_of_the_agent(bench: Bench, kind: str) -> None:
    if kind == "local" and os.geteuid() == 0:
        pytest.skip("NOT ISOLATED: root without a sandbox may look into every process")
    script = """
import os
agent = open("/proc/{}/stat".format(os.getppid())).read().split()[3]
for file in ("fd/1", "mem", "environ"):
    try:
        open("/proc/{}/{}".format(agent, file), "rb").read(1)
        print("open:", file)
    except PermissionError:
        print("closed:", file)
"""
    end = bench.sh(f"exec {bench.python} - <<'END'\n{script}\nEND")
    assert end.output.splitlines() == ["closed: fd/1", "closed: mem", "closed: environ"]
