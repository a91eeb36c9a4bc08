"""Reads recorded reports of Vitest 3 and Jest 29, and malformed reports."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import TESTS

from watchtest.core.model import Execution, RunState
from watchtest.core.verdict import judge
from watchtest.runners.javascript.javascript_runner import JestRunner, VitestRunner, selected
from watchtest.runners.javascript.jest_report import SEPARATOR, frames
from watchtest.runners.runner import REPORT, InvocationEnd

RECORDED = TESTS / "support" / "recorded"
ROOT = "/workspace"
JEST = JestRunner()


def read(
    report: bytes | None, *, code: int | None = 1, output: str = "", tests: tuple[str, ...] | None = None
) -> Execution:
    reports = JEST.reader(JEST.invocations(tests)[0], ROOT)
    return reports.execution(InvocationEnd(code, output=output, report=report))


def recorded(name: str, **given_: object) -> Execution:
    return read((RECORDED / name).read_bytes(), **given_)  # type: ignore[arg-type]


def place_of(execution: Execution, test: str) -> tuple[str, int, int | None]:
    results = {**execution.results, **{error.test: error for error in execution.collection_errors}}
    found = results[test].failure
    assert found is not None
    assert found.where is not None
    return found.where.file, found.where.line, found.column


@pytest.mark.parametrize(
    ("name", "file", "line"), [("vitest_3.json", "src/sum.test.ts", 10), ("jest_29.json", "sum.test.js", 9)]
)
def test_tests_have_their_outcomes_and_places(name: str, file: str, line: int) -> None:
    execution = recorded(name)
    outcomes = {test: result.outcome.value for test, result in execution.results.items() if test.startswith(file)}
    assert outcomes[f"{file}::sum > adds"] == "passed"
    assert outcomes[f"{file}::sum > is wrong"] == "failed"
    assert outcomes[f"{file}::sum > skipped"] == outcomes[f"{file}::sum > todo"] == "skipped"
    assert outcomes[f"{file}::twin"] == "failed"  # one of two with that name: red takes precedence
    assert place_of(execution, f"{file}::sum > is wrong") == (file, line, 23)
    deep = execution.results[f"{file}::throws deep"].failure
    assert deep is not None
    assert deep.crash is not None
    assert (deep.kind, deep.message, deep.crash.line) == ("TypeError", "boom <x>", 2)


def test_files_that_could_not_be_run_are_errors() -> None:
    vitest = recorded("vitest_3.json", output=" FAIL  src/hook.test.ts > h\nError: hook\n\N{BULLET}\n")
    assert {error.test.rpartition("/")[2] for error in vitest.collection_errors} == {
        "broken.test.ts",
        "empty.test.ts",
        "hook.test.ts",
        "syntax.test.ts",
        "top.test.ts",
    }
    assert place_of(vitest, "src/syntax.test.ts") == ("src/syntax.test.ts", 3, 8)
    assert "src/hook.test.ts::h > in hook" not in vitest.promised  # skipped because of an error, not on request
    jest = recorded("jest_29.json")
    assert place_of(jest, "broken.test.js") == ("broken.test.js", 1, 15)
    assert place_of(jest, "syntax.test.js") == ("syntax.test.js", 2, 9)
    assert judge(vitest).state is judge(jest).state is RunState.ERROR


def test_a_test_that_took_too_long_says_so() -> None:
    output = " FAIL  src/sum.test.ts > slow\nError: Test timed out in 100ms.\n"
    found = recorded("vitest_3.json", output=output).results["src/sum.test.ts::slow"].failure
    assert found is not None
    assert (found.kind, found.message) == ("timed out", "Test timed out in 100ms.")


def test_what_a_filter_left_out_is_not_skipped() -> None:
    asked = ("sum.test.js::sum > adds",)
    execution = recorded("jest_29.json", tests=asked)
    assert "sum.test.js::sum > adds" in execution.results
    assert "sum.test.js::sum > skipped" not in execution.promised


def test_without_a_report_nothing_is_believed() -> None:
    assert judge(read(None, code=0)).state is RunState.ERROR
    assert judge(read(b"{", code=0)).state is RunState.ERROR
    assert judge(read(b'{"testResults": []}', code=0)).state is RunState.NO_TESTS
    assert judge(read(b'{"testResults": []}', code=1)).state is RunState.ERROR


def test_an_error_outside_of_any_test_is_an_error() -> None:
    test = {"title": "a", "ancestorTitles": [], "status": "passed"}
    report = json.dumps(
        {"testResults": [{"name": "/workspace/a.test.js", "status": "passed", "assertionResults": [test]}]}
    )
    execution = read(report.encode(), output="Unhandled Errors\nError: later\n")
    assert judge(execution).state is RunState.ERROR
    assert "outside of any test" in judge(execution).reason
    assert judge(read(report.encode(), code=0)).state is RunState.PASSED


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("    at boom (/workspace/src/sum.ts:2:39)", ("src/sum.ts", 2, 39)),
        ("    at /workspace/src/a b/sum.test.ts:17:29", ("src/a b/sum.test.ts", 17, 29)),
        ("    at async Object.<anonymous> (file:///workspace/sum.mjs:1:2)", ("sum.mjs", 1, 2)),
        ("      at Object.require (broken.test.js:1:15)", ("web/broken.test.js", 1, 15)),
        (
            " \N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT} src/hook.test.ts:3:25",
            ("web/src/hook.test.ts", 3, 25),
        ),
        ("    at processTicksAndRejections (node:internal/process/task_queues:95:5)", None),
        ("    at run (/workspace/node_modules/jest-circus/build/run.js:71:3)", None),
        ("    at run (/elsewhere/run.js:71:3)", None),
        ("    at new Promise (<anonymous>)", None),
    ],
)
def test_frames_of_the_workspace_are_found(line: str, place: tuple[str, int, int] | None) -> None:
    found = [(at.file, at.line, column) for at, column in frames(f"Error: x\n{line}\n", ROOT, "web")]
    assert found == ([place] if place else [])


def test_a_folder_with_odd_letters_is_still_the_workspace() -> None:
    stack = "Error: x\n    at f (file:///work%20space%20%28x%29/a.mjs:1:2)\n    at /work space (x)/b.ts:3:4\n"
    assert [at.file for at, _ in frames(stack, "/work space (x)", "")] == ["a.mjs", "b.ts"]


@given(st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=3))
def test_the_expression_for_a_test_matches_its_full_name(titles: list[str]) -> None:
    name = SEPARATOR.join(titles)
    _, expression = selected([f"a.test.js::{name}"])
    assert re.search(expression, " ".join(titles))


def test_selections_of_both_tools_name_files_from_their_folder() -> None:
    tests = ("web/src/a.test.ts::x > y", "web/src/b.test.ts::z")
    [vitest] = VitestRunner(folder="web").invocations(tests)
    assert vitest.argv[-3:] == (r"--testNamePattern=^(x(\s|\s>\s)y|z)$", "src/a.test.ts", "src/b.test.ts")
    [jest] = JestRunner(folder="web").invocations(tests)
    assert jest.argv[-3:] == ("--runTestsByPath", "src/a.test.ts", "src/b.test.ts")
    [whole] = JestRunner(folder="web").invocations(("web/src/a.test.ts",))
    assert not any(word.startswith("--testNamePattern") for word in whole.argv)
    assert any(REPORT in word for word in whole.argv)
    assert VitestRunner(folder="web").claims(tests[0])
    assert not VitestRunner(folder="web").claims("app/src/a.test.ts::x")
    assert not VitestRunner().claims("tests/test_a.py::test_b")


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["testResults", "name", "status", "assertionResults", "title", "location", "line", "message"]
            ),
            inner | st.sampled_from(["failed", "passed", "/workspace/a.js"]),
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(anything)
def test_whatever_is_written_nothing_breaks(report: object) -> None:
    execution = read(json.dumps({"testResults": report}).encode(), code=0)
    assert execution.results.keys() <= execution.promised
