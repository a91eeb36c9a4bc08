"""Which failures of a warm run must be confirmed by a cold run. Pure.

A warm run is a fork of a process that has loaded modules already, so a test may fail in it because of watchtest and not
because of the code. Passed tests need no confirmation: the agent checks the preloaded state before the tests run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from watchtest.core.model import Execution, Failure, Result, RunState
from watchtest.core.verdict import blamed_tests, judge

GREEN = (RunState.PASSED, RunState.NO_TESTS)
CONFIRM_LIMIT = 50
"""Confirming this many tests is enough."""
SURE_KINDS = frozenset({"AssertionError", "Failed"})


def doubtful_tests(execution: Execution, judged: Mapping[str, Result], is_trusted: bool) -> tuple[str, ...] | None:
    """Return the red tests to repeat in a fresh process; None if the whole run must be repeated.

    A test that was judged red in the same way before needs no confirmation. `is_trusted` means that an earlier warm run
    in this environment was confirmed, so a plain failed assertion in the project's own code is accepted.
    """
    state = judge(execution).state
    if state is RunState.FAILED:
        red = [result for result in execution.results.values() if result.outcome.is_red]
        new = [result.test for result in red if not _is_old(result, judged) and not (is_trusted and _is_plain(result))]
        return tuple(new[:CONFIRM_LIMIT])
    if state is RunState.ERROR:
        broken = (*execution.collection_errors, *blamed_tests(execution))
        return () if broken and all(_is_old(result, judged) for result in broken) else None
    return ()


def with_confirmed(warm: Execution, cold: Execution) -> Execution | None:
    """Return the warm run with the results of a cold run of its doubtful tests, if the cold run confirms all of them.

    None means that they disagree or that the cold run did not finish, so that the whole run must be repeated.
    """
    if judge(cold).state is not RunState.FAILED or not all(result.outcome.is_red for result in cold.results.values()):
        return None
    results = {**warm.results, **cold.results}
    return replace(warm, results=results, duration_s=warm.duration_s + cold.duration_s)


def red_tests(execution: Execution) -> tuple[str, ...]:
    """Return the tests that failed, the files that could not be collected, and the tests in which a process ended."""
    results = (*execution.results.values(), *execution.collection_errors, *blamed_tests(execution))
    return tuple(dict.fromkeys(result.test for result in results if result.outcome.is_red))


def red_only_when_warm(warm: Execution, cold: Execution) -> tuple[str, ...]:
    """Return the tests that were red in the warm run and are not red in the cold one."""
    still = {result.test for result in (*cold.collection_errors, *blamed_tests(cold))}
    still |= {test for test, result in cold.results.items() if result.outcome.is_red}
    return tuple(test for test in red_tests(warm) if test not in still)


def confirms(cold: Execution, warm: Execution) -> bool:
    """Return whether a cold run of the same tests is as red as the warm one: in each red test, and as a whole."""
    return judge(cold).state not in GREEN and not red_only_when_warm(warm, cold)


def passes_again(again: Execution, only_warm: Collection[str]) -> bool:
    """Return whether the tests that failed only when warm pass in this run; without tests, whether the run passes."""
    green = {test for test, result in again.results.items() if not result.outcome.is_red}
    return green.issuperset(only_warm) if only_warm else judge(again).state in GREEN


def _is_old(result: Result, judged: Mapping[str, Result]) -> bool:
    before = judged.get(result.test)
    return before is not None and _words(before.failure) == _words(result.failure)


def _words(failure: Failure | None) -> tuple[str, str] | None:
    return None if failure is None else (failure.kind, failure.message)


def _is_plain(result: Result) -> bool:
    """Return whether the project's own code failed an assertion, which no preloaded module can have caused."""
    failure = result.failure
    return failure is not None and failure.kind in SURE_KINDS and failure.crash is not None
