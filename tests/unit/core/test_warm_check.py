"""Failures of a warm run: which of them are accepted at once, and how a cold run decides about the others."""

from __future__ import annotations

import pytest

from watchtest.core.model import Execution, Failure, Location, Outcome, Result, StopReason
from watchtest.core.warm_check import CONFIRM_LIMIT, doubtful_tests, red_only_when_warm, with_confirmed

HERE = Location("a.py", 1)
PLAIN = Failure("AssertionError", "1 == 2", crash=HERE)
STRANGE = Failure("ImportError", "no such thing")


def red(test: str, failure: Failure = STRANGE) -> Result:
    return Result(test, Outcome.FAILED, 0.1, failure)


def green(test: str) -> Result:
    return Result(test, Outcome.PASSED, 0.1)


def said(*results: Result, exit_code: int | None = None, **more: object) -> Execution:
    code = exit_code if exit_code is not None else int(any(result.outcome.is_red for result in results))
    names = frozenset(result.test for result in results)
    return Execution(code, names, {result.test: result for result in results}, **more)  # type: ignore[arg-type]


def test_green_needs_no_second_opinion() -> None:
    assert doubtful_tests(said(green("a")), {}, is_trusted=False) == ()


def test_new_red_is_doubtful_and_old_red_is_not() -> None:
    known = {"old": red("old"), "other": red("other", PLAIN)}
    warm = said(green("a"), red("old"), red("other"), red("new"))
    assert doubtful_tests(warm, known, is_trusted=False) == ("other", "new")


@pytest.mark.parametrize(("is_trusted", "expected"), [(False, ("plain", "strange")), (True, ("strange",))])
def test_a_plain_assertion_is_believed_once_warmth_was_confirmed(is_trusted: bool, expected: tuple[str, ...]) -> None:
    warm = said(red("plain", PLAIN), red("strange"))
    assert doubtful_tests(warm, {}, is_trusted) == expected


def test_an_assertion_outside_the_project_is_never_plain() -> None:
    elsewhere = Failure("AssertionError", "in a library")
    assert doubtful_tests(said(red("a", elsewhere)), {}, is_trusted=True) == ("a",)


def test_a_few_speak_for_very_many() -> None:
    many = said(*(red(f"test_{number}") for number in range(CONFIRM_LIMIT + 20)))
    assert len(doubtful_tests(many, {}, is_trusted=False) or ()) == CONFIRM_LIMIT


@pytest.mark.parametrize(
    "broken",
    [
        said(green("a"), exit_code=2, collection_errors=(red("a.py"),)),
        said(green("a"), exit_code=3),
        said(green("a"), exit_code=1),
        Execution(None, frozenset({"a"}), {}, current="a", has_finished=False, reason="SIGSEGV"),
    ],
)
def test_a_run_that_broke_is_repeated_as_a_whole(broken: Execution) -> None:
    assert doubtful_tests(broken, {}, is_trusted=True) is None


def test_a_file_that_was_broken_in_the_same_way_before_is_believed() -> None:
    broken = said(green("a"), exit_code=2, collection_errors=(red("a.py"),))
    assert doubtful_tests(broken, {"a.py": red("a.py")}, is_trusted=False) == ()


def test_what_was_stopped_is_not_repeated() -> None:
    assert doubtful_tests(said(green("a"), stopped=StopReason.CANCELLED), {}, is_trusted=False) == ()


def test_red_that_is_red_when_cold_too_is_settled_in_the_words_of_the_cold_run() -> None:
    warm = said(green("a"), red("b"), red("c"))
    cold = said(red("b", PLAIN), red("c"))
    settled = with_confirmed(warm, cold)
    assert settled is not None
    assert settled.results["b"].failure == PLAIN
    assert settled.results["a"].outcome is Outcome.PASSED


@pytest.mark.parametrize(
    "cold",
    [
        said(green("b"), red("c")),
        said(green("b"), green("c")),
        said(red("b"), red("c"), exit_code=2, collection_errors=(red("b.py"),)),
        Execution(None, frozenset({"b"}), {}, current="b", has_finished=False),
    ],
)
def test_a_cold_run_that_disagrees_or_breaks_settles_nothing(cold: Execution) -> None:
    assert with_confirmed(said(green("a"), red("b"), red("c")), cold) is None


def test_what_differs_is_what_was_only_red_when_warm() -> None:
    warm = said(green("a"), red("b"), red("c"), exit_code=2, collection_errors=(red("d.py"), red("e.py")))
    cold = said(green("b"), red("c"), red("a"), exit_code=2, collection_errors=(red("e.py"),))
    assert set(red_only_when_warm(warm, cold)) == {"b", "d.py"}


def test_a_crash_that_only_a_warm_run_has_differs() -> None:
    warm = Execution(None, frozenset({"a"}), {}, current="a", has_finished=False, reason="SIGSEGV")
    assert red_only_when_warm(warm, said(green("a"))) == ("a",)
    assert red_only_when_warm(warm, warm) == ()
