"""The metrics of the watcher for Prometheus, computed on request. Their labels are closed sets."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, get_args

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from watchtest.control.api.response_models import Activity
from watchtest.control.feed import Feed
from watchtest.control.metric_counts import Histogram, MetricCounts
from watchtest.core.model import Outcome, RunState, Verdict
from watchtest.core.state import Broken, LaneState, State, Working
from watchtest.views.status.status_document import activity


class Metrics(Collector):
    def __init__(self, state: Callable[[], State], counts: MetricCounts, feed: Feed, version: str) -> None:
        self._state = state
        self._counts = counts
        self._feed = feed
        self._version = version
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def render(self, accept: str) -> tuple[bytes, str]:
        """Return the text and its media type: OpenMetrics for clients that accept it."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._counters()
        yield from _gauges(self._state().ranked)
        build = GaugeMetricFamily("watchtest_build_info", "The version of watchtest.", labels=("version", "python"))
        build.add_metric((self._version, platform.python_version()), 1)
        yield build
        clients, disconnects = len(self._feed.clients), self._feed.disconnects
        yield GaugeMetricFamily("watchtest_event_clients", "Clients of the event stream.", value=clients)
        yield CounterMetricFamily(
            "watchtest_event_clients_cut_off", "Clients that were disconnected as too slow.", value=disconnects
        )

    def _counters(self) -> Iterator[Metric]:
        counts = self._counts
        runs = CounterMetricFamily("watchtest_runs", "Runs that ended, by final state.", labels=("lane", "state"))
        tests = CounterMetricFamily("watchtest_tests", "Tests of ended runs.", labels=("lane", "outcome"))
        losses = CounterMetricFamily("watchtest_box_losses", "Boxes that were lost.", labels=("lane",))
        for lane in self._state().lanes:
            for state in RunState:
                if state.is_final:
                    runs.add_metric((lane, state), counts.runs[lane, state])
            for outcome in Outcome:
                tests.add_metric((lane, outcome), counts.tests[lane, outcome])
            losses.add_metric((lane,), counts.losses[lane])
        yield from (runs, tests, losses)
        yield _histogram(
            "watchtest_run_duration_seconds",
            "Time from the start of a run to its end.",
            ("lane",),
            {(lane,): histogram for lane, histogram in counts.durations.items()},
        )
        yield _histogram(
            "watchtest_run_phase_duration_seconds",
            "Phases of a run: sync (until the box has the tree), select (including setup and services), test.",
            ("lane", "phase"),
            counts.phases,
        )


def _gauges(lanes: Iterable[LaneState]) -> Iterator[Metric]:
    activities = _gauge("watchtest_activity", "What a lane does: 1 for its activity, 0 for others.", "activity")
    verdicts = _gauge("watchtest_verdict", "What is known of the code: 1 for the verdict, 0 for others.", "verdict")
    known = _gauge("watchtest_known_tests", "Known tests by their last outcome.", "outcome")
    pending = _gauge("watchtest_pending_changes", "Changes that have no verdict yet.")
    queue = _gauge("watchtest_queue_length", "Requested runs that are waiting.")
    running = _gauge("watchtest_run_under_way", "Whether a run is in progress.")
    paused = _gauge("watchtest_paused", "Whether the lane is paused.")
    box = _gauge("watchtest_box_up", "Whether the box exists and has no problem.")
    restarts = _gauge("watchtest_box_restarts", "How often the engine has restarted the box.")
    services = _gauge("watchtest_service_ready", "Whether a service of the box is ready.", "service")
    for lane in lanes:
        name = lane.lane.value
        working = lane.activity if isinstance(lane.activity, Working) else None
        counts = dict.fromkeys(Outcome, 0)
        for test in lane.knowledge.tests.values():
            counts[test.result.outcome] += 1
        current = activity(lane)
        for each in get_args(Activity):
            activities.add_metric((name, each), float(each == current))
        for verdict in Verdict:
            verdicts.add_metric((name, verdict), float(verdict is lane.knowledge.verdict))
        for outcome, count in counts.items():
            known.add_metric((name, outcome), count)
        pending.add_metric((name,), len(lane.pending.paths | (working.changes.paths if working else frozenset())))
        queue.add_metric((name,), len(lane.queue.waiting))
        running.add_metric((name,), float(working is not None))
        paused.add_metric((name,), float(lane.is_paused))
        box.add_metric((name,), float(_is_box_up(lane, working)))
        restarts.add_metric((name,), lane.box.info.restarts if lane.box.info else 0)
        for service in lane.box.services:
            services.add_metric((name, service.name), float(service.state == "ready"))
    yield from (activities, verdicts, known, pending, queue, running, paused, box, restarts, services)


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=("lane", *labels))


def _histogram(
    name: str, text: str, labels: tuple[str, ...], histograms: Mapping[tuple[Any, ...], Histogram]
) -> Metric:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in histograms.items():
        family.add_metric(values, histogram.cumulative, sum_value=histogram.sum_s)
    return family


def _is_box_up(lane: LaneState, working: Working | None) -> bool:
    is_broken = isinstance(lane.activity, Broken) or (working is not None and working.problem is not None)
    return lane.box.info is not None and not is_broken
