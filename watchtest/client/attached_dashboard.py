"""A dashboard over the control socket: rows come as the watcher would draw them, wishes go to it as requests.

The terminal of an attached dashboard, told what its watcher can tell no other way.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Protocol
from urllib.parse import urlencode

from watchtest.control.client import Declined
from watchtest.core.model import Location
from watchtest.core.text import encodable
from watchtest.errors import WatchtestError
from watchtest.views.dashboard.dashboard import Dashboard
from watchtest.views.dashboard.live_screen import INTERVAL_S
from watchtest.views.dashboard.navigation import NOTHING_CHOSEN, Action, ViewState
from watchtest.views.dashboard.styled_rows import StyledRow, from_document, text_row
from watchtest.views.notify.notifications import DeliveryFailed
from watchtest.views.notify.notifier import Outbox
from watchtest.views.notify.terminal_channel import TerminalAccess, TerminalChannel, relayed_notification

log = logging.getLogger(__name__)

Document = dict[str, Any]


class AttachedNotifier:
    """Use it within one event loop. What stood there before the first look is no news."""

    def __init__(
        self, environ: Mapping[str, str], workspace: str, access: TerminalAccess, say: Callable[[str], None]
    ) -> None:
        self._environ = environ
        self._workspace = workspace
        self._access = access
        self._outbox = Outbox("a notification", self._tell, say, most=1)
        self._has_looked = False
        self._heard: Document | None = None
        self._channel: TerminalChannel | None = None

    def hear(self, live: Document | None) -> None:
        """The notice that is live at the watcher now."""
        is_news, self._heard = self._has_looked and live != self._heard, live
        self._has_looked = True
        if is_news:
            self._outbox.put(live)

    async def close(self, grace_s: float) -> None:
        await self._outbox.close(grace_s)

    async def _tell(self, live: Document | None) -> None:
        try:
            if live is None:
                await self._channel.withdraw() if self._channel is not None else None
                return
            notice, form = relayed_notification(live)
            self._channel = TerminalChannel(self._access, self._environ, self._workspace, form)
            await self._channel.deliver(notice)
        except (ValueError, TypeError, KeyError):  # of another version of watchtest
            log.info("a notice that cannot be understood")
        except DeliveryFailed as failure:
            log.info("%s", failure)


def write_to_stdout(text: str) -> None:
    """In the loop's own thread, as the dashboard draws: no drawing is under way."""
    sys.stdout.write(encodable(text, sys.stdout.encoding))
    sys.stdout.flush()


INTERRUPTED = 130
TICK_S = 0.25
NOTE_S = 5.0
"""So long an answer of the watcher is shown."""
GONE_LIMIT_S = 10.0
"""So long a watcher that does not answer is waited for: it may have been started anew."""
RETRY_S = 0.5
SILENCE_S = 3.0
"""A watcher answers each second, be there something new or not: after this, what it said last may not be true."""
SETTLE_S = 1.0
OUTDATED = "bold white on bright_black"

Request = tuple[str, dict[str, object] | None]
"""A path and a body."""


class WatcherApi(Protocol):
    """Whom to ask. `get` and `post` block, and raise a WatchtestError."""

    @property
    def folder(self) -> Any: ...

    def get(self, path: str) -> Document: ...

    def post(self, path: str, body: dict[str, object] | None = None) -> Document: ...


async def run_attached_dashboard(watcher: WatcherApi, environ: Mapping[str, str]) -> int:
    """Until the user leaves, or the watcher has; the exit code."""
    left = asyncio.Event()
    scene = RemoteBackend(watcher, left.set)
    frontend = Dashboard(scene, str(watcher.folder), environ, scene.say)
    access = TerminalAccess(write_to_stdout, lambda: frontend.is_away)
    scene.ringing = AttachedNotifier(environ, str(watcher.folder), access, scene.say)
    code = 0

    def interrupt() -> None:
        nonlocal code
        if not frontend.is_away:  # else it is meant for the pager or the editor that has the terminal
            code = INTERRUPTED
            left.set()

    running = asyncio.get_running_loop()
    running.add_signal_handler(signal.SIGINT, interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        running.add_signal_handler(number, left.set)
    async with frontend:
        following = asyncio.create_task(scene.follow(frontend.refresh), name="follow the watcher")
        ticking = asyncio.create_task(_tick(frontend), name="tick")
        leaving = asyncio.create_task(left.wait(), name="leave")
        tasks = {following, ticking, leaving}
        done, others = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, scene.settle(), return_exceptions=True)
    for task in done:
        task.result()  # an exception of a task that failed is the end of this command, said by the command line
    return code


async def _tick(frontend: Dashboard) -> None:
    while True:
        await asyncio.sleep(TICK_S)
        frontend.tick(time.time())


