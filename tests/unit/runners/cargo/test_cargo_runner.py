"""Reads recorded output of cargo 1.95, older panics, documentation tests, and malformed rows."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import TESTS

from watchtest.core.model import Execution, Failure, RunState
from watchtest.core.verdict import judge
from watchtest.runners.cargo import cargo_events as rusttext
from watchtest.runners.cargo.cargo_runner import CargoRunner
from watchtest.runners.runner import InvocationEnd, ReportReader

RECORDED = TESTS / "support" / "recorded" / "cargo_1_95.txt"
ROOT = "/workspace"
LIB = {
    "reason": "compiler-artifact",
    "package_id": "path+file:///workspace#shop@0.1.0",
    "target": {"kind": ["lib"], "name": "shop", "src_path": "/workspace/src/lib.rs"},
    "executable": "/workspace/target/debug/deps/shop-1",
}
BUILT = {"reason": "build-finished", "success": True}


def reports(invocation: int = 0) -> ReportReader:
    runner = CargoRunner()
    return runner.reader(runner.invocations(None)[invocation], ROOT)


def report_of(*rows: dict[str, object], code: int = 0) -> Execution:
    gathering = reports()
    for row in rows:
        gathering.take([row])
    return gathering.execution(InvocationEnd(code))


def failure(execution: Execution, test: str) -> Failure:
    found = execution.results[test].failure
    assert found is not None
    return found


def test_every_test_of_every_binary_has_its_outcome() -> None:
    rows = [json.loads(line) for line in RECORDED.read_text().splitlines() if line.startswith("{")]
    execution = report_of(*rows, code=101)
    assert {test: result.outcome.value for test, result in execution.results.items()} == {
        "shop-cart/lib::tests::adds": "passed",
        "shop-cart/lib::tests::fails": "failed",
        "shop-cart/lib::tests::ignored": "skipped",
        "shop-cart/lib::tests::result": "failed",
        "shop-cart/lib::tests::should": "failed",
        "shop-cart/lib::tests::thread": "failed",
        "shop-cart/bin/shop-cart::in_main": "passed",
        "shop-cart/test/it::integration": "failed",
        "sub/lib::aborts": "error",
        "sub/lib::in_sub": "error",
    }
    where = failure(execution, "shop-cart/lib::tests::fails").where
    assert where is not None
    assert (where.file, where.line) == ("src/lib.rs", 20)
    assert failure(execution, "shop-cart/lib::tests::thread").message == "in a thread"
    assert failure(execution, "shop-cart/lib::tests::result").message == 'Error: "bad"'
    assert judge(execution).state is RunState.ERROR
    assert "sub/lib ended early (SIGABRT) while aborts, in_sub ran" in judge(execution).reason
    assert not execution.has_collected


def test_a_suite_that_ends_before_its_count_is_never_green() -> None:
    begin = {"watchtest": "begin", "binary": "shop-1"}
    suite = {"type": "suite", "event": "started", "test_count": 2}
    one = [{"type": "test", "event": "started", "name": "a"}, {"type": "test", "event": "ok", "name": "a"}]
    end = {"type": "suite", "event": "ok"}
    short = report_of(LIB, BUILT, begin, suite, *one, end, {"watchtest": "end", "code": 0})
    assert judge(short).state is RunState.ERROR
    cut = report_of(LIB, BUILT, begin, suite, *one)
    assert judge(cut).state is RunState.ERROR
    whole = report_of(LIB, BUILT, begin, {**suite, "test_count": 1}, *one, end, {"watchtest": "end", "code": 0})
    assert judge(whole).state is RunState.PASSED
    assert set(whole.results) == {"shop/lib::a"}


@pytest.mark.parametrize(("code", "state"), [(0, RunState.PASSED), (3, RunState.FAILED)])
def test_a_harness_of_its_own_is_one_test(code: int, state: RunState) -> None:
    execution = report_of(
        LIB,
        BUILT,
        {"watchtest": "begin", "binary": "shop-1"},
        {"watchtest": "end", "code": code},
        code=101 if code else 0,
    )
    assert set(execution.results) == {"shop/lib::main"}
    assert judge(execution).state is state


def test_exit_code_and_reports_must_agree() -> None:
    assert judge(report_of(LIB, BUILT, code=101)).state is RunState.ERROR
    assert judge(report_of(LIB, BUILT)).state is RunState.NO_TESTS
    assert judge(report_of()).state is RunState.ERROR  # cargo never reported that it was built


@pytest.mark.parametrize(
    "package_id",
    ["path+file:///workspace#shop@0.1.0", "path+file:///workspace/shop#0.1.0", "shop 0.1.0 (path+file:///workspace)"],
)
def test_the_crate_is_known_by_ids_old_and_new(package_id: str) -> None:
    begin = {"watchtest": "begin", "binary": "shop-1"}
    execution = report_of({**LIB, "package_id": package_id}, BUILT, begin, {"watchtest": "end", "code": 0})
    assert set(execution.results) == {"shop/lib::main"}


@pytest.mark.parametrize(
    ("said", "message", "line"),
    [
        ("thread 'a' panicked at 'boom, really', src/lib.rs:4:9\nnote: run with", "boom, really", 4),
        ("thread 'a' panicked at src/lib.rs:4:9:\nboom\nmore\nnote: run with", "boom\nmore", 4),
        ("thread 'a' (71) panicked at src/lib.rs:4:9:\nboom\nstack backtrace:\n   0: x", "boom", 4),
        (
            "thread 'b' panicked at src/lib.rs:7:1:\ncaught\nthread 'a' panicked at src/lib.rs:4:9:\nboom\n",
            "boom",
            4,
        ),
        (
            "thread 'a' panicked at /rustc/abc/library/core/src/option.rs:9:9:\nboom\nstack backtrace:\n"
            "   3: x\n             at /rustc/abc/core.rs:9:9\n   4: y\n             at ./src/lib.rs:12:5\n",
            "boom",
            12,
        ),
    ],
)
def test_panics_of_every_age_have_their_place(said: str, message: str, line: int) -> None:
    found = rusttext.failure("a", said, "", ROOT, "", "src/lib.rs")
    assert found.message == message
    assert found.where is not None
    assert (found.where.file, found.where.line) == ("src/lib.rs", line)


DOC = """   Doc-tests shop

