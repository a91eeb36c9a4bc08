"""What the metrics count, from the first event on. Standard library only: most watchers are never asked for metrics."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from watchtest.core.model import Lane, Outcome, RunState
from watchtest.core.state import FinishedRun
from watchtest.core.transitions import BoxDisappeared, Fact, RunFinished, TestsSelected, TreeTaken

Phase = Literal["sync", "select", "test"]
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
"""Upper bounds in seconds; one more bucket has everything above."""


@dataclass(slots=True)
class Histogram:
    """Durations, counted in buckets."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(BUCKETS) + 1))
    sum_s: float = 0.0

    def observe(self, seconds: float) -> None:
        seconds = max(seconds, 0.0)  # the clock may have been set back
        self.counts[bisect_left(BUCKETS, seconds)] += 1
        self.sum_s += seconds

    @property
    def cumulative(self) -> list[tuple[str, int]]:
        """The buckets as Prometheus wants them: an upper bound, and the count of all durations up to it."""
        return list(zip([*map(str, BUCKETS), "+Inf"], accumulate(self.counts), strict=True))


class MetricCounts:
    """Counts runs, tests and lost boxes. The labels are closed sets: lanes, states, outcomes and phases."""

    def __init__(self) -> None:
        self.runs: Counter[tuple[Lane, RunState]] = Counter()
        self.tests: Counter[tuple[Lane, Outcome]] = Counter()
        self.losses: Counter[Lane] = Counter()
        self.durations: defaultdict[Lane, Histogram] = defaultdict(Histogram)
        self.phases: defaultdict[tuple[Lane, Phase], Histogram] = defaultdict(Histogram)
        self._synced_at: dict[Lane, float] = {}

    def follow(self, facts: Iterable[Fact], at: float) -> None:
        for fact in facts:
            match fact:
                case TreeTaken(run=run, after_s=after_s):
                    self._synced_at[run.lane] = at
                    self.phases[run.lane, "sync"].observe(after_s)
                case TestsSelected(run=run):
                    self.phases[run.lane, "select"].observe(at - self._synced_at.get(run.lane, at))
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
