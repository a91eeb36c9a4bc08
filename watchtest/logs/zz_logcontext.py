"""What a log record is about, known to whoever logs from inside a task without being told: the lane and the run."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(slots=True)
class _Scope:
    """What begins in a run may outlive it, such as the task that listens to the box: then its run is another's."""

    lane: str
    run: str
    is_over: bool = False


_scope: ContextVar[_Scope | None] = ContextVar("watchtest_log_scope", default=None)


def task_about(work: Coroutine[Any, Any, None], lane: str, run: str, *, name: str) -> asyncio.Task[None]:
    """A task; all that it logs, also by tasks and threads it begins, carries these words, the run's until its end."""
    scope = _Scope(lane, run)
    before = _scope.set(scope)
    try:
        task = asyncio.create_task(work, name=name)
    finally:
        _scope.reset(before)

    def end(_task: asyncio.Task[None]) -> None:
        scope.is_over = True

    task.add_done_callback(end)
    return task


def known_context() -> Mapping[str, str]:
    """The words for a record that is made here and now."""
    scope = _scope.get()
    if scope is None:
        return {}
    return {"lane": scope.lane} | ({} if scope.is_over else {"run": scope.run})
