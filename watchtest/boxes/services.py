"""The services that tests need: start them before a run, wait until they are ready, and report their state.

Before every run we send all definitions to the service manager in the box. It starts, restarts or keeps each service.
Its reports come out of the box, so they are checked and bounded here.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from watchtest.agent.frames import Frame
from watchtest.agent.services.restart_backoff import RestartBackoff
from watchtest.boxes.protocols import BoxSession, Note, StopSignal
from watchtest.boxes.service_restart import Matcher, ServiceDefinition, ServiceDependencies, ServiceInputs
from watchtest.core.model import ServiceInfo, Snapshot
from watchtest.core.text import ROW_LIMIT, names
from watchtest.errors import ChannelLost, ServiceError

STATES = ("starting", "ready", "backoff", "failed", "stopped")
MAX_SERVICES = 200
TAIL_LINES = 15
POLL_S = 0.1
ORDER_TRIES = 3


# -- reports ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ServiceReport:
    """The current state of one service."""

    info: ServiceInfo
    key: str
    tail: tuple[str, ...] = ()
    """The last lines of its output, if it has a problem."""


@dataclass(frozen=True, slots=True)
class ServiceReports:
    """The state of all services, and what the service manager just did to each, by name."""

    services: Mapping[str, ServiceReport] = field(default_factory=dict)
    did: Mapping[str, str] = field(default_factory=dict)
    seq: int | None = None
    """Increases with every report of a service manager. None: the agent reports on its behalf, as the last report."""
    is_lost: bool = False
    """Whether the service manager has died, and all services with it."""

    @property
    def infos(self) -> tuple[ServiceInfo, ...]:
        return tuple(report.info for report in self.services.values())


def reports_of(body: bytes) -> ServiceReports:
    """Parse and check a message about the services."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ChannelLost(f"the agent's report on the services is not JSON: {error}") from error
    rows = message.get("services") if isinstance(message, dict) else None
    if not isinstance(rows, list):
        raise ChannelLost("the agent's report on the services lists no services")
    services = {report.info.name: report for report in map(_report, rows[:MAX_SERVICES])}
    did = message.get("did")
    done = {str(name): str(what) for name, what in did.items()} if isinstance(did, dict) else {}
    seq = message.get("seq")
    return ServiceReports(services, done, seq if isinstance(seq, int) else None, message.get("lost") is True)


def _report(row: Any) -> ServiceReport:
    match row:
        case {"name": str(name), "key": str(key), "state": str(state), "restarts": int(restarts)} if state in STATES:
            tail = row.get("tail")
            info = ServiceInfo(
                name=name[:ROW_LIMIT],
                state=state,
                since=_time(row.get("since")),
                restarts=restarts,
                reason=str(row.get("reason") or "")[:ROW_LIMIT],
            )
            lines = tail[-TAIL_LINES:] if isinstance(tail, list) else []
            return ServiceReport(info, key, tuple(str(line)[:ROW_LIMIT] for line in lines))
        case _:
            raise ChannelLost(f"the agent sent an invalid service report: {row!r:.200}")


def _time(value: object) -> float:
    return float(value) if isinstance(value, int | float) and 0 <= value < 1e11 else 0.0


# -- services --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProcessEnvironment:
    """The environment of every service, in addition to its own settings."""

    variables: Mapping[str, str]
    path_first: tuple[str, ...]


