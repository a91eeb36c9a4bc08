"""Runs one test repeatedly on a frozen copy of the code, in a box of its own, to find out whether it is flaky.

Every repeat is recorded in the history as a run, so that its result counts as evidence like any other.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import AsyncGenerator
from dataclasses import dataclass, replace

from watchtest.boxes.protocols import BoxProvider, StopSignal
from watchtest.config import Project
from watchtest.core.events import EVERYTHING, Event, Halted, Judged, SnapshotTaken, StartRun, TestsCollected, TestsEnded
from watchtest.core.model import Entry, Lane, Only, Result, Run, RunState, Snapshot, Trigger
from watchtest.core.verdict import judge
from watchtest.errors import BoxError, WatchtestError
from watchtest.history.store.columns import AttemptKind
from watchtest.history.store.store import Store
from watchtest.pipeline import Pipeline, SourceTree
from watchtest.wiring import build_pipeline

REASON = "a probe was requested"


@dataclass(frozen=True, slots=True)
class Repeat:
    """One of the runs of a probe."""

    run: str
    tree: str
    state: RunState
    results: tuple[Result, ...]
    """Several if the probe is of a file."""

    @property
    def is_red(self) -> bool:
        return any(result.outcome.is_red for result in self.results)


class FrozenSource:
    """A source that stays as it was in the first run, whatever is saved meanwhile."""

    def __init__(self, source: SourceTree) -> None:
        self._source = source
        self._snapshot: Snapshot | None = None
        self._read: dict[tuple[str, str], bytes | None] = {}

    def freeze(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        return self._snapshot if self._snapshot is not None else self._source.snapshot(hint)

    def read(self, path: str, expect: Entry) -> bytes:
        """Return the content of a file. What is read twice (to create the box) is kept, as the file may change."""
        key = (path, expect.digest)
        kept = self._read.get(key)
        if kept is not None:
            return kept
        content = self._source.read(path, expect)
        self._read[key] = content if key in self._read else None
        return content


async def probe(
    project: Project, source: SourceTree, provider: BoxProvider, test: str, times: int, store: Store | None
) -> AsyncGenerator[Repeat, None]:
    """Run the test on the tree as it is now, and yield each run as it ends. The caller holds the lock of the gate."""
    frozen = FrozenSource(source)
    # The commit lane, because manual changes belong to the box of the save lane.
    pipeline = build_pipeline(project, Lane.COMMIT, provider, frozen)
    pipeline.listen(lambda _event: None)
    session, workspace = secrets.token_hex(3), str(project.workspace)
    if store is not None:
        store.end_dead_runs(workspace, time.time(), is_gate=True)
    try:
        for number in range(1, times + 1):
            selection = Only((test,), because=f"a probe, {number} of {times}")
            run = Run(f"{session}-probe.{number}", Lane.SAVE, Trigger.MANUAL, selection, is_forced=True)
            if store is not None:
                store.begin(run, time.time(), workspace, REASON)
                store.start(run, time.time())
            yield await _execute(pipeline, run, frozen, store)
    finally:
        await pipeline.box.close()


async def _execute(pipeline: Pipeline, run: Run, frozen: FrozenSource, store: Store | None) -> Repeat:
    """Execute one run of a probe, and record it as it happens."""
    tree = ""

    def record(event: Event) -> None:
        nonlocal tree
        match event:
            case SnapshotTaken():
                tree = event.snapshot.id
                frozen.freeze(event.snapshot)
                if store is not None:
                    store.set_snapshot(run.id, event.snapshot, event.environment, event.at)
            case TestsCollected() if store is not None and event.tests:
                store.runner_started(run.id, event.at)
            case TestsEnded() if store is not None:
                kind = AttemptKind.CHECK if event.is_check else AttemptKind.WORD
                store.add_results(run.id, event.results, event.at, kind)
            case _:
                pass

    start = StartRun(replace(run, lane=Lane.COMMIT), frozenset({EVERYTHING}))
    end, reason, raw_output = RunState.CANCELLED, "the probe was stopped", ""
    try:
        ending = await pipeline.execute(start, record, StopSignal())
        if not isinstance(ending, Judged):
            reason = f"it was {ending.stop.value}" if isinstance(ending, Halted) else "there was nothing to run"
            raise BoxError(f"the probe has no result: {reason}")
        judgement = judge(ending.execution)
        end, reason, raw_output = judgement.state, judgement.reason, ending.execution.raw_output
        frozen.freeze(ending.snapshot)
    except WatchtestError as error:
        end, reason = RunState.BROKEN, str(error)
        raise
    finally:
        if store is not None:
            store.end(run.id, end, reason, time.time(), raw_output)
    return Repeat(run.id, tree, end, tuple(ending.execution.results.values()))
