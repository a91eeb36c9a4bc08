"""Decides which changes of the state are worth a notification, and words it. Pure.

Notifications contain names of tests but never values of assertions: anyone who sees the screen can read them.
"""

from __future__ import annotations

import datetime
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Protocol, Self

from watchtest.core.model import Lane, Verdict
from watchtest.core.state import Broken, Executing, Idle, Knowledge, LaneState, State, Working
from watchtest.core.text import NAMES_SHOWN, count, one_line, tests, with_provisional
from watchtest.views.mood import Colour, counts_as_green, mood
from watchtest.views.status.status_words import PROVISIONAL_SIGN

LOST_ATTEMPTS = 3
"""After this many failed attempts, or when the lane gives up, the user is notified."""
NAME_LENGTH = 100


class NotifyMode(StrEnum):
    """Which notifications the user wants (`notify.mode`)."""

    CHANGES = "changes"
    FAILURES = "failures"
    ALL = "all"
    OFF = "off"


class NotificationKind(StrEnum):
    RED = "red"
    MORE_RED = "more_red"
    GREEN = "green"
    FAILED = "failed"
    """The verdict is red, as before."""
    PASSED = "passed"
    """The verdict is green, as before, or the first one."""
    LOST = "lost"
    """Tests cannot run."""
    BACK = "back"
    """Tests can run again."""

    @property
    def is_trouble(self) -> bool:
        return self in (NotificationKind.RED, NotificationKind.MORE_RED, NotificationKind.FAILED, NotificationKind.LOST)


_FAILURES = frozenset({NotificationKind.RED, NotificationKind.MORE_RED, NotificationKind.LOST})
KINDS_BY_MODE = {
    NotifyMode.OFF: frozenset[NotificationKind](),
    NotifyMode.FAILURES: _FAILURES,
    NotifyMode.CHANGES: _FAILURES | {NotificationKind.GREEN, NotificationKind.BACK},
    NotifyMode.ALL: frozenset(NotificationKind),
}


@dataclass(frozen=True, slots=True)
class Notification:
    """One notification. Its texts hold no control characters, but may hold what a channel takes for markup."""

    kind: NotificationKind
    title: str
    lines: tuple[str, ...]
    lane: Lane
    verdict: Verdict
    run: str = ""
    tree: str = ""
    tests: tuple[str, ...] = ()
    """The tests that it is about: those that have turned red, or are still red."""
    red: int = 0
    """The number of all red tests."""

    @property
    def text(self) -> str:
        """The text below the title, in one line."""
        return ", ".join(self.lines)


@dataclass(frozen=True, slots=True)
class ReportedLane:
    """What the user was last notified of in one lane, colour, red tests, run, lost box."""

    is_red: bool | None = None
    red: frozenset[str] = frozenset()
    run: str = ""
    is_lost: bool = False
    knowledge: Knowledge | None = field(default=None, compare=False, repr=False)
    """The knowledge that was examined last; most events leave it unchanged."""


ReportedLanes = Mapping[Lane, ReportedLane]


def new_notifications(
    reported: ReportedLanes, state: State, workspace: str
) -> tuple[tuple[Notification, ...], ReportedLanes]:
    """Return the notifications that `state` adds to what was reported, and what is reported after that.

    A verdict that is neither red nor green (unknown, no tests) adds nothing and resets nothing: red → unknown → green
    counts as red → green. Nor does a green verdict on code that has changed meanwhile. Cancelled and superseded runs do
    not change the knowledge, so they add nothing either.
    """
    added: list[Notification] = []
    after = dict(reported)
    name = one_line(workspace, 60)
    for lane in state.ranked:
        others = [other.lane.value for other in state.ranked if other is not lane and other.knowledge.verdict.is_red]
        label = name if len(state.lanes) == 1 else f"{name} ({lane.lane.value})"
        new, after[lane.lane] = _lane(reported.get(lane.lane, ReportedLane()), lane, label, others)
        added += new
    return tuple(added), after


