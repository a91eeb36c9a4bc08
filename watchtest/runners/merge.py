"""Merges the executions of several runners into one.

Each execution stays in `parts` and is judged by itself: a failure that one runner reports must not explain the exit
code of another.
"""

from __future__ import annotations

from collections.abc import Sequence

from watchtest.core.model import Execution, Result
from watchtest.core.verdict import ORDINARY_CODES, PYTEST_NO_TESTS


def merge(executions: Sequence[Execution]) -> Execution:
    """Return all executions as one, in their order. Raises ValueError if there is none."""
    if not executions:
        raise ValueError("no runner has run, so there is nothing to merge")
    if len(executions) == 1:
        return executions[0]
    return Execution(
        exit_code=_exit_code([execution.exit_code for execution in executions]),
        promised=frozenset().union(*(execution.promised for execution in executions)),
        results=_results(executions),
        collection_errors=tuple(error for execution in executions for error in execution.collection_errors),
        stopped=next((execution.stopped for execution in executions if execution.stopped is not None), None),
        reason=_joined(executions, "reason", "; "),
        raw_output=_joined(executions, "raw_output", "\n", ":\n"),
        duration_s=sum(execution.duration_s for execution in executions),
        withdrawn=_joined(executions, "withdrawn", "; "),
        has_collected=all(execution.has_collected for execution in executions),
        collects_first=all(execution.collects_first for execution in executions),
        has_finished=all(execution.has_finished for execution in executions),
        current=next((execution.current for execution in executions if execution.current), ""),
        stacks=_joined(executions, "stacks", "\n", ":\n"),
        runner=" + ".join(execution.runner for execution in executions if execution.runner),
        by_chance=tuple(test for execution in executions for test in execution.by_chance),
        has_lost_box=any(execution.has_lost_box for execution in executions),
        parts=tuple(executions),
    )


def _results(executions: Sequence[Execution]) -> dict[str, Result]:
    results: dict[str, Result] = {}
    for execution in executions:
        for test, result in execution.results.items():
            # Two runners may report the same test: green does not hide red.
            if test not in results or not results[test].outcome.is_red:
                results[test] = result
    return results


def _exit_code(codes: Sequence[int | None]) -> int | None:
    unusual = [code for code in codes if code not in ORDINARY_CODES]
    if unusual:
        return unusual[0]
    if 1 in codes:
        return 1
    return PYTEST_NO_TESTS if set(codes) == {PYTEST_NO_TESTS} else 0


def _joined(executions: Sequence[Execution], field: str, between: str, after_name: str = ": ") -> str:
    """Return the texts in this field, each after the name of its runner."""
    texts = [(execution.runner, getattr(execution, field)) for execution in executions]
    return between.join(f"{runner}{after_name}{text}" if runner else text for runner, text in texts if text)
