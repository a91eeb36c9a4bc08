"""All that a run has said, as one harmless text for a pager: each failure whole, with its output. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from watchtest.core.model import Result
from watchtest.core.state import LaneState
from watchtest.core.text import clean
from watchtest.views import words
from watchtest.views.dashboard.failure_list import choices
from watchtest.views.dashboard.navigation import NOTHING_CHOSEN, Look

RULE = "─" * 79
LIMIT = 2_000_000
"""Characters; the rest is in the history. Escaped for the socket, each may take six bytes."""


def page(lane: LaneState, look: Look) -> str:
    """Of the failure that was chosen; without, of all of them, and what the runner itself has said."""
    results = choices(lane, look)
    if look.chosen != NOTHING_CHOSEN and results:
        parts: Iterator[str] = _told(results[min(look.chosen, len(results) - 1)])
    else:
        parts = _all(lane, results)
    return _bounded(parts)


def _all(lane: LaneState, results: tuple[Result, ...]) -> Iterator[str]:
    run = f" · run {lane.last.run.id}" if lane.last else ""
    yield f"{words.verdict(lane.knowledge)}{run}\n"
    if lane.problem is not None:
        yield f"\n{RULE}\nno test can be run\n{RULE}\n{lane.problem.message}\n{lane.problem.hint}\n"
    for result in results:
        yield from _told(result)
    if lane.last and lane.last.raw_output:
        yield f"\n{RULE}\nwhat the runner has said\n{RULE}\n{lane.last.raw_output}\n"
    elif not results and lane.problem is None:
        yield "\nNothing is red, and the runner has said nothing that would have to be read.\n"


def _told(result: Result) -> Iterator[str]:
    failure = result.failure
    yield f"\n{RULE}\n{words.failed(result)}\n{RULE}\n"
    if failure is None:
        return
    yield f"{failure.text or failure.message}\n"
    if failure.output:
        yield f"\noutput of the test:\n{failure.output}\n"


def _bounded(parts: Iterator[str]) -> str:
    said, left = [], LIMIT
    for part in parts:
        said.append(part[:left])
        left -= len(said[-1])
        if left <= 0:
            said.append("\n… and more, which the history has\n")
            break
    return clean("".join(said))
