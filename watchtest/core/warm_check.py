"""When red of a warm run is not believed before a cold one has said the same. Pure.

A warm run is a fork of a process that holds modules already. What fails in it may fail because of that, and that would
be our fault, not the user's. Green needs no such care: what could make it wrong is looked for before the tests run.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from watchtest.core.model import Execution, Failure, Result, RunState
from watchtest.core.verdict import blamed_tests, judge

GREEN = (RunState.PASSED, RunState.NO_TESTS)
MOST = 50
"""So many confirmed tests speak for the others."""
SURE_KINDS = frozenset({"AssertionError", "Failed"})


def doubtful_tests(execution: Execution, known: Mapping[str, Result], is_trusted: bool) -> tuple[str, ...] | None:
    """The red tests to be run again in a fresh process; None: all of the run has to be.

    What was judged red in the same way before is not new. `is_trusted`: this process was confirmed before, so a plain
    failed assertion of the project's own code is believed.
    """
    state = judge(execution).state
    if state is RunState.FAILED:
        red = [result for result in execution.results.values() if result.outcome.is_red]
        new = [result.test for result in red if not _is_old(result, known) and not (is_trusted and _is_plain(result))]
        return tuple(new[:MOST])
    if state is RunState.ERROR:
        broken = (*execution.collection_errors, *blamed_tests(execution))
        return () if broken and all(_is_old(result, known) for result in broken) else None
    return ()


def with_confirmed(warm: Execution, cold: Execution) -> Execution | None:
    """The warm run with what a cold one of its doubtful tests said, if that is red of every one of them.

    None: they disagree, or the cold one did not come to its end; all of the run has to be repeated then.
    """
    if judge(cold).state is not RunState.FAILED or not all(result.outcome.is_red for result in cold.results.values()):
        return None
    results = {**warm.results, **cold.results}
    return replace(warm, results=results, duration_s=warm.duration_s + cold.duration_s)


def red_only_when_warm(warm: Execution, cold: Execution) -> tuple[str, ...]:
    """The tests that were red in the warm run and are not in the cold one."""
    red = [*warm.results.values(), *warm.collection_errors, *blamed_tests(warm)]
    still = {result.test for result in (*cold.collection_errors, *blamed_tests(cold))}
    still |= {test for test, result in cold.results.items() if result.outcome.is_red}
    is_red = [result.test for result in red if result.outcome.is_red and result.test not in still]
    return tuple(dict.fromkeys(is_red))


def confirms(cold: Execution, warm: Execution) -> bool:
    """Whether a cold run of the same tests is as red as the warm one: in each of its red tests, and as a whole."""
    return judge(cold).state not in GREEN and not red_only_when_warm(warm, cold)


def passes_again(again: Execution, only_warm: Collection[str]) -> bool:
    """Whether what failed in a warm run passes in this one; no tests: it was the run as a whole."""
    green = {test for test, result in again.results.items() if not result.outcome.is_red}
    return green.issuperset(only_warm) if only_warm else judge(again).state in GREEN


def _is_old(result: Result, known: Mapping[str, Result]) -> bool:
    before = known.get(result.test)
    return before is not None and _words(before.failure) == _words(result.failure)


def _words(failure: Failure | None) -> tuple[str, str] | None:
    return None if failure is None else (failure.kind, failure.message)


def _is_plain(result: Result) -> bool:
    """An assertion of the project itself: nothing of what is preloaded had a hand in raising it."""
    failure = result.failure
    return failure is not None and failure.kind in SURE_KINDS and failure.crash is not None
