"""In which order files of tests run: what is likely to be red first, then what is quick. Pure.

The grain is the file: its tests keep their own order. A test that relies on the ones before it in its file would be red
for ever if it were pulled out of there, and fixtures of a module would be set up twice.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from watchtest.core.model import Result
from watchtest.core.verdict import file_of

UNKNOWN = "*"
"""In place of a file: here go the files that nobody knows yet, in the order in which they were found."""


def file_order(known: Mapping[str, Result], changed: Collection[str]) -> tuple[str, ...]:
    """Files with a red test, then changed ones, then unknown ones (`UNKNOWN`), then the others, the shortest first.

    `known` is the last word on every test, `changed` what differs from the tree of the last verdict. Nothing, where no
    test is known: then the runner's own order is as good as any.
    """
    if not known:
        return ()
    durations: dict[str, float] = {}
    red = set()
    for test, result in known.items():
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
