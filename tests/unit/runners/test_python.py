"""Arbitrary rows from a box neither crash the reader nor make a test pass."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from watchtest.core.model import Outcome, RunState
from watchtest.core.verdict import judge
from watchtest.runners.python import PytestReader
from watchtest.runners.runner import InvocationEnd

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=10,
)
KINDS = st.sampled_from(
    ["collected", "test", "collection_error", "collection_end", "internal_error", "finish", "start", "restart"]
)
ROWS = st.fixed_dictionaries(
    {"k": KINDS | JSON},
    optional=dict.fromkeys(("test", "tests", "outcome", "duration_s", "failure", "text", "withdrawn"), JSON),
)


def execution(reports: PytestReader, exit_code: int | None = 0) -> Any:
    return reports.execution(InvocationEnd(exit_code))


@given(st.lists(ROWS, max_size=8))
def test_no_row_breaks_the_reader(rows: list[dict[str, Any]]) -> None:
    reports = PytestReader()
    reports.take(rows)
    judge(execution(reports))


def test_a_green_that_was_never_promised_is_no_green() -> None:
    reports = PytestReader()
    reports.take([{"k": "test", "test": "a::b", "outcome": "passed"}, {"k": "collection_end"}, {"k": "finish"}])
    assert judge(execution(reports)).state is RunState.NO_TESTS


def test_a_long_collection_is_promised_as_a_whole() -> None:
    reports = PytestReader()
    assert reports.take([{"k": "collected", "tests": ["a::1"]}]) == (frozenset(), ())
    promised, _ = reports.take([{"k": "collected", "tests": ["a::2"]}, {"k": "collection_end"}])
    assert promised == {"a::1", "a::2"}


def test_red_is_not_overwritten_by_a_second_report() -> None:
    reports = PytestReader()
    reports.take([{"k": "collected", "tests": ["a::b"]}, {"k": "test", "test": "a::b", "outcome": "failed"}])
    reports.take([{"k": "test", "test": "a::b", "outcome": "passed"}, {"k": "collection_end"}, {"k": "finish"}])
    assert reports.results["a::b"].outcome is Outcome.FAILED


def test_an_exit_with_0_before_the_end_is_no_green() -> None:
    reports = PytestReader()
    reports.take([{"k": "collected", "tests": ["a::b"]}, {"k": "test", "test": "a::b", "outcome": "passed"}])
    assert judge(execution(reports)).state is RunState.ERROR
