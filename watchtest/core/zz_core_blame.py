"""Which test a process that ended badly ended in, as a result of that test. Pure."""

from __future__ import annotations

import re

from watchtest.core.model import Execution, Failure, Outcome, Place, Result, Stop

CRASHED = "crashed"
EXITED = "exited"
TIMED_OUT = "timed out"
OUTPUT_LIMIT = 8_000


def blamed(execution: Execution) -> tuple[Result, ...]:
    """The tests in which the processes crashed, left or hung: one a runner at most, none where nobody can say."""
    if execution.parts:
        return tuple(result for part in execution.parts for result in blamed(part))
    kind = _kind(execution)
    if not kind:
        return ()
    failure = Failure(
        kind=kind,
        message=why(execution),
        where=_where(execution.current, execution.stacks) or _where(execution.current, execution.raw_output),
        text=execution.stacks,
        output=execution.raw_output[-OUTPUT_LIMIT:],
    )
    return (Result(execution.current, Outcome.ERROR, 0.0, failure),)


def why(execution: Execution) -> str:
    """Why it ended, in one line that names the test it ended in."""
    code = execution.exit_code
    reason = execution.reason or (
        "timed out" if execution.stopped else f"exit code {code}" if code is not None else "the process is gone"
    )
    return reason if execution.current in reason else f"{reason}, in {execution.current}"


def _kind(execution: Execution) -> str:
    if not execution.current:
        return ""
    if execution.stopped is Stop.TIMED_OUT:
        return TIMED_OUT
    if execution.stopped is not None or execution.has_finished:
        return ""
    return CRASHED if execution.exit_code is None else EXITED


def _where(test: str, stacks: str) -> Place | None:
    """The deepest frame in the test's own file; stacks of a process that is hurt begin with the deepest."""
    file = test.partition("::")[0]
    found = re.search(rf'File "(?:[^"]*/)?{re.escape(file)}", line ([0-9]{{1,9}})', stacks)
    return Place(file, int(found[1])) if found and int(found[1]) else None
