"""The dashboard of a watcher in another process, over its control socket.

The watcher renders the rows; actions go back to it as API requests. The terminal also shows the notifications of a
watcher that has neither a desktop nor a terminal of its own.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from urllib.parse import urlencode

from watchtest.client.watcher import Document, RequestRefused, Watcher
from watchtest.core.model import Location
from watchtest.core.text import encodable, uncleaned
from watchtest.errors import WatchtestError
from watchtest.exit_codes import INTERRUPTED
from watchtest.views.dashboard.actions import Action, requests_of
from watchtest.views.dashboard.dashboard import Dashboard
from watchtest.views.dashboard.live_screen import INTERVAL_S
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.dashboard.styled_rows import StyledRow, from_document, outdated_row, text_row
from watchtest.views.dashboard.watcher_screen import DEFAULT_HEIGHT
from watchtest.views.notify.notifications import DeliveryFailed
from watchtest.views.notify.notifier import Outbox
from watchtest.views.notify.terminal_channel import TerminalAccess, TerminalChannel, relayed_notification

log = logging.getLogger(__name__)

TICK_S = 0.25
NOTE_S = 5.0
"""How long a message is shown."""
LOST_LIMIT_S = 10.0
"""How long to wait for a watcher that does not answer: it may be restarting."""
RETRY_S = 0.5
SILENCE_S = 3.0
"""A watcher answers every second, changed or not. After this time without an answer, the screen may be outdated."""
SETTLE_S = 1.0
OUTDATED = "bold white on bright_black"


async def run_attached_dashboard(watcher: Watcher, environ: Mapping[str, str]) -> int:
    """Show the dashboard until the user leaves or the watcher is gone, and return the exit code."""
    left = asyncio.Event()
    backend = RemoteBackend(watcher, left.set)
    dashboard = Dashboard(backend, str(watcher.folder), environ, backend.say)
    access = TerminalAccess(_write_to_stdout, lambda: dashboard.is_program_open)
    backend.notifier = AttachedNotifier(environ, str(watcher.folder), access, backend.say)
    code = 0

    def interrupt() -> None:
        nonlocal code
        if not dashboard.is_program_open:  # otherwise Ctrl-C is meant for the pager or editor
            code = INTERRUPTED
            left.set()

    async def tick() -> None:
        while True:
            await asyncio.sleep(TICK_S)
            dashboard.tick(time.time())

    running = asyncio.get_running_loop()
    running.add_signal_handler(signal.SIGINT, interrupt)
    for number in (signal.SIGTERM, signal.SIGHUP):
        running.add_signal_handler(number, left.set)
    async with dashboard:
        following = asyncio.create_task(backend.follow(dashboard.screen.refresh), name="follow the watcher")
        ticking = asyncio.create_task(tick(), name="tick")
        leaving = asyncio.create_task(left.wait(), name="leave")
        done, others = await asyncio.wait({following, ticking, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in others:
            task.cancel()
        await asyncio.gather(*others, backend.settle(), return_exceptions=True)
    for task in done:
        task.result()  # raise the error of a task that failed: it ends the command
    return code


class RemoteBackend:
    """Holds the watcher's last screen, and asks for a new one when the view changes or the watcher has a newer one."""

    def __init__(self, watcher: Watcher, leave: Callable[[], None]) -> None:
        self._watcher = watcher
        self._leave = leave
        self._document: Document = {}
        self._rows: tuple[StyledRow, ...] = ()
        self._answered_at = time.time()
        self._is_lost = False
        """The last request failed."""
        self._wanted = (ViewState(), 0)
        self._has_changed = asyncio.Event()
        self._note: tuple[float, str] = (0.0, "")
        self._requests: set[asyncio.Task[None]] = set()
        self.notifier: AttachedNotifier | None = None

    def say(self, text: str) -> None:
        self._note = (time.time(), text)
        self._has_changed.set()

    # -- the screen --------------------------------------------------------------------------------

    def rows(self, view: ViewState, height: int, now: float) -> Sequence[StyledRow]:
        if (view, height) != self._wanted:
            self._wanted = (view, height)
            self._has_changed.set()
        rows = [*self._rows[:height], *[StyledRow()] * (height - len(self._rows))]
        at, note = self._note
        note = note if now - at < NOTE_S else ""
        silence_s = now - self._answered_at
        if rows and (self._is_lost or silence_s > SILENCE_S):
            rows = [replace(outdated_row(rows[0]), band=OUTDATED), *map(outdated_row, rows[1:])]
            note = note or f"no answer from the watcher for {silence_s:.0f} s; this is its last screen"
        if note and len(rows) > 1:
            rows[-2] = text_row(note, "bold yellow")
        return rows

    def failure_count(self, view: ViewState) -> int:
        return int(self._document.get("choices", 0))

    def location(self, view: ViewState) -> Location | None:
        place = self._document.get("place")
        return Location(str(place["file"]), int(place["line"])) if place else None

    async def output(self, view: ViewState) -> str:
        try:
            document = await _in_thread(partial(self._watcher.get, f"/output?{_query(view)}"))
        except WatchtestError as error:
            return str(error)
        return str(document.get("text", ""))

    async def follow(self, refresh: Callable[[float], None]) -> None:
        """Keep the screen up to date; raise the watcher's error if it has not answered for too long."""
        last_answer = time.monotonic()
        asking: asyncio.Future[Document] | None = None
        while True:
            self._has_changed.clear()
            view, height = self._wanted
            after = self._document.get("seq", 0) if asking is None else 0
            query = _query(view, height=height or DEFAULT_HEIGHT, after=after)
            asking = asyncio.ensure_future(_in_thread(partial(self._watcher.get, f"/screen?{query}")))
            changing = asyncio.ensure_future(self._has_changed.wait())
            await asyncio.wait({asking, changing}, return_when=asyncio.FIRST_COMPLETED)
            changing.cancel()
            if not asking.done():  # the view has changed: ask again, and ignore this answer
                asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
                refresh(time.time())
                continue
            try:
                self._take(asking.result())
            except WatchtestError as error:
                if time.monotonic() - last_answer > LOST_LIMIT_S:
                    raise
                self._is_lost = True
                self.say(error.message)
                await asyncio.sleep(RETRY_S)
            else:
                last_answer = time.monotonic()
                if self._is_lost:
                    self._note = (0.0, "")  # the message that it did not answer is outdated
                self._answered_at, self._is_lost = time.time(), False
            asking = None
            refresh(time.time())
            await asyncio.sleep(INTERVAL_S)

    def _take(self, document: Document) -> None:
        try:
            self._rows = tuple(from_document(row) for row in document["rows"])
        except (KeyError, TypeError, ValueError):
            self.say("cannot read the watcher's answer; does it run a different version of watchtest?")
            return
        self._document = document
        if self.notifier is not None:
            self.notifier.receive(document.get("notice"))

    # -- actions -----------------------------------------------------------------------------------

    def perform(self, action: Action, view: ViewState) -> None:
        if action is Action.QUIT:
            self._leave()
            return
        task = asyncio.create_task(self._request(action, view), name=f"request {action}")
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)

    async def settle(self) -> None:
        """Wait for requests and notifications that are under way."""
        if self._requests:
            await asyncio.wait(self._requests, timeout=SETTLE_S)
        if self.notifier is not None:
            await self.notifier.outbox.close(SETTLE_S)

    async def _request(self, action: Action, view: ViewState) -> None:
        try:
            for path, body in requests_of(action, view.filter, self._document):
                await _in_thread(partial(self._watcher.post, path, body))
        except RequestRefused as refusal:
            self.say(refusal.message)
        except WatchtestError as error:
            self.say(str(error))


