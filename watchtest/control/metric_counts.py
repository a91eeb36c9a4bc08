"""What the metrics count, from the first event on. Standard library only: most watchers are never asked for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from watchtest.core.events import BoxLost, Event, RunEnded, Selected, SnapshotTaken
from watchtest.core.model import Lane, Outcome, RunState
from watchtest.core.state import Executing, Finished, State, Working

Phase = Literal["sync", "select", "test"]
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
"""Seconds; the last bucket is everything above."""


@dataclass(slots=True)
class Durations:
    """A histogram, each bucket by itself."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)  # a clock that was set back
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum_s += seconds


class Tally:
    """Counts what ended. Labels are of closed sets: lanes, states, outcomes and phases."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[Lane, RunState]] = Counter()
        self.tests: Counter[tuple[Lane, Outcome]] = Counter()
        self.losses: Counter[Lane] = Counter()
        self.durations: defaultdict[Lane, Durations] = defaultdict(Durations)
        self.phases: defaultdict[tuple[Lane, Phase], Durations] = defaultdict(Durations)
        self._taken_at: dict[Lane, float] = {}

    def follow(self, before: State, after: State, event: Event) -> None:
        lane = event.lane
        working = before.lanes[lane].activity
        match event:
            case SnapshotTaken(run=run, at=at) if isinstance(working, Working) and working.run.id == run:
                self._taken_at[lane] = at
                self.phases[lane, "sync"].observe(at - working.since)
            case Selected(run=run, at=at) if isinstance(working, Working) and working.run.id == run:
                self.phases[lane, "select"].observe(at - self._taken_at.get(lane, at))
            case RunEnded() if isinstance(working, Working):
                last = after.lanes[lane].last
                if last is not None and last is not before.lanes[lane].last:
                    self._ended(lane, working, last)
            case BoxLost():
                self.losses[lane] += 1
            case _:
                pass

    def _ended(self, lane: Lane, working: Working, last: Finished) -> None:
        self.runs[lane, last.state] += 1
        self.durations[lane].observe(last.ended_at - last.started_at)
        if isinstance(working.phase, Executing):
            self.phases[lane, "test"].observe(last.ended_at - working.phase.since)
        for result in last.results.values():
            self.tests[lane, result.outcome] += 1

    def cumulative(self, durations: Durations) -> Mapping[str, int]:
        """By the upper bound of each bucket, as Prometheus counts: all that are not above it."""
        total, found = 0, dict[str, int]()
        for bound, count in zip((*BUCKETS, float("inf")), durations.counts, strict=True):
            total += count
            found["+Inf" if bound == float("inf") else str(bound)] = total
        return found
