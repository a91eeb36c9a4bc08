"""The metrics of the watcher for Prometheus: counted from the first event on, and rendered on request.

Their labels are closed sets. prometheus_client is imported on request only: most watchers are never asked for metrics.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

from watchtest.control.feed import Feed
from watchtest.core.model import Lane, Outcome, RunState, Verdict
from watchtest.core.state import FinishedRun, LaneState, State, Working
from watchtest.core.transitions import BoxDisappeared, Fact, RunFinished, TestsSelected, TreeTaken
from watchtest.views.mood import Colour, mood
from watchtest.views.status.status_document import Activity, activity

if TYPE_CHECKING:
    from prometheus_client import Metric

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


class Gauge(NamedTuple):
    """The current state of each lane in numbers: by the values of a second label, or only one if there is no label."""

    name: str
    text: str
    label: str
    numbers: Callable[[LaneState], Mapping[str, float]]


# fmt: off
GAUGES = (
    Gauge("watchtest_activity", "What a lane does: 1 for its activity, 0 for others.", "activity",
          lambda lane: {each: each == activity(lane) for each in get_args(Activity)}),
    Gauge("watchtest_verdict", "What is known of the code: 1 for the verdict, 0 for others.", "verdict",
          lambda lane: {each: each is lane.knowledge.verdict for each in Verdict}),
    Gauge("watchtest_colour", "How the verdict is shown: green only if it is about the code as it is now.", "colour",
          lambda lane: {each: each is mood(lane).colour for each in Colour}),
    Gauge("watchtest_known_tests", "Known tests by their last outcome.", "outcome",
          lambda lane: {**dict.fromkeys(Outcome, 0),
                        **Counter(test.result.outcome for test in lane.knowledge.tests.values())}),
    Gauge("watchtest_pending_changes", "Changes that have no verdict yet.", "",
          lambda lane: {"": len(lane.pending.paths.union(
              lane.activity.changes.paths if isinstance(lane.activity, Working) else ()))}),
    Gauge("watchtest_queue_length", "Requested runs that are waiting.", "",
          lambda lane: {"": len(lane.queue.waiting)}),
    Gauge("watchtest_run_under_way", "Whether a run is in progress.", "",
          lambda lane: {"": isinstance(lane.activity, Working)}),
    Gauge("watchtest_paused", "Whether the lane is paused.", "",
          lambda lane: {"": lane.is_paused}),
    Gauge("watchtest_box_up", "Whether the box exists and has no problem.", "",
          lambda lane: {"": lane.box.info is not None and activity(lane) != "degraded"}),
    Gauge("watchtest_box_restarts", "How often the engine has restarted the box.", "",
          lambda lane: {"": lane.box.info.restarts if lane.box.info else 0}),
    Gauge("watchtest_service_ready", "Whether a service of the box is ready.", "service",
          lambda lane: {service.name: service.state == "ready" for service in lane.box.services}),
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Metrics:
    state: Callable[[], State]
    counts: MetricCounts
    feed: Feed
    version: str

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its media type: OpenMetrics for clients that accept it."""
        from prometheus_client import CollectorRegistry, ProcessCollector
        from prometheus_client.exposition import choose_encoder

        collectors = CollectorRegistry()
        collectors.register(self)
        ProcessCollector(registry=collectors)
        encode, media_type = choose_encoder(accept)
        return encode(collectors), media_type

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

        state, counts = self.state(), self.counts
        runs = CounterMetricFamily("watchtest_runs", "Runs that ended, by final state.", labels=("lane", "state"))
        tests = CounterMetricFamily("watchtest_tests", "Tests of ended runs.", labels=("lane", "outcome"))
        losses = CounterMetricFamily("watchtest_box_losses", "Boxes that were lost.", labels=("lane",))
        for lane in state.lanes:
            for final in filter(lambda each: each.is_final, RunState):
                runs.add_metric((lane, final), counts.runs[lane, final])
            for outcome in Outcome:
                tests.add_metric((lane, outcome), counts.tests[lane, outcome])
            losses.add_metric((lane,), counts.losses[lane])
        text = "Time from the start of a run to its end."
        durations = HistogramMetricFamily("watchtest_run_duration_seconds", text, labels=("lane",))
        for lane, histogram in counts.durations.items():
            durations.add_metric((lane,), histogram.cumulative, sum_value=histogram.sum_s)
        text = "Phases of a run: sync (until the box has the tree), select (including setup and services), test."
        phases = HistogramMetricFamily("watchtest_run_phase_duration_seconds", text, labels=("lane", "phase"))
        for labels, histogram in counts.phases.items():
            phases.add_metric(labels, histogram.cumulative, sum_value=histogram.sum_s)
        yield from (runs, tests, losses, durations, phases)
        for gauge in GAUGES:
            label = (gauge.label,) if gauge.label else ()
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=("lane", *label))
            for each in state.ranked:
                for value, number in gauge.numbers(each).items():
                    family.add_metric((each.lane, value)[: 1 + len(label)], number)
            yield family
        build = GaugeMetricFamily("watchtest_build_info", "The version of watchtest.", labels=("version", "python"))
        build.add_metric((self.version, platform.python_version()), 1)
        yield build
        clients = len(self.feed.clients)
        yield GaugeMetricFamily("watchtest_event_clients", "Clients of the event stream.", value=clients)
        text = "Clients that were disconnected as too slow."
        yield CounterMetricFamily("watchtest_event_clients_cut_off", text, value=self.feed.disconnects)
