"""What is worth a notice, and its words. Pure: what was told and what is true now in, notices out.

Names of tests are told, values of assertions never: a notification is read by whoever looks at the screen.

What a way to the user promises.

Hours of the day in which nobody is told. Pure.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Protocol, Self

from watchtest.core.model import Lane, Verdict
from watchtest.core.state import Broken, Executing, Idle, Knowledge, LaneState, State, Working
from watchtest.core.text import one_line, tests

LOST_ATTEMPTS = 3
NAMES_SHOWN = 3
NAME_LENGTH = 100


class NotifyMode(StrEnum):
    """How much is told."""

    CHANGES = "changes"
    FAILURES = "failures"
    ALL = "all"
    OFF = "off"


class NotificationKind(StrEnum):
    """What happened."""

    RED = "red"
    MORE_RED = "more_red"
    GREEN = "green"
    FAILED = "failed"
    """A verdict that is red as before."""
    PASSED = "passed"
    """A verdict that is green as before, or the first one."""
    LOST = "lost"
    """No test can be run."""
    BACK = "back"

    @property
    def is_trouble(self) -> bool:
        return self in (NotificationKind.RED, NotificationKind.MORE_RED, NotificationKind.FAILED, NotificationKind.LOST)


_FAILURES = frozenset({NotificationKind.RED, NotificationKind.MORE_RED, NotificationKind.LOST})
_CHANGES = _FAILURES | {NotificationKind.GREEN, NotificationKind.BACK}
KINDS_BY_MODE: Mapping[NotifyMode, frozenset[NotificationKind]] = MappingProxyType(
    {
        NotifyMode.OFF: frozenset(),
        NotifyMode.FAILURES: _FAILURES,
        NotifyMode.CHANGES: _CHANGES,
        NotifyMode.ALL: frozenset(NotificationKind),
    }
)


@dataclass(frozen=True, slots=True)
class Notification:
    """One notice. Its texts are clean; they may still hold what some way to the user takes for markup."""

    kind: NotificationKind
    title: str
    lines: tuple[str, ...]
    lane: Lane
    verdict: Verdict
    run: str = ""
    tree: str = ""
    tests: tuple[str, ...] = ()
    """The tests it is about: those that are newly red, or still."""
    red: int = 0
    """How many tests are red in all."""

    @property
    def text(self) -> str:
        """All that stands below the title, in one line."""
        return ", ".join(self.lines)


@dataclass(frozen=True, slots=True)
class ReportedLane:
    """What the user believes of one lane: colour, red tests, by which run, and whether its box is lost."""

    is_red: bool | None = None
    red: frozenset[str] = frozenset()
    run: str = ""
    is_lost: bool = False
    knowledge: Knowledge | None = field(default=None, compare=False, repr=False)
    """What was looked at last: most events leave it as it is."""


ReportedLanes = Mapping[Lane, ReportedLane]


def new_notifications(
    told: ReportedLanes, state: State, workspace: str
) -> tuple[tuple[Notification, ...], ReportedLanes]:
    """What `state` adds to what was told, and what is told after that.

    A verdict that is neither red nor green (unknown, no tests) tells nothing and forgets nothing: red → unknown → green
    is still red → green. Runs that were cancelled or superseded change no knowledge, so they are silent by themselves.
    """
    said: list[Notification] = []
    after = dict(told)
    name = one_line(workspace, 60)
    for lane in state.ranked:
        others = [other.lane.value for other in state.ranked if other is not lane and other.knowledge.verdict.is_red]
        where = name if len(state.lanes) == 1 else f"{name} ({lane.lane.value})"
        new, after[lane.lane] = _lane(told.get(lane.lane, ReportedLane()), lane, where, others)
        said += new
    return tuple(said), after


def _lane(
    told: ReportedLane, lane: LaneState, where: str, red_lanes: list[str]
) -> tuple[list[Notification], ReportedLane]:
    said = []
    if _is_lost(lane) and not told.is_lost and lane.problem:
        told = replace(told, is_lost=True)
        said.append(
            _notice(NotificationKind.LOST, lane, f"⚠ {where}: cannot run tests", (one_line(lane.problem.message),))
        )
    elif told.is_lost and _is_back(lane):
        told = replace(told, is_lost=False)
        still = (f"{tests(len(told.red)) if told.red else 'the last run'} still red",) if told.is_red else ()
        said.append(_notice(NotificationKind.BACK, lane, f"✔ {where}: tests run again", still))
    knowledge = lane.knowledge
    if knowledge is told.knowledge:
        return said, told
    told = replace(told, knowledge=knowledge)
    red = frozenset(known.result.test for known in knowledge.red)
    run = knowledge.run.id if knowledge.run else ""
    if knowledge.verdict.is_red:
        said += _red(told, lane, where, red)
        told = replace(told, is_red=True, red=red, run=run)
    elif knowledge.verdict is Verdict.PASSED:
        said += _green(told, lane, where, red_lanes)
        told = replace(told, is_red=False, red=red, run=run)
    return said, told


def _red(told: ReportedLane, lane: LaneState, where: str, red: frozenset[str]) -> list[Notification]:
    new = red - told.red
    if not told.is_red:
        what = f"{tests(len(red))} red" if red else "the run failed"
        lines = _names(red) or (one_line(lane.knowledge.reason) or "no reason was given",)
        return [_notice(NotificationKind.RED, lane, f"✘ {where}: {what}", lines, red)]
    if new:
        in_all = f", {len(red)} in all" if len(red) > len(new) else ""
        return [
            _notice(
                NotificationKind.MORE_RED, lane, f"✘ {where}: {tests(len(new))} newly red{in_all}", _names(new), new
            )
        ]
    if _is_next_verdict(told, lane):
        what = f"{tests(len(red))} still red" if red else "still red"
        lines = _names(red) or (one_line(lane.knowledge.reason),)
        return [_notice(NotificationKind.FAILED, lane, f"✘ {where}: {what}", lines, red)]
    return []


def _green(told: ReportedLane, lane: LaneState, where: str, red_lanes: list[str]) -> list[Notification]:
    total = tests(len(lane.knowledge.tests))
    if told.is_red:
        # Its notification takes the place of another lane's, which is as red as before.
        still = tuple(f"the {name} lane is still red" for name in red_lanes)
        return [_notice(NotificationKind.GREEN, lane, f"✔ {where}: green again", (total, *still))]
    if _is_next_verdict(told, lane):
        return [_notice(NotificationKind.PASSED, lane, f"✔ {where}: passed {total}", ())]
    return []


def _is_next_verdict(told: ReportedLane, lane: LaneState) -> bool:
    run = lane.knowledge.run
    return run is not None and run.id != told.run and not run.is_audit


def _notice(
    kind: NotificationKind, lane: LaneState, title: str, lines: tuple[str, ...], about: frozenset[str] = frozenset()
) -> Notification:
    knowledge = lane.knowledge
    return Notification(
        kind,
        title,
        tuple(line for line in lines if line),
        lane.lane,
        knowledge.verdict,
        run=knowledge.run.id if knowledge.run else "",
        tree=knowledge.snapshot.id if knowledge.snapshot else "",
        tests=tuple(one_line(test) for test in sorted(about)),
        red=len(knowledge.red),
    )


def _names(about: frozenset[str]) -> tuple[str, ...]:
    shown = tuple(one_line(test, NAME_LENGTH) for test in sorted(about)[:NAMES_SHOWN])
    return shown if len(about) <= NAMES_SHOWN else (*shown, f"and {len(about) - NAMES_SHOWN} more")


def _is_lost(lane: LaneState) -> bool:
    match lane.activity:
        case Broken(attempt=attempt, retry_at=retry_at):
            return attempt >= LOST_ATTEMPTS or (retry_at is None and attempt > 0)
        case _:
            return False


def _is_back(lane: LaneState) -> bool:
    match lane.activity:
        case Working(phase=Executing()) | Idle(is_held=False):
            return True
        case _:
            return False


class DeliveryFailed(Exception):
    """Why a notice did not reach the user, in a few words."""


class NotificationChannel(Protocol):
    """One live notice a workspace: each stands in the place of the last. Cancelled at any point, it can go on after.

    What cannot be done raises DeliveryFailed; nothing else leaves a channel.
    """

    async def look(self) -> str:
        """Who would show it, in words; shows nothing."""

    async def deliver(self, notice: Notification) -> None:
        """It has been shown when this returns."""

    async def withdraw(self) -> None:
        """Take the live notice away, if there is one and this way can."""

    async def close(self) -> None:
        """Give up what is held open. What is shown stays."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one minute of the local day to another, which may lie on the next day. Both the same: never."""

    start: int = 0
    end: int = 0

    @classmethod
    def read(cls, text: str) -> Self:
        """`22:00-07:00`, as the config has checked it; nothing is never."""
        if not text:
            return cls()
        start, _, end = text.partition("-")
        return cls(_minute(start), _minute(end))

    def holds(self, local: time.struct_time) -> bool:
        minute = local.tm_hour * 60 + local.tm_min
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)
