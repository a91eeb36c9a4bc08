"""Judges what a runner reported, and derives what is known about the code. Pure.

The exit code and the reports must agree. A test that was promised and never reported has not passed. A known failure
stays red until that very test has passed or no longer exists. If a process crashed, the test that was running is
blamed; the tests after it become neither red nor green.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from watchtest.core.model import (
    All,
    Execution,
    Failure,
    Location,
    Only,
    Outcome,
    Result,
    Run,
    RunState,
    Selection,
    Snapshot,
    StopReason,
    Verdict,
)
from watchtest.core.state import Knowledge, KnownTest
from watchtest.core.text import EXCERPT_LIMIT, NAME_LIMIT, count

CRASHED = "crashed"
EXITED = "exited"
TIMED_OUT = "timed out"


def blamed_tests(execution: Execution) -> tuple[Result, ...]:
    """Return an error result for each test in which a process crashed, exited or hung: at most one per runner."""
    if execution.parts:
        return tuple(result for part in execution.parts for result in blamed_tests(part))
    kind = _kind(execution)
    if not kind:
        return ()
    failure = Failure(
        kind=kind,
        message=ending_reason(execution),
        where=_where(execution.current, execution.stacks) or _where(execution.current, execution.raw_output),
        text=execution.stacks,
        output=execution.raw_output[-EXCERPT_LIMIT:],
    )
    return (Result(execution.current, Outcome.ERROR, 0.0, failure),)


def ending_reason(execution: Execution) -> str:
    """Return why the process ended, in one line that names the running test."""
    code = execution.exit_code
    reason = execution.reason or (
        "timed out" if execution.stopped else f"exit code {code}" if code is not None else "the process disappeared"
    )
    return reason if execution.current in reason else f"{reason}, in {execution.current}"


def _kind(execution: Execution) -> str:
    if not execution.current:
        return ""
    if execution.stopped is StopReason.TIMED_OUT:
        return TIMED_OUT
    if execution.stopped is not None or execution.has_finished:
        return ""
    return CRASHED if execution.exit_code is None else EXITED


def _where(test: str, stacks: str) -> Location | None:
    """Return the deepest frame in the test's own file. Stacks of a crashed process begin with the deepest frame."""
    file = file_of(test)
    found = re.search(rf'File "(?:[^"]*/)?{re.escape(file)}", line ([0-9]{{1,9}})', stacks)
    return Location(file, int(found[1])) if found and int(found[1]) else None


