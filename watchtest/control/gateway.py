"""Where requests meet the watcher: each becomes an event of the loop, and is answered once that was taken in."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from watchtest.control.api.requests import Refusal
from watchtest.control.event_messages import status_of, tell
from watchtest.control.feed import EVENTS_LIMIT, Feed
from watchtest.control.metric_counts import Tally
from watchtest.control.result_log import PAST, Journals, Page, page_of
from watchtest.control.run_reports import Reports, RunReport
from watchtest.core.events import (
    EVERYTHING,
    CancelRequested,
    Event,
    PauseRequested,
    PolicyRequested,
    ResumeRequested,
    RunRequested,
    SourceChanged,
)
from watchtest.core.model import All, Lane, Only, Policy, Result, Selection
from watchtest.core.policy import matching_selection, policy_selection, repeat_selection
from watchtest.core.state import (
    Broken,
    Executing,
    LaneState,
    SettleStatus,
    State,
    Working,
    requested_run_id,
    settle_status,
)
from watchtest.core.transitions import transitions

if TYPE_CHECKING:  # a watcher that is never asked anything does not pay for pydantic's models
    from watchtest.control.api.models import PolicyRequest, ResultsQuery, RunRequest, RunsQuery

ANSWER_LIMIT_S = 5.0
CONFIGURED = "configured"
CURRENT = "current"

Explain = Callable[[LaneState, str], Awaitable[dict[str, Any] | None]]
Edge = tuple[float, str]
"""Where a list of runs goes on: when the last one was queued, and its id."""


class Past(Protocol):
    """What the history knows of runs that nobody remembers any more. May block, so it is asked in a thread."""

    def run(self, run_id: str) -> RunReport | None: ...

    def runs(self, query: RunsQuery, before: Edge | None, limit: int) -> Sequence[RunReport]: ...

    def results(self, run_id: str) -> Sequence[Result]: ...


class Desk:
    """A view of the loop (`show`) that also posts to it. `past` asks the history for runs; `explain` asks what is known
    of a test or a file.

    Used in the loop's own thread alone.
    """

    def __init__(
        self,
        state: Callable[[], State],
        post: Callable[[Event], None],
        past: Past,
        explain: Explain,
        *,
        events_limit: int = EVENTS_LIMIT,
    ) -> None:
        self._explain = explain
        self._state = state
        self._post = post
        self._past = past
        self._reports = Reports()
        self._journals = Journals()
        self.tally = Tally()
        self.feed = Feed(lambda: [status_of(lane) for lane in state().ranked], events_limit=events_limit)
        self._waiting: dict[int, asyncio.Future[State]] = {}
        self._asked = 0
        self._has_begun = asyncio.Event()
        self._closed = asyncio.Event()

    # -- the loop's side ---------------------------------------------------------------------------

    def show(self, before: State, after: State, event: Event | None) -> None:
        if not self._has_begun.is_set() and any(_is_in_the_box(lane) for lane in after.lanes.values()):
            self._has_begun.set()
        if event is not None:
            facts = tuple(transitions(before, after, event))
            reports = self._reports.follow(facts, after, event.at)
            results = self._journals.follow(facts)
            self.tally.follow(facts, event.at)
            self.feed.publish(tell(before, after, facts, reports, results))
            waiting = self._waiting.get(id(event))
            if waiting is not None and not waiting.done():
                waiting.set_result(after)
        if after.is_leaving:
            self.close()

    def close(self) -> None:
        """Nothing is taken in any more; who waits or listens hears so."""
        self._closed.set()
        self.feed.close()
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(_leaving())

    @property
    def state(self) -> State:
        return self._state()

    @property
    def is_closed(self) -> bool:
        return self._closed.is_set()

    async def closed(self) -> None:
        await self._closed.wait()

    async def wait_for_tests(self, limit_s: float) -> None:
        """Until tests run, and the watcher has time; not longer than the limit, and not after the end."""
        tasks = [asyncio.create_task(self._has_begun.wait()), asyncio.create_task(self._closed.wait())]
        try:
            await asyncio.wait(tasks, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    # -- the requests' side ------------------------------------------------------------------------

    async def run(self, request: RunRequest) -> RunReport:
        """A run that was accepted: it will reach an end."""
        lane = self._lane(request.lane)
        self._asked += 1
        run_id = requested_run_id(lane, str(self._asked))
        after = await self._taken_in(RunRequested(lane.lane, time.time(), _selection(request, lane), id=run_id))
        report = self._reports.find(after, run_id)
        if self.is_closed:
            raise _leaving()
        if report is None or report.has_ended:
            reason = report.reason if report else "it was not taken in"
            raise Refusal(429, "queue_full", f"no run was begun: {reason}", "wait for one of those, or cancel it")
        return report

    async def report(self, run_id: str) -> RunReport:
        state = self._state()
        found = self._reports.current(state) if run_id == CURRENT else self._reports.find(state, run_id)
        if found is None and run_id == CURRENT:
            raise Refusal(404, "nothing_running", "nothing is running")
        if found is None:
            found = await asyncio.to_thread(self._past.run, run_id)
        if found is None:
            raise Refusal(404, "no_such_run", f"no run {run_id}", "`watchtest history list` shows them")
        return found

    async def runs(self, query: RunsQuery) -> tuple[list[RunReport], str]:
        """Newest first, and where to go on; nowhere: these are all."""
        before: Edge | None = None
        if query.before:
            before = _edge(await self.report(query.before))
        past = await asyncio.to_thread(self._past.runs, query, before, query.limit + 1)
        # What is remembered is nearer to the truth than what was written down a moment ago.
        found = {report.id: report for report in (*past, *self._reports.known(self._state()))}
        chosen = [report for report in found.values() if _matches(report, query, before)]
        chosen.sort(key=_edge, reverse=True)
        shown = chosen[: query.limit]
        return shown, shown[-1].id if len(chosen) > query.limit else ""

    async def results(self, run_id: str, query: ResultsQuery) -> tuple[RunReport, Page]:
        """What a run has said so far, and what it is."""
        report = await self.report(run_id)
        page = self._journals.page(report.id, query.after, query.limit)
        if page is None and report.has_ended:
            page = page_of(await asyncio.to_thread(self._past.results, report.id), query.after, query.limit, base=PAST)
        return report, page or page_of((), query.after, query.limit)

    async def why(self, what: str, lane: Lane | None) -> dict[str, Any]:
        """Of a test: whether the last selection took it, and what it touches. Of a file: who depends on it."""
        state = self._lane(lane)
        found = await self._explain(state, what)
        if found is None:
            hint = "name a test by its id, or a file by its path in the workspace; both after the first run"
            raise Refusal(404, "nothing_known", f"nothing is known about {what}", hint)
        return {"lane": state.lane.value, **found}

    async def stop(self, run_id: str, *, is_kill: bool) -> RunReport:
        """End that run; one that has ended stays as it is."""
        if run_id == CURRENT and self._reports.current(self._state()) is None:
            await self._call_off_retries()
        report = await self.report(run_id)
        if report.has_ended:
            return report
        after = await self._taken_in(CancelRequested(report.lane, time.time(), is_kill, run=report.id))
        return self._reports.find(after, report.id) or report

    async def pause(self, lane: Lane | None, *, is_paused: bool) -> Mapping[Lane, bool]:
        """All lanes, or that one; which of the lanes are paused now."""
        lanes = self._state().ranked if lane is None else (self._lane(lane),)
        for each in lanes:
            event = PauseRequested(each.lane, time.time()) if is_paused else ResumeRequested(each.lane, time.time())
            await self._taken_in(event)
        return {each.lane: each.is_paused for each in self._state().ranked}

    async def look(self, lane: Lane | None) -> tuple[Lane, SettleStatus]:
        """Look at the source now, as if all of it had changed: a save that nobody was told of is in it, too."""
        found = self._lane(lane).lane
        after = await self._taken_in(SourceChanged(found, time.time(), frozenset({EVERYTHING})))
        return found, settle_status(after.lanes[found])

    def rest(self, lane: Lane | None) -> tuple[Lane, SettleStatus]:
        """Whether a lane has come to rest since."""
        found = self._lane(lane)
        return found.lane, settle_status(found)

    async def policy(self, request: PolicyRequest) -> LaneState:
        """What a change of that lane runs from now on; the lane after that."""
        lane = self._lane(request.lane)
        policy = None if request.policy == CONFIGURED else Policy(request.policy)
        after = await self._taken_in(PolicyRequested(lane.lane, time.time(), policy))
        return after.lanes[lane.lane]

    async def _call_off_retries(self) -> None:
        """Nothing is under way, but a lane that broke may be about to try again: that is what is cancelled then."""
        for lane in self._state().ranked:
            if isinstance(lane.activity, Broken) and lane.activity.retry_at is not None:
                await self._taken_in(CancelRequested(lane.lane, time.time()))
                text = f"nothing is running; the {lane.lane.value} lane will not try again by itself"
                raise Refusal(404, "nothing_running", text, "the next save, or `watchtest run`, tries again")

    async def _taken_in(self, event: Event) -> State:
        """Pass an event on; the state after it."""
        if self.is_closed:
            raise _leaving()
        waiting: asyncio.Future[State] = asyncio.get_running_loop().create_future()
        self._waiting[id(event)] = waiting
        self._post(event)
        try:
            async with asyncio.timeout(ANSWER_LIMIT_S):
                return await waiting
        except TimeoutError:
            text = f"the watcher has not taken it in within {ANSWER_LIMIT_S:g} s"
            raise Refusal(503, "busy", text, "try again in a moment") from None
        finally:
            del self._waiting[id(event)]

    def _lane(self, lane: Lane | None) -> LaneState:
        state = self._state()
        if lane is None:
            return state.top
        if lane not in state.lanes:
            on = ", ".join(state.lanes)
            raise Refusal(409, "lane_off", f"the {lane.value} lane is off", f"on: {on}; see [triggers] in config.toml")
        return state.lanes[lane]


def _is_in_the_box(lane: LaneState) -> bool:
    """Its first run is at the tests, or past them: the box is at work, and the watcher is not."""
    match lane.activity:
        case Working(phase=Executing()):
            return True
        case _:
            return lane.runs.last is not None


def _edge(report: RunReport) -> Edge:
    return report.queued_at or 0.0, report.id


def _matches(report: RunReport, query: RunsQuery, before: Edge | None) -> bool:
    return (
        (query.lane is None or report.lane is query.lane)
        and (query.state is None or report.state is query.state)
        and (before is None or _edge(report) < before)
    )


def _leaving() -> Refusal:
    return Refusal(503, "leaving", "the watcher is leaving", "start another with: watchtest watch")


def _selection(request: RunRequest, lane: LaneState) -> Selection | None:
    if request.tests:
        return Only(tuple(request.tests), because="asked for by name")
    if request.again:
        return repeat_selection(lane)
    if request.matching:
        found = matching_selection(lane, request.matching)
        if found is None:
            text = f"no known test has {request.matching!r} in its name"
            raise Refusal(404, "no_such_test", text, "`watchtest run` alone runs what the policy says")
        return found
    if request.policy == "all":
        return All(because="all tests were asked for")
    return None if request.policy is None else policy_selection(Policy(request.policy), lane.knowledge)
