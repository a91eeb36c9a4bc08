"""What several runners said of one workspace, as one execution. Pure.

Each stays in `parts` and is judged by itself: the failure that one runner reports must not explain the exit code of
another.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from watchtest.core.model import Execution, Result
from watchtest.core.verdict import PYTEST_NO_TESTS

AGREED = (0, 1, PYTEST_NO_TESTS)


def merge(executions: Sequence[Execution]) -> Execution:
    """All of them in one, in their order; one alone is itself. Raises ValueError for none."""
    if not executions:
        raise ValueError("there is nothing to merge: no runner has run")
    if len(executions) == 1:
        return executions[0]
    results: dict[str, Result] = {}
    for execution in executions:
        for test, result in execution.results.items():
            # Two runners may know the same test: green does not cover red.
            if test not in results or not results[test].outcome.is_red:
                results[test] = result
    return Execution(
        exit_code=_exit_code([execution.exit_code for execution in executions]),
        promised=frozenset().union(*(execution.promised for execution in executions)),
        results=results,
        collection_errors=tuple(error for execution in executions for error in execution.collection_errors),
        stopped=next((execution.stopped for execution in executions if execution.stopped is not None), None),
        reason=_joined(((each.runner, each.reason) for each in executions), "; "),
        raw_output=_joined(((each.runner, each.raw_output) for each in executions), "\n", ":\n"),
        duration_s=sum(execution.duration_s for execution in executions),
        withdrawn=_joined(((each.runner, each.withdrawn) for each in executions), "; "),
        has_collected=all(execution.has_collected for execution in executions),
        collects_first=all(execution.collects_first for execution in executions),
        has_finished=all(execution.has_finished for execution in executions),
        current=next((execution.current for execution in executions if execution.current), ""),
        stacks=_joined(((each.runner, each.stacks) for each in executions), "\n", ":\n"),
        runner=" + ".join(execution.runner for execution in executions if execution.runner),
        by_chance=tuple(test for execution in executions for test in execution.by_chance),
        parts=tuple(executions),
    )


def _exit_code(codes: Sequence[int | None]) -> int | None:
    strange = [code for code in codes if code not in AGREED]
    if strange:
        return strange[0]
    if 1 in codes:
        return 1
    return PYTEST_NO_TESTS if set(codes) == {PYTEST_NO_TESTS} else 0


def _joined(said: Iterable[tuple[str, str]], between: str, after_name: str = ": ") -> str:
    return between.join(f"{runner}{after_name}{text}" if runner else text for runner, text in said if text)