running 2 tests
test src/lib.rs - total (line 5) ... ok
test src/lib.rs - total (line 9) - compile fail ... FAILED

failures:

---- src/lib.rs - total (line 9) - compile fail stdout ----
Test compiled successfully, but it's marked `compile_fail`.

failures:
    src/lib.rs - total (line 9) - compile fail

test result: FAILED. 1 passed; 1 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.19s

   Doc-tests tax

running 1 test
test tax/src/lib.rs - with_tax (line 1) ... ignored
test result: ok.
error: doctest failed, to rerun pass `-p shop --doc`
"""


def test_documentation_tests_are_read_from_their_text() -> None:
    execution = reports(1).execution(InvocationEnd(101, output=DOC))
    assert {test: result.outcome.value for test, result in execution.results.items()} == {
        "shop/doc::src/lib.rs - total (line 5)": "passed",
        "shop/doc::src/lib.rs - total (line 9) - compile fail": "failed",
        "tax/doc::tax/src/lib.rs - with_tax (line 1)": "skipped",
    }
    found = failure(execution, "shop/doc::src/lib.rs - total (line 9) - compile fail")
    assert found.message == "Test compiled successfully, but it's marked `compile_fail`."
    assert found.where is not None
    assert (found.where.file, found.where.line) == ("src/lib.rs", 9)
    assert judge(execution).state is RunState.FAILED


def test_documentation_tests_whose_text_was_cut_are_never_green() -> None:
    cut = DOC.replace("test src/lib.rs - total (line 5) ... ok\n", "").replace("FAILED", "ok")
    execution = reports(1).execution(InvocationEnd(0, output=cut))
    assert judge(execution).state is RunState.ERROR
    assert "1 documentation test was not reported" in judge(execution).reason


def test_a_workspace_without_a_library_has_no_documentation_tests() -> None:
    execution = reports(1).execution(InvocationEnd(101, output="error: no library targets found in package `shop`\n"))
    assert judge(execution).state is RunState.NO_TESTS


def test_arguments_go_to_cargo_and_behind_the_dashes_to_the_tests() -> None:
    runner = CargoRunner(args=("--release", "--", "--test-threads=1"))
    tests, docs = runner.invocations(None)
    at = tests.argv.index("--")
    assert "--release" in tests.argv[:at]
    assert "--test-threads=1" in tests.argv[at:]
    assert docs.argv[-2:] == ("--", "--test-threads=1")


def test_selections_name_crates_and_exact_tests() -> None:
    [invocation] = CargoRunner(folder="core").invocations(("core/shop/lib::tests::b", "core/tax/test/it::a"))
    at = invocation.argv.index("--")
    assert invocation.argv[2:6] == ("--package", "shop", "--package", "tax")
    assert invocation.argv[at:][-3:] == ("--exact", "a", "tests::b")
    [whole] = CargoRunner().invocations(("shop/lib",))
    assert "--exact" not in whole.argv


@pytest.mark.parametrize(
    ("test", "is_ours"),
    [
        ("shop/lib::tests::a", True),
        ("shop/test/it::a", True),
        ("shop/doc::src/lib.rs - total (line 5)", True),
        ("shop/lib", True),
        ("internal/kv::TestGet", False),
        ("tests/test_a.py::test_b", False),
        ("src/a.test.ts::b", False),
        ("lint::run", False),
    ],
)
def test_only_ids_of_crates_are_claimed(test: str, is_ours: bool) -> None:
    assert CargoRunner().claims(test) is is_ours


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=5,
)
words = st.sampled_from(
    ["suite", "test", "started", "ok", "failed", "a", "b", "begin", "end", "compiler-message", "error"]
)
rows = st.dictionaries(
    st.sampled_from(
        ["reason", "type", "event", "name", "watchtest", "binary", "code", "message", "target", "executable", "success"]
    ),
    words | anything | st.just({"level": "error", "spans": [{"is_primary": True, "text": [3]}]}),
    max_size=6,
)


@given(st.lists(rows, max_size=12))
def test_whatever_is_said_nothing_breaks_and_nothing_is_green_unpromised(given_rows: list[dict[str, object]]) -> None:
    execution = report_of(*given_rows)
    assert execution.results.keys() <= execution.promised
    assert all(result.failure is not None for result in execution.results.values() if result.outcome.is_red)