class Services:
    """The services of one lane's box. With `is_tied` they end with the agent."""

    def __init__(
        self,
        definitions: tuple[ServiceDefinition, ...],
        matcher: Matcher,
        *,
        is_tied: bool,
        timing: RestartBackoff | None = None,
    ) -> None:
        self._definitions = definitions
        self._dependencies = {one.name: ServiceDependencies(one, matcher) for one in definitions}
        self._is_tied = is_tied
        self._timing = timing or RestartBackoff()
        self._inputs: Mapping[str, ServiceInputs] = {}
        self._reports = ServiceReports()
        self._has_report = asyncio.Event()
        self._has_ordered = False
        self._losses = 0
        """How many service managers have died."""
        self.on_change: Callable[[tuple[ServiceInfo, ...]], None] = lambda _services: None
        """Called on every report, also between runs."""

    async def ensure(
        self,
        session: BoxSession,
        snapshot: Snapshot,
        environment: ProcessEnvironment,
        note: Note,
        stop: StopSignal,
        *,
        is_forced: bool = False,
    ) -> None:
        """Wait until all services are ready. Raise ServiceError if one fails. A stop returns early."""
        if not self._definitions and not session.has_services:
            return
        before = self._inputs
        self._inputs = await asyncio.to_thread(self._inputs_of, snapshot, environment)
        session.channel.on_push = lambda frame: self._receive(session, frame, note)
        self._reports = ServiceReports()
        for _ in range(ORDER_TRIES):
            losses = self._losses
            # The user asked for this run, or has just started the watcher: give failed services another chance.
            order = self._order(environment, is_retry=is_forced or not self._has_ordered)
            answer = reports_of(await session.apply_services(order))
            self._note_actions(answer, before, note)
            self._update(answer)
            self._has_ordered = True
            if await self._until_settled(session, losses, note, stop) or stop.is_set:
                return
            before = self._inputs
        raise ServiceError(
            "the service manager in the box is killed again and again",
            hint="find out what kills processes in the box; it may be short of memory",
        )

    @property
    def start_times(self) -> tuple[tuple[str, float], ...]:
        """Each service with the time of its last change of state: a restarted service may behave differently."""
        return tuple(sorted((name, report.info.since) for name, report in self._reports.services.items()))

    # -- orders ------------------------------------------------------------------------------------

    def _inputs_of(self, snapshot: Snapshot, environment: ProcessEnvironment) -> dict[str, ServiceInputs]:
        shared = {"variables": sorted(environment.variables.items()), "path_first": list(environment.path_first)}
        return {one.name: self._dependencies[one.name].inputs(snapshot, shared) for one in self._definitions}

    def _order(self, environment: ProcessEnvironment, *, is_retry: bool) -> dict[str, object]:
        rows = [
            {
                "name": one.name,
                "key": self._inputs[one.name].key,
                "argv": list(one.argv),
                "env": {**environment.variables, **one.env},
                "path_first": list(environment.path_first),
                "ready": {one.ready.kind: one.ready.what} if one.ready else None,
                "ready_timeout_s": one.ready_timeout_s,
                "restart_limit": one.restart_limit,
                "grace_s": one.grace_s,
                "backoff_s": self._timing.backoff_s,
                "longest_backoff_s": self._timing.longest_backoff_s,
                "settled_s": self._timing.settled_s,
            }
            for one in self._definitions
        ]
        return {"tied": self._is_tied, "retry": is_retry, "services": rows}

    # -- reports from the box ----------------------------------------------------------------------

    def _receive(self, session: BoxSession, frame: Frame, note: Note) -> None:
        if frame[0]["t"] != "services":
            return
        try:
            reports = reports_of(frame[1])
        except ChannelLost as error:
            session.channel.mark_lost(error.message)
            return
        self._note_actions(reports, self._inputs, note)
        self._update(reports)

    def _update(self, reports: ServiceReports) -> None:
        if reports.seq is not None and self._reports.seq is not None and reports.seq < self._reports.seq:
            return  # a newer report arrived before this answer
        if reports.is_lost:
            self._losses += 1
            stopped = {
                name: replace(report, info=ServiceInfo(name, "stopped", time.time(), 0, "its manager was killed"))
                for name, report in self._reports.services.items()
            }
            reports = replace(reports, services=stopped)
        self._reports = reports
        self.on_change(reports.infos)
        self._has_report.set()

    def _note_actions(self, reports: ServiceReports, before: Mapping[str, ServiceInputs], note: Note) -> None:
        for name, action in reports.did.items():
            text = _ACTIONS.get(action, "")
            if action == "restarted":
                text = f"restarted ({_restart_reason(before.get(name), self._inputs.get(name))})"
            elif action == "kept" and not self._has_ordered:
                text = "still running, adopted"
            if text:
                note(f"service {name}: {text}")

    # -- waiting -----------------------------------------------------------------------------------

    async def _until_settled(self, session: BoxSession, losses: int, note: Note, stop: StopSignal) -> bool:
        """Return True when all services are ready, False if the service manager died or the run was stopped."""
        limit_s = max((self._limit_s(one) for one in self._definitions), default=0.0)
        deadline = time.monotonic() + limit_s
        has_noted = False
        while not stop.is_set:
            self._has_report.clear()
            if session.channel.is_lost:
                raise session.channel.lost_error()
            if self._losses != losses:
                return False
            waiting = [one for one in self._definitions if not self._is_settled(one)]
            failed = [report for report in self._reports.services.values() if report.info.state == "failed"]
            if failed:
                raise _failure(failed[0])
            if not waiting:
                return True
            if time.monotonic() > deadline:
                raise self._timeout(waiting[0], limit_s)
            if not has_noted:
                has_noted = True
                note(f"waiting for {', '.join(f'service {one.name}' for one in waiting)}")
            try:
                async with asyncio.timeout(POLL_S):
                    await self._has_report.wait()
            except TimeoutError:
                continue  # check for a stop, a lost channel and the deadline
        return False

    def _is_settled(self, one: ServiceDefinition) -> bool:
        """Return whether waiting longer will not change the readiness of the service."""
        report = self._reports.services.get(one.name)
        if report is None or report.key != self._inputs[one.name].key:
            return False
        return report.info.state in ("ready", "failed")

    def _limit_s(self, one: ServiceDefinition) -> float:
        """Return how long a run waits for a service. The service manager enforces the actual, shorter limits."""
        waits_s = sum(map(self._timing.wait_s, range(one.restart_limit)))
        return one.ready_timeout_s + one.grace_s + waits_s + self._timing.slack_s

    def _timeout(self, one: ServiceDefinition, limit_s: float) -> ServiceError:
        report = self._reports.services.get(one.name)
        why = f": {report.info.reason}" if report and report.info.reason else ""
        return ServiceError(
            f"service {one.name} did not become ready within {limit_s:g} s{why}{_tail(report)}",
            hint=f"see `watchtest logs {one.name}`",
        )


_ACTIONS = {
    "started_again": "started again (it was no longer running)",
    "retried": "trying again",
    "ended": "ended, because it is no longer configured",
}


def _restart_reason(before: ServiceInputs | None, now: ServiceInputs | None) -> str:
    if before is None or now is None:
        return "it was started with other files or settings"
    files = before.difference(now)
    if not files:
        return "its definition changed"
    return f"{names(files)} changed"


def _failure(report: ServiceReport) -> ServiceError:
    info = report.info
    restarts = f" ({info.restarts} restart{'s' * (info.restarts != 1)})" if info.restarts else ""
    return ServiceError(
        f"service {info.name} failed: {info.reason}{restarts}{_tail(report)}",
        hint=f"see `watchtest logs {info.name}`; it is retried when its files change or when you start a run",
    )


def _tail(report: ServiceReport | None) -> str:
    return "".join(f"\n{line}" for line in report.tail) if report else ""
