"""The base of a selection: the last fully known tree, and the tests with results since then."""

from __future__ import annotations

from support.watcher_states import failed, passed

from watchtest.core.model import All, Entry, EntryKind, Execution, Lane, Result, Run, Snapshot, Trigger, Verdict
from watchtest.core.state import Knowledge
from watchtest.core.verdict import learn

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
RUN = Run("s.1", Lane.SAVE, Trigger.SAVE, All(""))


def tree(name: str) -> Snapshot:
    return Snapshot(name, {"code.py": Entry(EntryKind.FILE, 0o644, 1, name)})


def told(*results: Result, is_whole: bool = True) -> Execution:
    return Execution(
        exit_code=int(any(result.outcome.is_red for result in results)) if is_whole else None,
        promised=frozenset({A, B}),
        results={result.test: result for result in results},
        has_finished=is_whole,
    )


def after(knowledge: Knowledge, name: str, *results: Result, is_whole: bool = True) -> Knowledge:
    return learn(knowledge, RUN, tree(name), told(*results, is_whole=is_whole), 1.0)


def test_a_whole_verdict_is_the_base_and_only_red_is_unsure() -> None:
    knowledge = after(Knowledge(), "t1", failed(A), passed(B))
    assert knowledge.base == tree("t1")
    assert knowledge.must_run == {A}


def test_a_run_that_broke_off_moves_no_base_and_even_its_green_is_unsure() -> None:
    knowledge = after(Knowledge(), "t1", failed(A), passed(B))
    broken = after(knowledge, "t2", passed(A), is_whole=False)
    assert broken.verdict is Verdict.ERROR
    assert broken.base == tree("t1")
    # If the user now undid the change, A would be red again although nothing had changed since the base.
    assert A in broken.must_run


def test_the_next_whole_verdict_is_the_base_again() -> None:
    broken = after(after(Knowledge(), "t1", passed(A), passed(B)), "t2", passed(A), is_whole=False)
    whole = after(broken, "t3", passed(A), passed(B))
    assert whole.base == tree("t3")
    assert not whole.must_run
