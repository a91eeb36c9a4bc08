"""A failure in a warm run counts only if the test also fails in a fresh process. With real runs in a local box."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from support.box_bench import Tree
from support.warm_bench import WarmBench, local_warm_bench

from watchtest.boxes.environment import Environment
from watchtest.boxes.protocols import JobLimits, StopSignal
from watchtest.core.events import Event, StartRun, TestsEnded
from watchtest.core.model import All, Execution, Lane, Result, Run, RunState, Trigger
from watchtest.core.recorded import FileFingerprint
from watchtest.core.verdict import judge
from watchtest.execution import RunContext, TestExecutor, Warm
from watchtest.runners.python import PytestRunner
from watchtest.selection.selector import SelectionInput, Selector

ZYGOTE = "'watchtest_agent.warm.zygote'"
WARM_ONLY = f"import sys\ndef test_a():\n    assert {ZYGOTE} not in sys.modules\ndef test_b(): pass\n"
ALWAYS_RED = "def test_a():\n    assert 1 == 2\ndef test_b(): pass\n"


async def no_prints(_paths: Collection[str]) -> Mapping[str, FileFingerprint]:
    return {}


class Bench:
    """The `TestExecutor` of a lane, on a given tree."""

    def __init__(self, warm_bench: WarmBench, warm: Warm = "auto") -> None:
        self._bench = warm_bench.bench
        self._python = warm_bench.python
        provider = self._bench.provider
        environment = Environment(provider, timeout_s=60, grace_s=1, python=self._python, env={})
        self.runner = PytestRunner()
        limits = JobLimits(5, 60, 0.5)
        self.executor = TestExecutor(environment, limits, warm, lambda _snapshot: (self.runner,), Selector())
        self.notes: list[str] = []
        self.known: dict[str, Result] = {}
        self.events: list[Event] = []

    def run(self, **files: str) -> Execution:
        tree = Tree({f"{name}.py": text.encode() for name, text in files.items()})
        self._bench.sync(tree)
        session = self._bench.open()
        run = Run("s.1", Lane.SAVE, Trigger.SAVE, All(""))
        start = StartRun(run, frozenset(), unjudged_results=self.known)
        context = RunContext(
            session,
            tree.snapshot(),
            session.generation,
            self._python,
            "the environment",
            start,
            frozenset(),
            self.events.append,
            self.notes.append,
            StopSignal(),
            SelectionInput(tree.snapshot(), "the environment", None, frozenset(), frozenset(), no_prints),
        )
        return self._bench.do(self.executor.execute(context))

    def shown(self) -> dict[str, Result]:
        """The last result that was reported for each test during the run."""
        told = [event.results for event in self.events if isinstance(event, TestsEnded)]
        return {result.test: result for results in told for result in results}

    def get_warm(self) -> None:
        """Do green runs until one is warm; the test itself detects that."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            note = f"import sys\ndef test_a():\n    open('warm', 'w').write(str({ZYGOTE} in sys.modules))\n"
            assert judge(self.run(test_a=note)).state is RunState.PASSED
            if self._bench.said("cat warm") == "True":
                return
            time.sleep(0.2)
        pytest.fail("never warm")


@pytest.fixture
def warm_bench(tmp_path: Path) -> Iterator[WarmBench]:
    with local_warm_bench(tmp_path) as bench:
        yield bench


def test_a_failure_only_in_warm_runs_is_our_defect_and_not_reported_as_red(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench)
    bench.get_warm()
    execution = bench.run(test_a=WARM_ONLY)
    assert judge(execution).state is RunState.PASSED
    assert execution.by_chance == ()
    assert {test for test, result in bench.shown().items() if result.outcome.is_red} == set(), "the last result is cold"
    (note,) = bench.notes
    assert note.startswith("a bug in watchtest: test_a.py::test_a failed in a warm run")
    # From then on, runs are cold.
    assert judge(bench.run(test_a=WARM_ONLY)).state is RunState.PASSED
    assert len(bench.notes) == 1


@pytest.mark.thorough
def test_a_collection_that_only_breaks_when_warm_is_our_defect_too(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench)
    bench.get_warm()
    execution = bench.run(test_a=f"import sys\nassert {ZYGOTE} not in sys.modules\ndef test_a(): pass\n")
    assert judge(execution).state is RunState.PASSED
    assert [note for note in bench.notes if note.startswith("a bug in watchtest: test_a.py")]


