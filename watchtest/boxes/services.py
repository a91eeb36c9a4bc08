"""The services that tests need: ordered before a run, waited for, and told of. The steward in the box does the rest.

Every run orders all of them: the steward starts, restarts or leaves alone, whatever died or was edited in between.

What the steward in the box says of the services, checked and bounded: it comes out of the box.
"""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from watchtest.agent.frames import Frame
from watchtest.boxes.protocols import BoxSession, Note, StopSignal
from watchtest.boxes.service_keys import Matcher, ServiceDefinition, ServiceDependencies, ServiceInputs
from watchtest.core.model import ServiceInfo, Snapshot
from watchtest.errors import ChannelLost, ServiceError

STATES = ("starting", "ready", "backoff", "failed", "stopped")
MOST_SERVICES = 200
TEXT_LIMIT = 500
TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """One service as it stands."""

    info: ServiceInfo
    key: str
    tail: tuple[str, ...] = ()
    """Its last lines, where it is in trouble."""

    @property
    def is_settled(self) -> bool:
        """It will not become ready, or not more ready, by waiting."""
        return self.info.state in ("ready", "failed")


@dataclass(frozen=True, slots=True)
class ServiceReports:
    """All of them, and what was just done to each of them, by name."""

    services: Mapping[str, ServiceReport] = field(default_factory=dict)
    did: Mapping[str, str] = field(default_factory=dict)
    seq: int | None = None
    """Grows; without one, it is the agent that speaks, and the last word."""
    is_lost: bool = False
    """The steward itself has died, and all services with it."""

    @property
    def infos(self) -> tuple[ServiceInfo, ...]:
        return tuple(report.info for report in self.services.values())


def reports_of(body: bytes) -> ServiceReports:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ChannelLost(f"the agent's word on the services is not JSON: {error}") from error
    rows = said.get("services") if isinstance(said, dict) else None
    if not isinstance(rows, list):
        raise ChannelLost("the agent's word on the services has no list of them")
    services = {report.info.name: report for report in map(_report, rows[:MOST_SERVICES])}
    did = said.get("did")
    done = {str(name): str(what) for name, what in did.items()} if isinstance(did, dict) else {}
    seq = said.get("seq")
    return ServiceReports(services, done, seq if isinstance(seq, int) else None, said.get("lost") is True)


def _report(row: Any) -> ServiceReport:
    match row:
        case {"name": str(name), "key": str(key), "state": str(state), "restarts": int(restarts)} if state in STATES:
            tail = row.get("tail")
            info = ServiceInfo(
                name=name[:TEXT_LIMIT],
                state=state,
                since=_time(row.get("since")),
                restarts=restarts,
                reason=str(row.get("reason") or "")[:TEXT_LIMIT],
            )
            lines = tail[-TAIL_LINES:] if isinstance(tail, list) else []
            return ServiceReport(info, key, tuple(str(line)[:TEXT_LIMIT] for line in lines))
        case _:
            raise ChannelLost(f"the agent sent a service that is none: {row!r:.200}")


def _time(value: object) -> float:
    is_time = isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 1e11
    return float(value) if is_time and isinstance(value, int | float) else 0.0


POLL_S = 0.1
ORDER_TRIES = 3
SHOWN_FILES = 3


@dataclass(frozen=True, slots=True)
class RestartTiming:
    """When a service that fails is started again; how long it must have been ready to be forgiven all failures."""

    backoff_s: float = 0.5
    longest_backoff_s: float = 30.0
    settled_s: float = 60.0
    slack_s: float = 15.0
    """What a run waits for the steward beyond the limits that it keeps."""

    def all_backoffs_s(self, restarts: int) -> float:
        return sum(min(self.backoff_s * 2.0 ** min(number, 30), self.longest_backoff_s) for number in range(restarts))


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """What every service is started with besides its own settings."""

    variables: Mapping[str, str]
    path_first: tuple[str, ...]


