"""What happens, in the log: the lines of the plain view, so that a watcher without a screen leaves a story behind."""

from __future__ import annotations

import logging

from watchtest.core.events import Event, TestsEnded
from watchtest.core.state import LaneState, State, Working
from watchtest.views.lines.plain_lines import lines, started

log = logging.getLogger(__name__)


def log_event(before: State, after: State, event: Event | None) -> None:
    """A view of the loop. Single tests are left to the history: a red suite would push everything else out."""
    if event is None or isinstance(event, TestsEnded):
        return
    was, now = before.lanes[event.lane], after.lanes[event.lane]
    for line in lines(was, now, event):
        _say(line, now, getattr(event, "run", "") or _run(was) or _run(now))
    for lane in after.ranked:
        for line in started(before.lanes[lane.lane], lane):
            _say(line, lane, _run(lane))


def _say(line: str, lane: LaneState, run: str) -> None:
    log.info("%s", line, extra={"lane": lane.lane.value, "run": run})


def _run(lane: LaneState) -> str:
    return lane.activity.run.id if isinstance(lane.activity, Working) else ""