class AttachedNotifier:
    """Shows the watcher's live notification on this terminal. A notification from before attaching is not shown."""

    def __init__(
        self, environ: Mapping[str, str], workspace: str, access: TerminalAccess, say: Callable[[str], None]
    ) -> None:
        self._environ = environ
        self._workspace = workspace
        self._access = access
        self.outbox = Outbox("a notification", self._show, say, most=1)
        self._has_received = False
        self._received: Document | None = None
        self._channel: TerminalChannel | None = None

    def receive(self, live: Document | None) -> None:
        """Take the notification that is live at the watcher now; show it if it is new."""
        is_new, self._received = self._has_received and live != self._received, live
        self._has_received = True
        if is_new:
            self.outbox.put(live)

    async def _show(self, live: Document | None) -> None:
        try:
            if live is not None:
                notification, method = relayed_notification(live)
                self._channel = TerminalChannel(self._access, self._environ, self._workspace, method)
                await self._channel.deliver(notification)
            elif self._channel is not None:
                await self._channel.withdraw()
        except (ValueError, TypeError, KeyError):  # from a different version of watchtest
            log.info("cannot read a notification of the watcher: %r", live)
        except DeliveryFailed as failure:
            log.info("%s", failure)


def _write_to_stdout(text: str) -> None:
    """Write from the event loop's thread, as the dashboard does, so that no drawing is interrupted."""
    stream = uncleaned(sys.stdout)
    stream.write(encodable(text, stream.encoding))
    stream.flush()


async def _in_thread(ask: Callable[[], Document]) -> Document:
    """Run a blocking request in a daemon thread, so that a watcher that hangs does not keep the user from leaving."""
    answer: Future[Document] = Future()
    answer.set_running_or_notify_cancel()  # a caller that is cancelled does not cancel the request

    def work() -> None:
        try:
            answer.set_result(ask())
        except Exception as error:  # noqa: BLE001  passed on to the caller
            answer.set_exception(error)

    threading.Thread(target=work, name="ask the watcher", daemon=True).start()
    return await asyncio.wrap_future(answer)


def _query(view: ViewState, **more: int) -> str:
    members: dict[str, object] = {"panel": view.panel, "filter": view.filter, "typing": int(view.is_typing)}
    if view.selected is not None:
        members["chosen"] = view.selected
    return urlencode({**members, **more})
