"""The metrics for Prometheus: past events, the current state, and closed sets of labels."""

from __future__ import annotations

import time

from prometheus_client.parser import text_string_to_metric_families
from support.control_server import TEST, Bench, play
from support.watcher_states import BOX, Story, failed, passed

from watchtest.control.feed import Feed
from watchtest.control.metrics import BUCKETS, Histogram, MetricCounts, Metrics
from watchtest.core.events import BoxConnected, BoxLost, ServicesChanged
from watchtest.core.model import Lane, Outcome, Policy, Problem, RunState, ServiceInfo
from watchtest.core.transitions import facts_of

Labels = tuple[tuple[str, str], ...]


def parsed(text: str) -> dict[tuple[str, Labels], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def scrape(story: Story) -> dict[tuple[str, Labels], float]:
    counts = MetricCounts()
    for before, after, event in story.steps:
        counts.follow(facts_of(before, after, event), event.at)
    metrics = Metrics(lambda: story.state, counts, Feed(list), "1.2")
    return parsed(metrics.render("")[0].decode())


def test_runs_and_tests_are_counted_by_how_they_ended() -> None:
    story = Story().run("tree1", passed("a"), failed("b")).run("tree2", passed("a"), passed("b"))
    found = scrape(story)
    assert found["watchtest_runs_total", (("lane", "save"), ("state", "failed"))] == 1
    assert found["watchtest_runs_total", (("lane", "save"), ("state", "passed"))] == 1
    assert found["watchtest_runs_total", (("lane", "save"), ("state", "killed"))] == 0
    assert found["watchtest_tests_total", (("lane", "save"), ("outcome", "passed"))] == 3
    assert found["watchtest_tests_total", (("lane", "save"), ("outcome", "failed"))] == 1
    assert found["watchtest_verdict", (("lane", "save"), ("verdict", "passed"))] == 1
    assert found["watchtest_verdict", (("lane", "save"), ("verdict", "failed"))] == 0
    assert found["watchtest_known_tests", (("lane", "save"), ("outcome", "passed"))] == 2
    assert found["watchtest_event_clients", ()] == found["watchtest_event_clients_cut_off_total", ()] == 0
    (build,) = [labels for name, labels in found if name == "watchtest_build_info"]
    assert ("version", "1.2") in build
    assert found["watchtest_run_duration_seconds_count", (("lane", "save"),)] == 2
    for phase in ("sync", "test"):
        labels = (("lane", "save"), ("phase", phase))
        assert found["watchtest_run_phase_duration_seconds_count", labels] == 2
        assert 0.05 < found["watchtest_run_phase_duration_seconds_sum", labels] < 1


def test_what_waits_and_what_is_wrong_shows() -> None:
    story = Story().run("tree1", passed("a")).box().change("b.py", "c.py")
    found = scrape(story)
    lane: Labels = (("lane", "save"),)
    assert found["watchtest_pending_changes", lane] == 2
    assert found["watchtest_run_under_way", lane] == 1
    assert found["watchtest_box_up", lane] == 1
    assert found["watchtest_activity", (("activity", "syncing"), *lane)] == 1
    story.on(BoxLost(Lane.SAVE, story.now, Problem("gone", "gone"))).breaks()
    found = scrape(story)
    assert (found["watchtest_box_up", lane], found["watchtest_box_losses_total", lane]) == (0, 1)
    assert found["watchtest_activity", (("activity", "degraded"), *lane)] == 1
    services = (ServiceInfo("kv", "ready", 1.0), ServiceInfo("db", "failed", 1.0))
    found = scrape(story.on(ServicesChanged(Lane.SAVE, story.now, services)))
    assert found["watchtest_service_ready", (*lane, ("service", "kv"))] == 1
    assert found["watchtest_service_ready", (*lane, ("service", "db"))] == 0


def test_buckets_add_up_as_prometheus_wants_them() -> None:
    histogram = Histogram()
    for seconds in (0.01, BUCKETS[0], 0.2, 10_000, -5):
        histogram.observe(seconds)
    counts = [count for _, count in histogram.cumulative]
    assert counts[0] == 3
    assert counts[2] == 4
    assert (counts[-2], counts[-1]) == (4, 5)
    assert counts == sorted(counts)


def test_labels_are_of_closed_sets_whatever_tests_are_called() -> None:
    def names(number: int) -> set[tuple[str, Labels]]:
        story = Story()
        for run in range(number):
            story.run(f"tree{run}", passed(f"test_{run}"), failed(f"red_{run}"))
        return {key for key in scrape(story) if key[0].startswith("watchtest_")}

    assert names(2) == names(9)


def test_they_are_served_in_both_formats() -> None:
    async def story(watcher: Bench) -> None:
        watcher.loop.post(BoxConnected(Lane.SAVE, time.time(), BOX))
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await watcher.end_of((await watcher.post("/runs", {"tests": [TEST]}))["id"])
        await watcher.post("/pause")
        await watcher.post("/runs")
        plain = await watcher.raw(b"GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        head, _, content = plain.partition(b"\r\n\r\n")
        assert b"content-type: text/plain; version=" in head
        found = parsed(content.decode())
        lane: Labels = (("lane", "save"),)
        assert found["watchtest_runs_total", (*lane, ("state", RunState.PASSED.value))] == 1
        assert (found["watchtest_paused", lane], found["watchtest_queue_length", lane]) == (1, 1)
        assert found["process_resident_memory_bytes", ()] > 1_000_000
        open_metrics = await watcher.raw(
            b"GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\nConnection: close\r\n\r\n"
        )
        assert b"content-type: application/openmetrics-text" in open_metrics
        assert open_metrics.endswith(b"# EOF\n")

    play(story, policy=Policy.OFF)