class RemoteBackend:
    """What was heard last; asked for anew whenever the look changes or the watcher has something new."""

    def __init__(self, watcher: WatcherApi, leave: Callable[[], None]) -> None:
        self._watcher = watcher
        self._leave = leave
        self._document: Document = {}
        self._rows: tuple[StyledRow, ...] = ()
        self._heard_at = time.time()
        self._is_lost = False
        """The last request failed."""
        self._wanted = (ViewState(), 0)
        self._has_news = asyncio.Event()
        self._note: tuple[float, str] = (0.0, "")
        self._asking: set[asyncio.Task[None]] = set()
        self.ringing: AttachedNotifier | None = None

    def say(self, text: str) -> None:
        self._note = (time.time(), text)
        self._has_news.set()

    # -- what is shown -----------------------------------------------------------------------------

    def rows(self, look: ViewState, height: int, now: float) -> Sequence[StyledRow]:
        if (look, height) != self._wanted:
            self._wanted = (look, height)
            self._has_news.set()
        rows = [*self._rows[:height], *[StyledRow()] * (height - len(self._rows))]
        at, note = self._note
        note = note if now - at < NOTE_S else ""
        silence_s = now - self._heard_at
        if rows and (self._is_lost or silence_s > SILENCE_S):
            rows[0] = replace(rows[0], band=OUTDATED)
            note = note or f"the watcher has not answered for {silence_s:.0f} s: this is what it said last"
        if note and len(rows) > 1:
            rows[-2] = text_row(note, "bold yellow")
        return rows

    def choices(self, look: ViewState) -> int:
        return int(self._document.get("choices", 0))

    def place(self, look: ViewState) -> Location | None:
        place = self._document.get("place")
        return Location(str(place["file"]), int(place["line"])) if place else None

    async def page(self, look: ViewState) -> str:
        try:
            document = await _asked(partial(self._watcher.get, f"/output?{_query(look)}"))
        except WatchtestError as error:
            return str(error)
        return str(document.get("text", ""))

    # -- hearing -----------------------------------------------------------------------------------

    async def follow(self, refresh: Callable[[float], None]) -> None:
        """For ever; raises once the watcher has been silent for too long."""
        last_heard = time.monotonic()
        asking: asyncio.Future[Document] | None = None
        while True:
            self._has_news.clear()
            look, height = self._wanted
            after = self._document.get("seq", 0) if asking is None else 0
            asking = asyncio.ensure_future(
                _asked(partial(self._watcher.get, f"/screen?{_query(look, height=height or 24, after=after)}"))
            )
            news = asyncio.ensure_future(self._has_news.wait())
            await asyncio.wait({asking, news}, return_when=asyncio.FIRST_COMPLETED)
            news.cancel()
            if not asking.done():  # another look: what was asked for is of no interest any more
                asking.add_done_callback(_forget)
                refresh(time.time())
                continue
            try:
                self._take(asking.result())
            except WatchtestError as error:
                if time.monotonic() - last_heard > GONE_LIMIT_S:
                    raise
                self._is_lost = True
                self.say(error.message)
                await asyncio.sleep(RETRY_S)
            else:
                last_heard = time.monotonic()
                if self._is_lost:
                    self._note = (0.0, "")  # it is back: that it was gone is no news
                self._heard_at, self._is_lost = time.time(), False
            asking = None
            refresh(time.time())
            await asyncio.sleep(INTERVAL_S)

    def _take(self, document: Document) -> None:
        try:
            self._rows = tuple(from_document(row) for row in document["rows"])
        except (KeyError, TypeError, ValueError):
            self.say("the watcher's answer cannot be understood: is it another version of watchtest?")
            return
        self._document = document
        if self.ringing is not None:
            self.ringing.hear(document.get("notice"))

    # -- asking ------------------------------------------------------------------------------------

    def wish(self, wish: Action, look: ViewState) -> None:
        if wish is Action.QUIT:
            self._leave()
            return
        task = asyncio.create_task(self._ask(wish, look), name=f"ask for {wish}")
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def settle(self) -> None:
        """Requests and notices that are on their way."""
        if self._asking:
            await asyncio.wait(self._asking, timeout=SETTLE_S)
        if self.ringing is not None:
            await self.ringing.close(SETTLE_S)

    async def _ask(self, wish: Action, look: ViewState) -> None:
        try:
            for path, body in _requests(wish, look, self._document):
                await _asked(partial(self._watcher.post, path, body))
        except Declined as refused:
            self.say(refused.message)
        except WatchtestError as error:
            self.say(str(error))


async def _asked(ask: Callable[[], Document]) -> Document:
    """By a thread that nobody waits for at the end: a watcher that hangs must not hold a user who leaves."""
    running = asyncio.get_running_loop()
    answer: asyncio.Future[Document] = running.create_future()

    def settle(document: Document | None, error: Exception | None) -> None:
        if answer.done():
            return  # nobody waits any more
        if error is not None:
            answer.set_exception(error)
        elif document is not None:
            answer.set_result(document)

    def work() -> None:
        document, failure = None, None
        try:
            document = ask()
        except Exception as error:  # noqa: BLE001  whoever waits gets it
            failure = error
        with suppress(RuntimeError):  # the loop has ended
            running.call_soon_threadsafe(settle, document, failure)

    threading.Thread(target=work, name="ask the watcher", daemon=True).start()
    return await answer


def _forget(asking: asyncio.Future[Document]) -> None:
    if not asking.cancelled():
        asking.exception()


def _query(look: ViewState, **more: int) -> str:
    members: dict[str, object] = {"panel": look.panel, "filter": look.filter, "typing": int(look.is_typing)}
    if look.chosen != NOTHING_CHOSEN:
        members["chosen"] = look.chosen
    return urlencode({**members, **more})


def _requests(wish: Action, look: ViewState, seen: Document) -> list[Request]:
    """What a wish is in the words of the API, for what was seen when it was made."""
    match wish:
        case Action.ALL:
            return [("/policy", {"policy": "configured"}), ("/runs", {"policy": "all"})]
        case Action.FAILED if seen.get("override") == "failed":
            return [("/policy", {"policy": "configured"})]
        case Action.FAILED:
            run: list[Request] = [("/runs", {"policy": "failed"})] if seen.get("red") else []
            return [("/policy", {"policy": "failed"}), *run]
        case Action.RERUN:
            return [("/runs", {"matching": look.filter} if look.filter else {"again": True})]
        case Action.CANCEL | Action.KILL:
            return [(f"/runs/current/{wish.value}", None)]
        case Action.PAUSE:
            return [("/resume" if seen.get("paused") else "/pause", {"lane": seen.get("lane")})]
        case _:
            return []
