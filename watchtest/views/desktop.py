"""Desktop notifications: what is worth one (`notices`, pure), and their delivery beside the loop, never in its way.

desktop-notifier's `send` never raises: only `on_dispatched` proves delivery. A failure to deliver is reported once.
"""

from __future__ import annotations

import asyncio
import html
import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import ModuleType, TracebackType
from typing import Any, Protocol, Self

from watchtest.core.model import Lane, Verdict
from watchtest.core.state import Broken, Executing, Idle, LaneState, State, Working
from watchtest.views.text import names, one_line, tests

DELIVERY_S = 5.0
GRACE_S = 1.0
"""How long leaving waits for a notification that is on its way."""
LOST_ATTEMPTS = 3
NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Notice:
    """One notification. The title is ours alone; the text may hold names of tests, never values of assertions."""

    title: str
    text: str
    is_urgent: bool = False


@dataclass(frozen=True, slots=True)
class Told:
    """What the user believes of one lane: colour, red tests, and whether its box is lost."""

    is_red: bool | None = None
    red: frozenset[str] = frozenset()
    is_lost: bool = False


ToldLanes = Mapping[Lane, Told]


def notices(told: ToldLanes, state: State, workspace: str) -> tuple[tuple[Notice, ...], ToldLanes]:
    """What `state` adds to what was told, and what is told after that.

    A verdict that is neither red nor green (unknown, no tests) tells nothing and forgets nothing: red → unknown → green
    is still red → green. Runs that were cancelled or superseded change no knowledge, so they are silent by themselves.
    """
    said: list[Notice] = []
    after = dict(told)
    for lane in state.lanes.values():
        where = workspace if len(state.lanes) == 1 else f"{workspace} ({lane.lane.value})"
        new, after[lane.lane] = _lane(told.get(lane.lane, Told()), lane, where)
        said += new
    return tuple(said), after


def _lane(told: Told, lane: LaneState, where: str) -> tuple[list[Notice], Told]:
    said = []
    if _is_lost(lane) and not told.is_lost and lane.problem:
        told = replace(told, is_lost=True)
        said.append(Notice("watchtest: cannot run tests", f"{where}: {one_line(lane.problem.message)}", True))
    elif told.is_lost and _is_back(lane):
        told = replace(told, is_lost=False)
        said.append(Notice("watchtest: running tests again", where))
    knowledge = lane.knowledge
    red = frozenset(known.result.test for known in knowledge.red)
    if knowledge.verdict.is_red:
        new = red - told.red
        if not told.is_red:
            what = tests(len(red)) + " red" if red else "the run failed"
            said.append(Notice(f"watchtest: {what}", _named(where, red, one_line(knowledge.reason)), True))
        elif new:
            said.append(Notice(f"watchtest: {tests(len(new))} more red", _named(where, new, ""), True))
        told = replace(told, is_red=True, red=red)
    elif knowledge.verdict is Verdict.PASSED:
        if told.is_red:
            said.append(Notice("watchtest: green again", f"{where}: {tests(len(knowledge.tests))}"))
        told = replace(told, is_red=False, red=red)
    return said, told


def _named(where: str, red: frozenset[str], otherwise: str) -> str:
    return f"{where}: {names(red, NAMES_SHOWN) or otherwise}"


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


# -- delivery --------------------------------------------------------------------------------------


class DeliveryFailed(Exception):
    """Why a notification did not reach the desktop."""


class Channel(Protocol):
    """A way to the desktop: shows a notice in the place of the last one, or raises DeliveryFailed."""

    async def deliver(self, notice: Notice) -> None: ...

    async def close(self) -> None: ...


