"""Where API requests meet the loop: each becomes an event, and is answered once the loop has processed that event."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchtest import __version__
from watchtest.control.feed import EVENTS_LIMIT, Feed, event_messages, status_message
from watchtest.control.metrics import MetricCounts
from watchtest.control.refusal import Refusal, stopping_refusal
from watchtest.control.result_log import HISTORY_OFFSET, ResultLogs, ResultPage, page_of
from watchtest.control.run_reports import PastRuns, Position, RunReport, RunReports
from watchtest.core import events
from watchtest.core.model import All, Lane, Only, Policy, Selection
from watchtest.core.policy import matching_selection, policy_selection, repeat_selection
from watchtest.core.state import Broken, Executing, LaneState, State, Working, requested_run_id
from watchtest.core.transitions import facts_of
from watchtest.views.dashboard.watcher_screen import ScreenServer

if TYPE_CHECKING:  # a watcher that receives no requests does not load pydantic's models
    from watchtest.control.api.request_models import PolicyRequest, ResultsQuery, RunRequest, RunsQuery

PROCESSING_LIMIT_S = 5.0
CONFIGURED = "configured"
CURRENT = "current"

Explain = Callable[[LaneState, str], Awaitable[dict[str, Any] | None]]


class Gateway:
    """A view of the loop (`show`) that also posts events to it. `explain` explains a test or a file.

    Not thread-safe: used only in the loop's own thread.
    """

    def __init__(
        self,
        state: Callable[[], State],
        post: Callable[[events.Event], None],
        past: PastRuns,
        explain: Explain,
        *,
        events_limit: int = EVENTS_LIMIT,
    ) -> None:
        self._explain = explain
        self._state = state
        self._post = post
        self._past = past
        self._reports = RunReports()
        self._result_logs = ResultLogs()
        self.metric_counts = MetricCounts()
        self.feed = Feed(lambda: map(status_message, state().ranked), events_limit=events_limit)
        self._waiting: dict[int, asyncio.Future[State]] = {}
        self._requested_runs = 0
        self._tests_began = asyncio.Event()
        self._closed = asyncio.Event()

    # -- the loop's side ---------------------------------------------------------------------------

    def show(self, before: State, after: State, event: events.Event | None) -> None:
        if not self._tests_began.is_set() and any(map(_has_begun_tests, after.lanes.values())):
            self._tests_began.set()
        if event is not None:
            facts = tuple(facts_of(before, after, event))
            reports = self._reports.follow(facts, after, event.at)
            results = self._result_logs.follow(facts)
            self.metric_counts.follow(facts, event.at)
            self.feed.publish(event_messages(before, after, facts, reports, results))
            waiting = self._waiting.get(id(event))
            if waiting is not None and not waiting.done():
                waiting.set_result(after)
        if after.is_leaving:
            self.close()

    def close(self) -> None:
        """Accept no more requests, refuse those that are waiting, and end the event streams."""
        self._closed.set()
        self._tests_began.set()  # ends `wait_for_tests`
        self.feed.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(stopping_refusal())

    @property
    def state(self) -> State:
        return self._state()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def closed(self) -> None:
        await self._closed.wait()

    async def wait_for_tests(self, limit_s: float) -> None:
        """Return when tests run, so that the watcher is idle, or after the limit, or when the gateway closes."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._tests_began.wait()

    # -- the requests' side ------------------------------------------------------------------------

    async def request_run(self, request: RunRequest) -> RunReport:
        """Return the report of the accepted run, which will reach a final state."""
        lane = self.lane(request.lane)
        self._requested_runs += 1
        run_id = requested_run_id(lane, str(self._requested_runs))
        after = await self._process(events.RunRequested(lane.lane, time.time(), _selection(request, lane), id=run_id))
        report = self._reports.find(after, run_id)
        if self.is_closed:
            raise stopping_refusal()
        if report is None or report.has_ended:
            reason = report.reason if report else "the request was ignored"
            raise Refusal(429, "queue_full", f"no run was started: {reason}", "wait for a run to end, or cancel one")
        return report

    async def report(self, run_id: str) -> RunReport:
        state = self._state()
        report = self._reports.current(state) if run_id == CURRENT else self._reports.find(state, run_id)
        if report is None and run_id == CURRENT:
            raise Refusal(404, "nothing_running", "nothing is running")
        if report is None:
            report = await asyncio.to_thread(self._past.run, run_id)
        if report is None:
            raise Refusal(404, "no_such_run", f"no run {run_id}", "`watchtest history list` shows the runs")
        return report

    async def runs(self, query: RunsQuery) -> tuple[list[RunReport], str]:
        """Return a page of runs, newest first, and the id that the next page starts before; empty on the last page."""
        before: Position | None = None
        if query.before:
            before = (await self.report(query.before)).position
        past = await asyncio.to_thread(self._past.runs, query, before, query.limit + 1)
        # Our own reports replace those of the history, which may be a moment older.
        reports = {report.id: report for report in (*past, *self._reports.all(self._state()))}
        matching = [report for report in reports.values() if _matches(report, query, before)]
        matching.sort(key=lambda report: report.position, reverse=True)
        page = matching[: query.limit]
        return page, page[-1].id if len(matching) > query.limit else ""

    async def results(self, run_id: str, query: ResultsQuery) -> tuple[RunReport, ResultPage]:
        """Return a run and a page of its results so far."""
        report = await self.report(run_id)
        page = self._result_logs.page(report.id, query.after, query.limit)
        if page is None and report.has_ended:
            results = await asyncio.to_thread(self._past.results, report.id)
            page = page_of(results, query.after, query.limit, offset=HISTORY_OFFSET)
        return report, page or page_of((), query.after, query.limit)

    async def why(self, what: str, lane: Lane | None) -> dict[str, Any]:
        """Explain whether a test was selected and what it uses, or which tests depend on a file."""
        state = self.lane(lane)
        explanation = await self._explain(state, what)
        if explanation is None:
            hint = "use the id of a test or the path of a file in the workspace, after the first run"
            raise Refusal(404, "nothing_known", f"nothing is known about {what}", hint)
        return {"lane": state.lane.value, **explanation}

    async def stop(self, run_id: str, *, is_kill: bool) -> RunReport:
        """Cancel a run that has not ended, and return its report."""
        if run_id == CURRENT and self._reports.current(self._state()) is None:
            await self._cancel_retries()
        report = await self.report(run_id)
        if report.has_ended:
            return report
        after = await self._process(events.CancelRequested(report.lane, time.time(), is_kill, run=report.id))
        return self._reports.find(after, report.id) or report

    async def pause(self, lane: Lane | None, *, is_paused: bool) -> Mapping[Lane, bool]:
        """Pause or resume a lane, or all of them. Return for each lane whether it is paused."""
        lanes = self._state().ranked if lane is None else (self.lane(lane),)
        request = events.PauseRequested if is_paused else events.ResumeRequested
        for each in lanes:
            await self._process(request(each.lane, time.time()))
        return {each.lane: each.is_paused for each in self._state().ranked}

    async def rescan(self, lane: Lane | None) -> LaneState:
        """Make the lane read its whole source now, which finds saves that the watcher was not notified of."""
        name = self.lane(lane).lane
        after = await self._process(events.SourceChanged(name, time.time(), frozenset({events.EVERYTHING})))
        return after.lanes[name]

    async def set_policy(self, request: PolicyRequest) -> LaneState:
        """Set what a change of a lane runs from now on, and return the lane."""
        lane = self.lane(request.lane)
        policy = None if request.policy == CONFIGURED else Policy(request.policy)
        after = await self._process(events.PolicyRequested(lane.lane, time.time(), policy))
        return after.lanes[lane.lane]

    async def _cancel_retries(self) -> None:
        """Cancel the next attempt of a broken lane, and refuse the request, because there is no run to cancel."""
        for lane in self._state().ranked:
            if isinstance(lane.activity, Broken) and lane.activity.retry_at is not None:
                await self._process(events.CancelRequested(lane.lane, time.time()))
                text = f"nothing is running; the {lane.lane.value} lane will not retry by itself"
                raise Refusal(404, "nothing_running", text, "the next save or `watchtest run` tries again")

    async def _process(self, event: events.Event) -> State:
        """Post an event and return the state after it."""
        if self.is_closed:
            raise stopping_refusal()
        waiting: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._waiting[id(event)] = waiting
        self._post(event)
        try:
            async with asyncio.timeout(PROCESSING_LIMIT_S):
                return await waiting
        except TimeoutError:
            text = f"the watcher did not process the request within {PROCESSING_LIMIT_S:g} s"
            raise Refusal(503, "busy", text, "try again in a moment") from None
        finally:
            del self._waiting[id(event)]

    def lane(self, lane: Lane | None) -> LaneState:
        """Return this lane; by default the highest one that is on."""
        state = self._state()
        if lane is None:
            return state.top
        if lane not in state.lanes:
            on = ", ".join(state.lanes)
            raise Refusal(409, "lane_off", f"the {lane.value} lane is off", f"on: {on}; see [triggers] in config.toml")
        return state.lanes[lane]


