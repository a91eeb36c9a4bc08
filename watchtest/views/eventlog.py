"""What happens, in the log: the lines of the plain view, so that a watcher without a screen leaves a story behind."""

from __future__ import annotations

import logging

from watchtest.core.events import Event, TestsEnded
from watchtest.core.model import Lane
from watchtest.core.state import State, Working
from watchtest.views.plain import told

log = logging.getLogger(__name__)


def log_event(before: State, after: State, event: Event | None) -> None:
    """A view of the loop. Single tests are left to the history: a red suite would push everything else out."""
    if event is None or isinstance(event, TestsEnded):
        return
    for lane, line in told(before, after, event):
        log.info("%s", line, extra={"lane": lane.value, **_run(before, after, lane)})


def _run(before: State, after: State, lane: Lane) -> dict[str, str]:
    for state in (after, before):
        activity = state.lanes[lane].activity
        if isinstance(activity, Working):
            return {"run": activity.run.id}
    return {}