PYTEST_NO_TESTS = 5
ORDINARY_CODES = (0, 1, PYTEST_NO_TESTS)
UNREPORTED = "promised by the collection and never reported"
IMPORT_ERRORS = frozenset({"ImportError", "ModuleNotFoundError"})
WORST_FIRST = (
    RunState.TIMED_OUT,
    RunState.ERROR,
    RunState.KILLED,
    RunState.CANCELLED,
    RunState.SUPERSEDED,
    RunState.FAILED,
    RunState.PASSED,
    RunState.NO_TESTS,
)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The end state of a run, with a reason unless it is obvious."""

    state: RunState
    reason: str = ""


def judge(execution: Execution) -> Judgement:
    """Return the end state of a run from everything that its runner reported; with several runners, the worst."""
    if execution.parts:
        return _worst(execution.parts)
    if blamed_tests(execution):
        state = RunState.TIMED_OUT if execution.stopped else RunState.ERROR
        unrun = len(_unreported(execution) - {execution.current})
        return Judgement(state, ending_reason(execution) + (f"; {count(unrun, 'test')} not run" if unrun else ""))
    if execution.is_needless:
        return Judgement(RunState.PASSED, execution.reason)
    if execution.stopped is StopReason.TIMED_OUT:
        during = ", while the tests were collected" if _is_collecting(execution) else ""
        return Judgement(RunState.TIMED_OUT, (execution.reason or "timed out") + during)
    if execution.stopped is not None:
        return Judgement(RunState(execution.stopped.value), execution.reason)
    if what := _what_is_missing(execution):
        return Judgement(RunState.ERROR, what)
    return _judge_exit_code(execution)


def _unreported(execution: Execution) -> frozenset[str]:
    return execution.promised - execution.results.keys()


def _is_collecting(execution: Execution) -> bool:
    return execution.collects_first and not execution.has_collected and not execution.promised


def _has_red(execution: Execution) -> bool:
    return any(result.outcome.is_red for result in execution.results.values())


def _what_is_missing(execution: Execution) -> str:
    """Return why the reports of a runner that was not stopped are incomplete; empty if they are complete."""
    ended = execution.reason or f"exit code {execution.exit_code}"
    unreported = _unreported(execution)
    if execution.collection_errors:
        return _uncollected(execution.collection_errors)
    if _is_collecting(execution):
        return f"the runner ended before it had collected the tests ({ended})"
    if unreported and not (_has_red(execution) and execution.withdrawn):
        return f"{count(len(unreported), 'test')} {UNREPORTED} ({ended})"
    if not execution.has_finished:
        return f"the runner ended before it had finished ({ended})"
    if execution.exit_code is None:
        return execution.reason or "the runner ended without an exit code"
    return ""


def _judge_exit_code(execution: Execution) -> Judgement:
    """Judge complete reports, with which the exit code must agree."""
    code, reason, has_red = execution.exit_code, execution.reason, _has_red(execution)
    if code == PYTEST_NO_TESTS and not execution.results:
        return Judgement(RunState.NO_TESTS, reason or "the runner found no tests")
    if code == 1 and not has_red:
        return Judgement(RunState.ERROR, "the runner exited with 1, but no test was reported as failed")
    if code not in (0, 1):
        return Judgement(RunState.ERROR, reason or f"the runner exited with {code}")
    if has_red:
        return Judgement(RunState.FAILED)
    if not execution.results:
        return Judgement(RunState.NO_TESTS, "the runner exited with 0 and reported no test")
    return Judgement(RunState.PASSED)


def _worst(parts: tuple[Execution, ...]) -> Judgement:
    judged = [(part.runner, judge(part)) for part in parts]
    worst = min((judgement.state for _, judgement in judged), key=WORST_FIRST.index)
    reasons = [
        f"{runner}: {judgement.reason}" if runner else judgement.reason
        for runner, judgement in judged
        if judgement.state is worst and judgement.reason
    ]
    return Judgement(worst, "; ".join(reasons))


def _uncollected(errors: tuple[Result, ...]) -> str:
    """Return a line like `2 files could not be imported: tests/test_a.py: No module named 'x'`."""
    kinds = {error.failure.kind if error.failure else "" for error in errors}
    what = "imported" if kinds <= IMPORT_ERRORS else "collected"
    first = errors[0]
    lines = first.failure.message.strip().splitlines() if first.failure else []
    message = f": {lines[0].strip()[:NAME_LIMIT]}" if lines else ""
    return f"{count(len(errors), 'file')} could not be {what}: {first.test}{message}"


def learn(old: Knowledge, run: Run, snapshot: Snapshot, execution: Execution, at: float) -> Knowledge:
    """Return what is known after this execution, which must not have been halted."""
    judgement = judge(execution)
    tests = _remaining(old.tests, run, snapshot, execution)
    for test, result in {**execution.results, **_implied(execution)}.items():
        tests[test] = _known(old.tests.get(test), result, run, snapshot, at)
    was_complete = old.is_complete and old.snapshot is not None and old.snapshot.entries == snapshot.entries
    # After a crash, the results of the tests behind it are unknown.
    was_complete = was_complete and judgement.state not in (RunState.ERROR, RunState.TIMED_OUT)
    is_complete = was_complete or (covers_everything(run.selection) and _is_whole(execution))
    verdict, reason = _verdict(judgement, tests, snapshot, is_complete)
    base = snapshot if is_complete else old.base
    return Knowledge(verdict, reason, at, run, snapshot, tests, is_complete, base=base)


def _implied(execution: Execution) -> dict[str, Result]:
    """Return results that follow without a report: of collection errors, crashed tests and tests never reported."""
    implied: dict[str, Result] = {}
    for part in execution.parts or (execution,):
        broke = blamed_tests(part)
        # Tests that the runner withdrew or that come after a crash keep their last result: the failure that explains
        # their absence already makes the verdict red.
        is_explained = bool(part.withdrawn or part.collection_errors or broke)
        silent = frozenset[str]() if is_explained else part.promised - execution.results.keys()
        failure = Failure(kind="unreported", message=UNREPORTED)
        implied |= {test: Result(test, Outcome.ERROR, 0.0, failure) for test in silent}
        implied |= {result.test: result for result in (*part.collection_errors, *broke)}
    return implied


def covers_everything(selection: Selection) -> bool:
    """Return whether a run of this selection also gives a verdict on the tests that it left out."""
    return isinstance(selection, All) or selection.is_proof


def _verdict(
    judgement: Judgement, tests: Mapping[str, KnownTest], snapshot: Snapshot, is_complete: bool
) -> tuple[Verdict, str]:
    if judgement.state in (RunState.ERROR, RunState.TIMED_OUT):
        return Verdict.ERROR, judgement.reason
    if any(known.result.outcome.is_red for known in tests.values()):
        return Verdict.FAILED, judgement.reason
    stale = sum(known.snapshot != snapshot.id for known in tests.values())
    if stale:
        return Verdict.UNKNOWN, f"{count(stale, 'test')} not run on this tree yet"
    if not is_complete:
        return Verdict.UNKNOWN, "only some tests were run on this tree"
    if tests:
        return Verdict.PASSED, judgement.reason
    return Verdict.NO_TESTS, judgement.reason


def _remaining(
    known: Mapping[str, KnownTest], run: Run, snapshot: Snapshot, execution: Execution
) -> dict[str, KnownTest]:
    """Return the results of earlier runs that stay valid.

    A test is forgotten only if a complete collection did not find it: after a collection error or an aborted run it is
    unknown whether the test still exists.
    """
    match run.selection:
        case All():
            selected = frozenset(known)
        case Only(tests=tests):
            # The id of a file stands for all tests in it.
            files = {test for test in tests if "::" not in test}
            selected = frozenset(tests) | {test for test in known if file_of(test) in files}
    is_collected = execution.has_collected and not execution.collection_errors
    gone = selected - execution.promised if is_collected else frozenset[str]()
    collected_files = {file_of(test) for test in execution.promised}
    is_proven = _is_whole(execution) and covers_everything(run.selection)
    unrun = _unreported(execution)
    return {
        test: replace(
            what,
            is_new=what.is_new and what.snapshot == snapshot.id,
            snapshot=snapshot.id if is_proven and test not in unrun else what.snapshot,
        )
        for test, what in known.items()
        if test not in gone and not (is_collection_error(what) and test in collected_files)
    }


def _is_whole(execution: Execution) -> bool:
    """Return whether the collection was complete and the runner finished in an orderly way."""
    is_through = execution.has_finished and execution.exit_code in ORDINARY_CODES
    is_collected = execution.has_collected and not execution.collection_errors
    return is_through and is_collected and execution.stopped is None


def file_of(test: str) -> str:
    """Return the file part of a test id."""
    return test.partition("::")[0]


def is_collection_error(known: KnownTest) -> bool:
    """Return whether this is the error of a whole file, not of a test."""
    return known.result.outcome is Outcome.ERROR and "::" not in known.result.test


def _known(before: KnownTest | None, result: Result, run: Run, snapshot: Snapshot, at: float) -> KnownTest:
    if not result.outcome.is_red:
        return KnownTest(result, snapshot.id, run.id)
    was_red = before is not None and before.result.outcome.is_red
    since = before.red_since if before is not None and was_red else at
    # Testing the same code again does not make a failure old.
    is_still_new = before is not None and before.is_new and before.snapshot == snapshot.id
    return KnownTest(result, snapshot.id, run.id, red_since=since, is_new=not was_red or is_still_new)