@dataclass(frozen=True, slots=True)
class ApiContext:
    """Everything that the handlers of the API answer from. `status` returns the current status document."""

    gateway: Gateway
    status: Callable[[], dict[str, Any]]
    screens: ScreenServer
    workspace: Path
    started_at: str
    addresses: dict[str, str | None] = field(default_factory=lambda: dict.fromkeys(("socket", "url", "token_file")))
    """Where the watcher can be reached now; None if it does not listen there."""

    @property
    def identity(self) -> dict[str, Any]:
        return {"version": __version__, "pid": os.getpid(), "workspace": str(self.workspace)}


def _has_begun_tests(lane: LaneState) -> bool:
    match lane.activity:
        case Working(phase=Executing()):
            return True
        case _:
            return lane.runs.last is not None


def _matches(report: RunReport, query: RunsQuery, before: Position | None) -> bool:
    return (
        (query.lane is None or report.lane is query.lane)
        and (query.state is None or report.state is query.state)
        and (before is None or report.position < before)
    )


def _selection(request: RunRequest, lane: LaneState) -> Selection | None:
    if request.tests:
        return Only(tuple(request.tests), because="requested by name")
    if request.again:
        return repeat_selection(lane)
    if request.matching:
        selection = matching_selection(lane, request.matching)
        if selection is None:
            text = f"no known test has {request.matching!r} in its name"
            raise Refusal(404, "no_such_test", text, "`watchtest run` without a name runs what the policy selects")
        return selection
    if request.policy == "all":
        return All(because="all tests were requested")
    return None if request.policy is None else policy_selection(Policy(request.policy), lane.knowledge)
