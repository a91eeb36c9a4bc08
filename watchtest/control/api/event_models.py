"""The shapes of what the stream of events tells, by kind; `telling` says when each of them is told."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from watchtest.control.api.models import Count, Result, Run, RunId, Shape, Time
from watchtest.core.model import Lane, Trigger, Verdict

Activity = Literal["starting", "idle", "syncing", "running", "paused", "degraded", "stopped"]


class Code(Shape):
    source: Literal["worktree", "index", "head"]
    tree: str | None
    head: str | None
    branch: str | None
    dirty: bool | None
    trigger: Trigger | None


class Pending(Shape):
    changes: Count
    since: Time | None


class Problem(Shape):
    code: str
    message: str
    hint: str | None


class StatusEvent(Shape):
    """A lane as it stands now: it does something else, something else is known, or something waits."""

    lane: Lane
    activity: Activity
    verdict: Verdict
    verdict_at: Time | None
    reason: str | None
    run_id: str | None
    code: Code
    pending: Pending
    problem: Problem | None
    paused: bool
    waits_for: str | None
    waiting_runs: Count


class ResultEvent(Result):
    """A test of the run under way has ended."""

    run: RunId
    lane: Lane


class BoxEvent(Shape):
    """The box of a lane, or a service in it, is in another state."""

    lane: Lane
    box: dict[str, Any] | None = Field(description="As in the status file.")


class ProblemEvent(Shape):
    """Something stands between the user and a verdict, or (null) no longer does."""

    lane: Lane
    problem: Problem | None


class NoteEvent(Shape):
    """A line worth showing."""

    lane: Lane
    text: str


class ReasonEvent(Shape):
    """`reset`: what was missed cannot be told any more, ask for everything anew. `end`: the watcher leaves."""

    reason: str


EVENTS: dict[str, type[BaseModel]] = {
    "status": StatusEvent,
    "run": Run,
    "result": ResultEvent,
    "box": BoxEvent,
    "problem": ProblemEvent,
    "note": NoteEvent,
    "reset": ReasonEvent,
    "end": ReasonEvent,
}
