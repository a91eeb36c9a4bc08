"""What the watcher counts and is, for Prometheus. Made when it is asked for; its labels are of closed sets."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, Metric, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from watchtest.control.feed import Feed
from watchtest.control.metric_counts import Durations, Tally
from watchtest.core.model import Outcome, RunState, Verdict
from watchtest.core.state import Broken, LaneState, State, Working

ACTIVITIES = ("starting", "idle", "syncing", "running", "paused", "degraded", "stopped")


class Metrics(Collector):
    """`activity` gives the word of the status file for what a lane does."""

    def __init__(
        self,
        state: Callable[[], State],
        tally: Tally,
        *,
        activity: Callable[[LaneState], str],
        feed: Feed,
        version: str,
    ) -> None:
        self._state = state
        self._tally = tally
        self._activity = activity
        self._feed = feed
        self._version = version
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def exposed(self, accept: str) -> tuple[bytes, str]:
        """The text, and its media type: the newer format for those who ask for it."""
        encode, media_type = choose_encoder(accept)
        return encode(self._registry), media_type

    def describe(self) -> Iterable[Metric]:
        """Nothing beforehand."""
        return ()

    def collect(self) -> Iterator[Metric]:
        yield from self._counted()
        yield from self._standing(self._state().ranked)
        build = GaugeMetricFamily("watchtest_build_info", "Which watchtest this is.", labels=("version", "python"))
        build.add_metric((self._version, platform.python_version()), 1)
        yield build
        listeners, cut_off = len(self._feed.listeners), self._feed.cut_off
        yield GaugeMetricFamily("watchtest_event_clients", "Clients that listen to events.", value=listeners)
        yield CounterMetricFamily("watchtest_event_clients_cut_off", "Those that were too slow.", value=cut_off)

    def _counted(self) -> Iterator[Metric]:
        tally, lanes = self._tally, list(self._state().lanes)
        runs = CounterMetricFamily("watchtest_runs", "Runs that ended, by how they did.", labels=("lane", "state"))
        tests = CounterMetricFamily("watchtest_tests", "Tests of runs that ended.", labels=("lane", "outcome"))
        losses = CounterMetricFamily("watchtest_box_losses", "Boxes that were lost.", labels=("lane",))
        for lane in lanes:
            for state in ENDS:
                runs.add_metric((lane, state), tally.runs[lane, state])
            for outcome in Outcome:
                tests.add_metric((lane, outcome), tally.tests[lane, outcome])
            losses.add_metric((lane,), tally.losses[lane])
        yield from (runs, tests, losses)
        yield self._histogram(
            "watchtest_run_duration_seconds",
            "From the start of a run to its end.",
            ("lane",),
            {(lane,): durations for lane, durations in tally.durations.items()},
        )
        yield self._histogram(
            "watchtest_run_phase_duration_seconds",
            "Parts of a run: sync (until the box is at the tree), select (setup and services included), test.",
            ("lane", "phase"),
            {(lane, phase): durations for (lane, phase), durations in tally.phases.items()},
        )

    def _standing(self, lanes: Iterable[LaneState]) -> Iterator[Metric]:
        activity = _gauge("watchtest_activity", "What a lane does: 1 for that, 0 for all else.", "activity")
        verdict = _gauge("watchtest_verdict", "What is known of the code: 1 for that, 0 for all else.", "verdict")
        known = _gauge("watchtest_known_tests", "The last word on every known test.", "outcome")
        pending = _gauge("watchtest_pending_changes", "Changes that no judged run has contained yet.")
        queue = _gauge("watchtest_queue_length", "Runs that were asked for and wait.")
        under_way = _gauge("watchtest_run_under_way", "Whether a run is under way.")
        paused = _gauge("watchtest_paused", "Whether the lane is paused.")
        box = _gauge("watchtest_box_up", "Whether the box is there and nothing is wrong with it.")
        restarts = _gauge("watchtest_box_restarts", "How often the engine started the box again.")
        services = _gauge("watchtest_service_ready", "Whether a service of the box is ready.", "service")
        for lane in lanes:
            name = lane.lane.value
            word = self._activity(lane)
            working = lane.activity if isinstance(lane.activity, Working) else None
            counts = dict.fromkeys(Outcome, 0)
            for test in lane.knowledge.tests.values():
                counts[test.result.outcome] += 1
            for each in ACTIVITIES:
                activity.add_metric((name, each), float(each == word))
            for judged in Verdict:
                verdict.add_metric((name, judged), float(judged is lane.knowledge.verdict))
            for outcome, count in counts.items():
                known.add_metric((name, outcome), count)
            pending.add_metric((name,), len(lane.pending.paths | (working.changes.paths if working else frozenset())))
            queue.add_metric((name,), len(lane.queue.waiting))
            under_way.add_metric((name,), float(working is not None))
            paused.add_metric((name,), float(lane.is_paused))
            box.add_metric((name,), float(_has_sound_box(lane, working)))
            restarts.add_metric((name,), lane.box.info.restarts if lane.box.info else 0)
            for service in lane.box.services:
                services.add_metric((name, service.name), float(service.state == "ready"))
        yield from (activity, verdict, known, pending, queue, under_way, paused, box, restarts, services)

    def _histogram(
        self, name: str, text: str, labels: tuple[str, ...], found: Mapping[tuple[str, ...], Durations]
    ) -> Metric:
        family = HistogramMetricFamily(name, text, labels=labels)
        for values, durations in found.items():
            buckets = list(self._tally.cumulative(durations).items())
            family.add_metric(values, buckets, sum_value=durations.sum_s)
        return family


ENDS = tuple(state for state in RunState if state not in (RunState.QUEUED, RunState.SYNCING, RunState.RUNNING))


def _gauge(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=("lane", *labels))


def _has_sound_box(lane: LaneState, working: Working | None) -> bool:
    is_broken = isinstance(lane.activity, Broken) or (working is not None and working.problem is not None)
    return lane.box.info is not None and not is_broken
