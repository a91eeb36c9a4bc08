"""What the steward in the box says of the services, checked and bounded: it comes out of the box."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watchtest.core.model import ServiceInfo
from watchtest.errors import ChannelLost

STATES = ("starting", "ready", "backoff", "failed", "stopped")
MOST_SERVICES = 200
TEXT_LIMIT = 500
TAIL_LINES = 15


@dataclass(frozen=True, slots=True)
class Report:
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
class Reports:
    """All of them, and what was just done to each of them, by name."""

    services: Mapping[str, Report] = field(default_factory=dict)
    did: Mapping[str, str] = field(default_factory=dict)
    seq: int | None = None
    """Grows; without one, it is the agent that speaks, and the last word."""
    is_lost: bool = False
    """The steward itself has died, and all services with it."""

    @property
    def infos(self) -> tuple[ServiceInfo, ...]:
        return tuple(report.info for report in self.services.values())


def reports_of(body: bytes) -> Reports:
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
    return Reports(services, done, seq if isinstance(seq, int) else None, said.get("lost") is True)


def _report(row: Any) -> Report:
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
            return Report(info, key, tuple(str(line)[:TEXT_LIMIT] for line in lines))
        case _:
            raise ChannelLost(f"the agent sent a service that is none: {row!r:.200}")


def _time(value: object) -> float:
    is_time = isinstance(value, int | float) and math.isfinite(value) and 0 <= value < 1e11
    return float(value) if is_time and isinstance(value, int | float) else 0.0