@dataclass
class Desktop:
    """Delivers what is worth telling; `show` returns at once. Enter and leave it within one event loop."""

    workspace: str
    on_problem: Callable[[str], None]
    channel: Channel = field(default_factory=lambda: DesktopNotifierChannel())
    delivery_s: float = DELIVERY_S
    _told: ToldLanes = field(default_factory=dict)
    _waiting: list[Notice] = field(default_factory=list)
    _task: asyncio.Task[None] | None = None
    _has_reported: bool = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task], timeout=GRACE_S)
            self._task.cancel()
            await asyncio.wait([self._task], timeout=GRACE_S)
        try:
            await asyncio.wait_for(self.channel.close(), GRACE_S)
        except TimeoutError:  # a bus that does not answer a goodbye is left without one
            pass

    def show(self, state: State) -> None:
        """Send what `state` adds, in the background."""
        new, self._told = notices(self._told, state, self.workspace)
        if not new:
            return
        # One live notification a workspace: what has not been sent yet is out of date.
        self._waiting = list(new)
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._send(), name="watchtest desktop")

    async def _send(self) -> None:
        while self._waiting:
            notice = self._waiting.pop(0)
            try:
                await asyncio.wait_for(self.channel.deliver(notice), self.delivery_s)
            except TimeoutError:
                self._report(f"no answer within {self.delivery_s:g} s")
            except DeliveryFailed as failure:
                self._report(str(failure))

    def _report(self, reason: str) -> None:
        if not self._has_reported:
            self._has_reported = True
            self.on_problem(f"desktop notifications do not work here: {one_line(reason)}; this is said once")


class _Heard(logging.Handler):
    """Keeps the last reason that desktop-notifier logs instead of raising."""

    def __init__(self) -> None:
        super().__init__()
        self.reason = ""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        self.reason = f"{type(error).__name__}: {error}" if error else record.getMessage()


class DesktopNotifierChannel:
    """The desktop through desktop-notifier, which is imported at the first notice and in a thread: it takes a while."""

    def __init__(self) -> None:
        self._notifier: Any = None
        self._shown: str | None = None
        self._heard = _Heard()

    async def deliver(self, notice: Notice) -> None:
        try:
            library = await asyncio.to_thread(_library, self._heard)
            await self._deliver(library, notice)
        except BaseException as error:
            self._drop()
            if isinstance(error, DeliveryFailed) or not isinstance(error, Exception):
                raise
            # Whatever a bus, a daemon or a backend throws, it is a failed delivery.
            raise DeliveryFailed(f"{type(error).__name__}: {error}") from error

    async def _deliver(self, library: ModuleType, notice: Notice) -> None:
        if self._notifier is None:
            self._notifier = library.DesktopNotifier(app_name="watchtest", app_icon=None)
        # Asked first because it raises where `send` does not, and because a backend that can do nothing
        # (Python outside a signed app on macOS) calls everything dispatched.
        if library.Capability.TITLE not in await self._notifier.get_capabilities():
            raise DeliveryFailed(self._heard.reason or "this system shows no notifications of this Python")
        if self._shown in await self._notifier.get_current_notifications():
            await self._notifier.clear(self._shown)
        was_dispatched = asyncio.Event()
        self._heard.reason = ""
        self._shown = await self._notifier.send(
            title=notice.title,
            # Only the desktops of Linux read markup in a text.
            message=html.escape(notice.text, quote=False) if sys.platform == "linux" else notice.text,
            urgency=library.Urgency.Critical if notice.is_urgent else library.Urgency.Normal,
            on_dispatched=was_dispatched.set,
            timeout=10,
        )
        if not was_dispatched.is_set():
            raise DeliveryFailed(self._heard.reason or "it was not dispatched")

    async def close(self) -> None:
        self._drop()

    def _drop(self) -> None:
        """Forget the connection, so that the next notice makes a new one."""
        notifier, self._notifier, self._shown = self._notifier, None, None
        bus = getattr(getattr(notifier, "_backend", None), "bus", None)
        if bus is not None:
            bus.disconnect()


def _library(heard: logging.Handler) -> ModuleType:
    logger = logging.getLogger("desktop_notifier")
    if heard not in logger.handlers:
        # Its warnings come with tracebacks and would land on the dashboard.
        logger.handlers = [heard]
        logger.propagate = False
    return importlib.import_module("desktop_notifier")
