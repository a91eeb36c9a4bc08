"""In which order the test files of a run are executed: files that are likely to be red first, then quick ones.

Tests keep their order within a file: a test may rely on the ones before it, and fixtures of a module would otherwise be
set up twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from watchtest.core.model import Result
from watchtest.core.verdict import file_of

UNKNOWN = "*"
"""Used in place of a file: unknown files run here, in the order in which they were found."""


def file_order(latest_results: Mapping[str, Result], changed: Collection[str]) -> tuple[str, ...]:
    """Return files with a red test, then changed ones, then `UNKNOWN`, then the others, the shortest first.

    `changed` lists the paths that differ from the tree of the last verdict. Without results the order is empty, and the
    runner uses its own.
    """
    if not latest_results:
        return ()
    durations: dict[str, float] = {}
    red = set()
    for test, result in latest_results.items():
        file = file_of(test)
        durations[file] = durations.get(file, 0.0) + result.duration_s
        if result.outcome.is_red:
            red.add(file)

    def rank(file: str) -> tuple[bool, float, str]:
        return file not in changed, durations[file], file

    first = sorted(red, key=rank)
    then = sorted((file for file in durations.keys() - red if file in changed), key=rank)
    last = sorted((file for file in durations.keys() - red if file not in changed), key=rank)
    return (*first, *then, UNKNOWN, *last)