@pytest.mark.thorough
def test_red_of_a_run_that_had_no_end_was_never_made_sure_of(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench)
    bench.get_warm()
    bench.run(test_a=WARM_ONLY)
    shown = [result for event in bench.events if isinstance(event, TestsEnded) for result in event.results]
    # As if that run had been superseded before it could start again.
    again = Bench(warm_bench)
    again.known = {result.test: result for result in shown if result.outcome.is_red}
    assert again.known
    again.get_warm()
    assert judge(again.run(test_a=WARM_ONLY)).state is RunState.PASSED


ENDS_BADLY = """
import os, sys
def pytest_sessionfinish(session):
    if 'watchtest_agent.warm.zygote' in sys.modules and {when}:
        session.exitstatus = 3
        open('seen', 'w')
"""


@pytest.mark.parametrize(
    ("when", "said"),
    [
        ("True", "a bug in watchtest: the whole run failed in a warm run"),
        ("not os.path.exists('seen')", "flaky: the whole run failed"),
    ],
)
@pytest.mark.thorough
def test_a_run_that_only_breaks_when_warm_is_no_confirmation(warm_bench: WarmBench, when: str, said: str) -> None:
    """None of its tests is red; only the way it ends differs."""
    bench = Bench(warm_bench)
    bench.get_warm()
    execution = bench.run(test_a="def test_a(): pass\n", conftest=ENDS_BADLY.format(when=when))
    assert judge(execution).state is RunState.PASSED
    (note,) = bench.notes
    assert note.startswith(said)


def test_red_that_is_red_in_a_fresh_process_is_red(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench)
    bench.get_warm()
    execution = bench.run(test_a=ALWAYS_RED)
    assert judge(execution).state is RunState.FAILED
    assert {event.is_check for event in bench.events if isinstance(event, TestsEnded)} == {False, True}
    assert bench.notes == []
    bench.get_warm()


@pytest.mark.thorough
def test_a_test_that_fails_only_among_others_stays_red(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench)
    bench.get_warm()
    dependent = (
        "import os\ndef test_a():\n    os.environ['LEFT'] = '1'\ndef test_b():\n    assert 'LEFT' not in os.environ\n"
    )
    execution = bench.run(test_a=dependent)
    assert judge(execution).state is RunState.FAILED
    assert bench.notes == []


@pytest.mark.thorough
def test_a_flaky_test_is_not_taken_for_a_defect_of_ours(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench)
    bench.get_warm()
    once = "import os\ndef test_a():\n    seen = os.path.exists('seen')\n    open('seen', 'w')\n    assert seen\n"
    execution = bench.run(test_a=once)
    assert judge(execution).state is RunState.PASSED
    assert execution.by_chance == ("test_a.py::test_a",)
    (note,) = bench.notes
    assert note.startswith("flaky: test_a.py::test_a")
    bench.get_warm()


@pytest.mark.thorough
def test_a_run_that_hung_when_warm_is_cold_the_next_time(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench)
    bench.get_warm()
    hangs = "import sys, time\ndef test_a():\n    if 'watchtest_agent.warm.zygote' in sys.modules: time.sleep(600)\n"
    assert judge(bench.run(test_a=hangs)).state is RunState.TIMED_OUT
    assert judge(bench.run(test_a=hangs)).state is RunState.PASSED


def test_off_is_really_cold(warm_bench: WarmBench) -> None:
    bench = Bench(warm_bench, "off")
    for _ in range(3):
        assert judge(bench.run(test_a=WARM_ONLY)).state is RunState.PASSED
        time.sleep(0.3)
    assert bench.notes == []
    assert warm_bench.left() == []


@pytest.mark.parametrize(("warm", "said"), [("auto", 1), ("on", 3)])
@pytest.mark.thorough
def test_with_warm_runs_required_every_cold_run_gives_its_reason(warm_bench: WarmBench, warm: Warm, said: int) -> None:
    bench = Bench(warm_bench, warm)
    bench.get_warm()
    shadow = {"difflib": "WHOSE = 1\n", "test_a": "def test_a(): pass\n"}
    bench.notes.clear()
    for _ in range(3):
        bench.run(**shadow)
    assert len([note for note in bench.notes if note.startswith("cold start")]) == said
    assert "difflib" in bench.notes[0]