class Services:
    """The services of one lane's box. `is_tied`: they end with the agent."""

    def __init__(
        self,
        definitions: tuple[ServiceDefinition, ...],
        matcher: Matcher,
        *,
        is_tied: bool,
        timing: RestartTiming | None = None,
    ) -> None:
        self._definitions = definitions
        self._dependencies = {one.name: ServiceDependencies(one, matcher) for one in definitions}
        self._is_tied = is_tied
        self._timing = timing or RestartTiming()
        self._bases: Mapping[str, ServiceInputs] = {}
        self._reports = ServiceReports()
        self._news = asyncio.Event()
        self._has_ordered = False
        self._losses = 0
        """How many stewards have died."""
        self.on_seen: Callable[[tuple[ServiceInfo, ...]], None] = lambda _services: None
        """Told of every change of a state, between runs, too."""

    async def ensure(
        self,
        session: BoxSession,
        snapshot: Snapshot,
        surroundings: ProcessEnvironment,
        note: Note,
        stop: StopSignal,
        *,
        is_forced: bool = False,
    ) -> None:
        """Until all are ready, as this snapshot has them; ServiceError if one cannot be. Returns early if stopped."""
        if not self._definitions and not session.has_services:
            return
        before = self._bases
        self._bases = await asyncio.to_thread(self._bases_of, snapshot, surroundings)
        session.channel.on_news = lambda frame: self._hear(session, frame, note)
        self._reports = ServiceReports()
        for _ in range(ORDER_TRIES):
            # A failed one gets another chance where somebody asks for it: by a command, or by starting a watcher.
            losses = self._losses
            order = self._order(surroundings, is_retry=is_forced or not self._has_ordered)
            answer = reports_of(await session.order_services(order))
            self._say_what_was_done(answer, before, note)
            self._take(answer)
            self._has_ordered = True
            if await self._until_settled(session, losses, note, stop) or stop.is_set:
                return
            before = self._bases
        raise ServiceError(
            "what supervises the services in the box is killed again and again",
            hint="look at what ends processes in the box; memory may be short",
        )

    @property
    def lives(self) -> tuple[tuple[str, float], ...]:
        """Each service, and since when it is what it is: another life, another answer."""
        return tuple(sorted((name, report.info.since) for name, report in self._reports.services.items()))

    # -- ordering ----------------------------------------------------------------------------------

    def _bases_of(self, snapshot: Snapshot, surroundings: ProcessEnvironment) -> dict[str, ServiceInputs]:
        around = {"variables": sorted(surroundings.variables.items()), "path_first": list(surroundings.path_first)}
        return {one.name: self._dependencies[one.name].basis(snapshot, around) for one in self._definitions}

    def _order(self, surroundings: ProcessEnvironment, *, is_retry: bool) -> dict[str, object]:
        return {
            "tied": self._is_tied,
            "retry": is_retry,
            "services": [self._row(one, surroundings) for one in self._definitions],
        }

    def _row(self, one: ServiceDefinition, surroundings: ProcessEnvironment) -> dict[str, object]:
        return {
            "name": one.name,
            "key": self._bases[one.name].key,
            "argv": list(one.argv),
            "env": {**surroundings.variables, **one.env},
            "path_first": list(surroundings.path_first),
            "ready": {one.ready.kind: one.ready.what} if one.ready else None,
            "ready_timeout_s": one.ready_timeout_s,
            "restart_limit": one.restart_limit,
            "grace_s": one.grace_s,
            "backoff_s": self._timing.backoff_s,
            "longest_backoff_s": self._timing.longest_backoff_s,
            "settled_s": self._timing.settled_s,
        }

    # -- hearing -----------------------------------------------------------------------------------

    def _hear(self, session: BoxSession, frame: Frame, note: Note) -> None:
        if frame[0]["t"] != "services":
            return
        try:
            reports = reports_of(frame[1])
        except ChannelLost as error:
            session.channel.lose(error.message)
            return
        self._say_what_was_done(reports, self._bases, note)
        self._take(reports)

    def _take(self, reports: ServiceReports) -> None:
        if reports.seq is not None and self._reports.seq is not None and reports.seq < self._reports.seq:
            return  # an answer that was overtaken by news
        if reports.is_lost:
            self._losses += 1
            gone = {
                name: replace(report, info=ServiceInfo(name, "stopped", time.time(), 0, "its steward was killed"))
                for name, report in self._reports.services.items()
            }
            reports = replace(reports, services=gone)
        self._reports = reports
        self.on_seen(reports.infos)
        self._news.set()

    def _say_what_was_done(self, reports: ServiceReports, before: Mapping[str, ServiceInputs], note: Note) -> None:
        for name, what in reports.did.items():
            words = _DONE.get(what, "")
            if what == "restarted":
                words = f"restarted ({_why(before.get(name), self._bases.get(name))})"
            elif what == "kept" and not self._has_ordered:
                words = "adopted, as it was left running"
            if words:
                note(f"service {name}: {words}")

    # -- waiting -----------------------------------------------------------------------------------

    async def _until_settled(self, session: BoxSession, losses: int, note: Note, stop: StopSignal) -> bool:
        """True when all are ready; False if the steward was lost meanwhile, or a stop was asked for."""
        limit_s = max((self._patience_s(one) for one in self._definitions), default=0.0)
        deadline = time.monotonic() + limit_s
        has_said = False
        while not stop.is_set:
            self._news.clear()
            if session.channel.is_lost:
                raise session.channel.loss()
            if self._losses != losses:
                return False
            waiting = [one for one in self._definitions if not self._is_settled(one)]
            failed = [report for report in self._reports.services.values() if report.info.state == "failed"]
            if failed:
                raise _failure(failed[0])
            if not waiting:
                return True
            if time.monotonic() > deadline:
                raise self._lateness(waiting[0], limit_s)
            if not has_said:
                has_said = True
                note(f"waiting for {', '.join(f'service {one.name}' for one in waiting)}")
            try:
                async with asyncio.timeout(POLL_S):
                    await self._news.wait()
            except TimeoutError:
                continue  # a stop, a loss and the deadline are looked at by the clock
        return False

    def _is_settled(self, one: ServiceDefinition) -> bool:
        report = self._reports.services.get(one.name)
        return report is not None and report.key == self._bases[one.name].key and report.is_settled

    def _patience_s(self, one: ServiceDefinition) -> float:
        """The steward keeps the limits; this one is for the run that waits for it."""
        return one.ready_timeout_s + one.grace_s + self._timing.all_backoffs_s(one.restart_limit) + self._timing.slack_s

    def _lateness(self, one: ServiceDefinition, limit_s: float) -> ServiceError:
        report = self._reports.services.get(one.name)
        why = f": {report.info.reason}" if report and report.info.reason else ""
        return ServiceError(
            f"service {one.name} did not become ready within {limit_s:g} s{why}{_tail(report)}",
            hint=f"see `watchtest logs {one.name}`",
        )


_DONE = {
    "started_again": "started again (nothing of it was running any more)",
    "retried": "trying again",
    "ended": "ended, as it is not in the settings any more",
}


def _why(before: ServiceInputs | None, now: ServiceInputs | None) -> str:
    if before is None or now is None:
        return "it was started with other files or settings"
    files = before.difference(now)
    if not files:
        return "its definition changed"
    more = f" and {len(files) - SHOWN_FILES} more" if len(files) > SHOWN_FILES else ""
    return f"{', '.join(files[:SHOWN_FILES])}{more} changed"


def _failure(report: ServiceReport) -> ServiceError:
    info = report.info
    tries = f" ({info.restarts} restart{'s' * (info.restarts != 1)})" if info.restarts else ""
    return ServiceError(
        f"service {info.name} failed: {info.reason}{tries}{_tail(report)}",
        hint=f"see `watchtest logs {info.name}`; it is tried again when its files change, or when you ask for a run",
    )


def _tail(report: ServiceReport | None) -> str:
    return "".join(f"\n{line}" for line in report.tail) if report else ""