def _lane(
    reported: ReportedLane, lane: LaneState, label: str, red_lanes: list[str]
) -> tuple[list[Notification], ReportedLane]:
    added = []
    if _is_lost(lane) and not reported.is_lost and lane.problem:
        reported = replace(reported, is_lost=True)
        problem = one_line(lane.problem.message)
        added.append(_notification(NotificationKind.LOST, lane, f"⚠ {label}: cannot run tests", (problem,)))
    elif reported.is_lost and _is_back(lane):
        reported = replace(reported, is_lost=False)
        what = f"{tests(len(reported.red))} still failing" if reported.red else "the last run is still red"
        still = (what,) if reported.is_red else ()
        added.append(_notification(NotificationKind.BACK, lane, f"↻ {label}: tests run again", still))
    knowledge = lane.knowledge
    if knowledge is reported.knowledge or _is_in_doubt(lane):
        return added, reported
    reported = replace(reported, knowledge=knowledge)
    red = frozenset(known.result.test for known in knowledge.red)
    run = knowledge.run.id if knowledge.run else ""
    if knowledge.verdict.is_red:
        added += _red(reported, lane, label, red)
        reported = replace(reported, is_red=True, red=red, run=run)
    elif knowledge.verdict is Verdict.PASSED:
        added += _green(reported, lane, label, red_lanes)
        reported = replace(reported, is_red=False, red=red, run=run)
    return added, reported


def _is_in_doubt(lane: LaneState) -> bool:
    """Return whether a passed verdict is no news yet. One from a box changed by hand is: no other will follow."""
    return lane.knowledge.verdict is Verdict.PASSED and not counts_as_green(lane)


def _red(reported: ReportedLane, lane: LaneState, label: str, red: frozenset[str]) -> list[Notification]:
    new = red - reported.red
    if not reported.is_red:
        what = f"{tests(len(red))} failed" if red else "the run failed"
        lines = _names(red) or (one_line(lane.knowledge.reason) or "no reason given",)
        return [_notification(NotificationKind.RED, lane, f"✘ {label}: {what}", lines, red)]
    if new:
        total = f", {len(red)} in total" if len(red) > len(new) else ""
        title = f"✘ {label}: {count(len(new), 'new failure')}{total}"
        return [_notification(NotificationKind.MORE_RED, lane, title, _names(new), new)]
    if _is_next_verdict(reported, lane):
        what = f"{tests(len(red))} still failing" if red else "still red"
        lines = _names(red) or (one_line(lane.knowledge.reason),)
        return [_notification(NotificationKind.FAILED, lane, f"✘ {label}: {what}", lines, red)]
    return []


def _green(reported: ReportedLane, lane: LaneState, label: str, red_lanes: list[str]) -> list[Notification]:
    total = tests(len(lane.knowledge.tests))
    provisional = lane.provisional
    mark = "✔" if provisional is None else PROVISIONAL_SIGN
    if reported.is_red:
        what = "green again" if provisional is None else f"passed provisionally: {one_line(provisional.message)}"
        # This notification replaces that of another lane, which may still be red.
        still = tuple(f"the {name} lane is still red" for name in red_lanes)
        return [_notification(NotificationKind.GREEN, lane, f"{mark} {label}: {what}", (total, *still))]
    if _is_next_verdict(reported, lane):
        passed = with_provisional(f"passed {total}", provisional.message if provisional is not None else "")
        return [_notification(NotificationKind.PASSED, lane, f"{mark} {label}: {passed}", ())]
    return []


def _is_next_verdict(reported: ReportedLane, lane: LaneState) -> bool:
    run = lane.knowledge.run
    return run is not None and run.id != reported.run and not run.is_audit


def _notification(
    kind: NotificationKind, lane: LaneState, title: str, lines: tuple[str, ...], about: frozenset[str] = frozenset()
) -> Notification:
    knowledge = lane.knowledge
    is_green = knowledge.verdict is Verdict.PASSED
    return Notification(
        kind,
        title,
        tuple(line for line in lines if line),
        lane.lane,
        Verdict.UNKNOWN if is_green and mood(lane).colour is not Colour.GREEN else knowledge.verdict,
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
    """A notification did not reach the user; the message says why."""


class NotificationChannel(Protocol):
    """Shows one live notification per workspace: each replaces the last one. Its calls may be cancelled at any point.

    What cannot be done raises DeliveryFailed; no other exception leaves a channel.
    """

    async def describe(self) -> str:
        """Return what would show a notification, without showing any."""

    async def deliver(self, notification: Notification) -> None:
        """Show a notification; it is visible when this returns."""

    async def withdraw(self) -> None:
        """Remove the live notification, if there is one and the channel can remove it."""

    async def close(self) -> None:
        """Close connections. What is shown stays."""


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one time of the local day to another, which may be on the next day. If both are the same: never."""

    start: datetime.time = datetime.time()
    end: datetime.time = datetime.time()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse `22:00-07:00`, as validated by the config; an empty text means never."""
        if not text:
            return cls()
        start, _, end = text.partition("-")
        return cls(datetime.time.fromisoformat(start), datetime.time.fromisoformat(end))

    def contains(self, local: time.struct_time) -> bool:
        now = datetime.time(local.tm_hour, local.tm_min)
        if self.start <= self.end:
            return self.start <= now < self.end
        return now >= self.start or now < self.end
