"""What the metrics count, from the first event on. Standard library only: most watchers are never asked for them."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from watchtest.core.model import Lane, Outcome, RunState
from watchtest.core.state import FinishedRun
from watchtest.core.transitions import BoxDisappeared, Fact, RunFinished, TestsSelected, TreeTaken

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

    def follow(self, facts: Iterable[Fact], at: float) -> None:
        for fact in facts:
            match fact:
                case TreeTaken(run=run, after_s=after_s):
                    self._taken_at[run.lane] = at
                    self.phases[run.lane, "sync"].observe(after_s)
                case TestsSelected(run=run):
                    self.phases[run.lane, "select"].observe(at - self._taken_at.get(run.lane, at))
                case RunFinished(finished=finished, tests_since=tests_since):
                    self._count(finished, tests_since)
                case BoxDisappeared(lane=lane):
                    self.losses[lane] += 1
                case _:
                    pass

    def _count(self, finished: FinishedRun, tests_since: float | None) -> None:
        lane = finished.run.lane
        self.runs[lane, finished.state] += 1
        self.durations[lane].observe(finished.ended_at - finished.started_at)
        if tests_since is not None:
            self.phases[lane, "test"].observe(finished.ended_at - tests_since)
        for result in finished.results.values():
            self.tests[lane, result.outcome] += 1

    def cumulative(self, durations: Durations) -> Mapping[str, int]:
        """By the upper bound of each bucket, as Prometheus counts: all that are not above it."""
        total, found = 0, dict[str, int]()
        for bound, count in zip((*BUCKETS, float("inf")), durations.counts, strict=True):
            total += count
            found["+Inf" if bound == float("inf") else str(bound)] = total
        return found
