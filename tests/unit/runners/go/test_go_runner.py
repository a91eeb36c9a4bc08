"""Reads recorded output of Go 1.19 and 1.27, and malformed rows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import TESTS

from watchtest.core.model import Execution, Failure, RunState
from watchtest.core.verdict import judge
from watchtest.runners.go.go_events import GoReader
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.runner import InvocationEnd

RECORDED = TESTS / "support" / "recorded"
VERSIONS = ["1_19", "1_27"]
ROOT = "/workspace"


def reports() -> GoReader:
    return GoRunner().reader(GoRunner().invocations(None)[0], ROOT)


def replayed(name: str, *, without: str = "") -> Execution:
    """Replay recorded output as a box passes it on: objects are rows, everything else is output."""
    gathering = reports()
    output = ""
    for line in (RECORDED / name).read_text(encoding="utf-8").splitlines(keepends=True):
        if without and without in line:
            continue
        if line.startswith("{"):
            gathering.take([json.loads(line)])
        else:
            output += line
    return gathering.execution(InvocationEnd(2, output=output))


def failure(execution: Execution, test: str) -> Failure:
    found = execution.results[test].failure
    assert found is not None
    return found


@pytest.mark.parametrize("version", VERSIONS)
def test_every_test_of_every_package_has_its_outcome(version: str) -> None:
    execution = replayed(f"go_{version}.txt")
    assert {test: result.outcome.value for test, result in execution.results.items()} == {
        ".::TestTotal": "failed",
        ".::TestSub": "failed",
        ".::TestSub/a_b": "passed",
        ".::TestSub/c/d": "failed",
        ".::TestSub/skip": "skipped",
        ".::TestPar": "failed",
        ".::FuzzX": "failed",
        ".::FuzzX/seed#0": "failed",
        ".::ExampleTotal": "failed",
        "crash::TestX": "error",
        "gor::TestX": "failed",
        "internal/kv::TestGet": "failed",
        "internal/kv::TestGet/nil": "failed",
    }
    assert execution.promised == execution.results.keys()


@pytest.mark.parametrize("version", VERSIONS)
def test_failures_have_the_lines_of_what_the_tests_logged(version: str) -> None:
    execution = replayed(f"go_{version}.txt")
    found = failure(execution, ".::TestTotal")
    assert (found.where, found.message) == (found.crash, "Total(1, 2) = 3, want 4\nsecond line")
    assert found.where is not None
    assert (found.where.file, found.where.line) == ("price_test.go", 10)
    below = failure(execution, ".::TestSub/c/d")
    assert below.where is not None
    assert (below.where.line, below.message) == (16, "boom")  # although the output before it had no line break
    assert failure(execution, ".::ExampleTotal").message == "got:\n2\nwant:\n3"


@pytest.mark.parametrize("version", VERSIONS)
def test_panics_belong_to_the_test_that_panicked(version: str) -> None:
    execution = replayed(f"go_{version}.txt")
    for test, line in (("internal/kv::TestGet/nil", 5), ("gor::TestX", 8)):
        found = failure(execution, test)
        assert found.kind == "panic"
        assert found.where is not None
        assert found.where.line == line
    assert failure(execution, "gor::TestX").message == "in goroutine"
    assert not execution.has_collected
    assert not execution.has_finished


@pytest.mark.parametrize("version", VERSIONS)
def test_packages_that_cannot_run_are_errors_of_their_own(version: str) -> None:
    execution = replayed(f"go_{version}.txt")
    errors = {error.test: error.failure for error in execution.collection_errors}
    assert set(errors) == {"broken", "setup"}
    broken, setup = errors["broken"], errors["setup"]
    assert broken is not None
    assert broken.where is not None
    assert (broken.where.file, broken.where.line, broken.column) == ("broken/b_test.go", 5, 28)
    assert "not used" in broken.text
    assert setup is not None
    assert (setup.kind, setup.message) == ("package failed", "db down")
    assert judge(execution).state is RunState.ERROR


def test_a_package_without_an_end_is_never_green() -> None:
    gathering = reports()
    rows = [
        {"Module": "example.com/shop", "Dir": ROOT},
        {"Action": "run", "Package": "example.com/shop", "Test": "TestA"},
        {"Action": "pass", "Package": "example.com/shop", "Test": "TestA", "Elapsed": 0.1},
    ]
    gathering.take(rows)
    cut = gathering.execution(InvocationEnd(0))
    assert judge(cut).state is RunState.ERROR
    gathering.take([{"Action": "pass", "Package": "example.com/shop"}])
    assert judge(gathering.execution(InvocationEnd(0))).state is RunState.PASSED


def test_exit_code_and_reports_must_agree() -> None:
    gathering = reports()
    gathering.take([{"Action": "run", "Package": "m", "Test": "TestA"}])
    gathering.take([{"Action": "pass", "Package": "m", "Test": "TestA"}, {"Action": "pass", "Package": "m"}])
    judgement = judge(gathering.execution(InvocationEnd(1)))
    assert judgement.state is RunState.ERROR
    assert judge(reports().execution(InvocationEnd(0))).state is RunState.NO_TESTS
    broken = reports().execution(InvocationEnd(1, output="go: errors parsing go.mod:\n"))
    assert judge(broken).state is RunState.ERROR
    assert "errors parsing go.mod" in broken.reason


def test_a_run_that_the_box_ended_names_the_test_that_ran() -> None:
    gathering = reports()
    gathering.take([{"Action": "run", "Package": "m", "Test": "TestA"}])
    ended = gathering.execution(InvocationEnd(None, stopped="timed_out", reason="silent for 120 s"))
    assert ended.current == "m::TestA"
    assert judge(ended).state is RunState.TIMED_OUT


def test_selections_are_anchored_and_quoted() -> None:
    def words(*tests: str) -> tuple[str, ...]:
        [invocation] = GoRunner(folder="api").invocations(tests)
        return invocation.argv[5:]

    assert words("api/kv::TestA/b_(c)/d") == (r"-run=^TestA$/^b_\(c\)$/^d$", "./kv")
    assert words("api::TestA", "api/kv::TestB/x") == ("-run=^(TestA|TestB)$", ".", "./kv")
    assert words("api/kv", "api::TestA") == (".", "./kv")


@pytest.mark.parametrize(
    ("test", "is_ours"),
    [
        ("api/kv::TestGet/sub", True),
        ("api::ExampleTotal", True),
        ("api/kv", True),
        ("api::Testify", False),
        ("web/kv::TestGet", False),
        ("apis::TestGet", False),
        ("api/tests/test_a.py::test_b", False),
        ("api/test_a.py", False),
        ("api/shop/lib", True),  # this is also the id of a crate; cargo is asked first
        ("api/shop/lib::tests::adds", False),
    ],
)
def test_only_ids_of_its_module_are_claimed(test: str, is_ours: bool) -> None:
    assert GoRunner(folder="api").claims(test) is is_ours


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
words = st.sampled_from(
    ["run", "pass", "fail", "skip", "output", "build-output", "build-fail", "m", "m/a", "TestA", "\x1b"]
)
rows = st.dictionaries(
    st.sampled_from(["Action", "Package", "Test", "Output", "Elapsed", "ImportPath", "FailedBuild", "Module", "Dir"]),
    words | anything,
    max_size=6,
)


@given(st.lists(rows, max_size=12))
def test_whatever_is_said_nothing_breaks_and_nothing_is_green_unpromised(given_rows: list[dict[str, object]]) -> None:
    gathering = reports()
    for row in given_rows:
        gathering.take([row])
    execution = gathering.execution(InvocationEnd(0))
    assert execution.results.keys() <= execution.promised
    assert all(result.failure is not None for result in execution.results.values() if result.outcome.is_red)
