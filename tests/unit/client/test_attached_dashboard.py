"""The dashboard over the control socket, and the API requests of its keys."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest
from support.control_server import TEST, Bench, play

from watchtest.client.attached_dashboard import OUTDATED, SILENCE_S, AttachedNotifier, RemoteBackend
from watchtest.client.watcher import RequestRefused
from watchtest.core.model import All, Lane, Only, Outcome, Policy, Verdict
from watchtest.errors import ControlError
from watchtest.views.dashboard.actions import Action
from watchtest.views.dashboard.navigation import ViewState
from watchtest.views.notify.notifications import Notification, NotificationKind
from watchtest.views.notify.terminal_channel import NotificationRelay, TerminalAccess, TerminalMethod


async def ran(watcher: Bench, outcome: Outcome) -> None:
    watcher.runs.outcomes.put_nowait(outcome)
    await watcher.end_of((await watcher.post("/runs", {"policy": "all"}))["id"])


def test_the_screen_has_the_requested_height_and_what_the_keys_need() -> None:
    async def story(watcher: Bench) -> None:
        await ran(watcher, Outcome.FAILED)
        screen = await watcher.get("/screen?height=15&filter=one&chosen=0")
        assert len(screen["rows"]) == 15
        assert (screen["choices"], screen["red"], screen["paused"], screen["override"]) == (1, 1, False, None)
        assert any("FAILED 1 of 1" in text for text, _ in screen["rows"][0]["left"])
        assert (await watcher.get("/screen?filter=other"))["choices"] == 0
        assert TEST in (await watcher.get("/output"))["text"]
        for query in ("height=0", "panel=x", "chosen=-1", "after=x", f"filter={'x' * 101}", "filter=%00", "x=1"):
            with pytest.raises(RequestRefused):
                await watcher.get(f"/screen?{query}")

    play(story, policy=Policy.OFF)


def test_a_screen_is_answered_when_there_is_something_new() -> None:
    async def story(watcher: Bench) -> None:
        await ran(watcher, Outcome.PASSED)
        seq = (await watcher.get("/screen"))["seq"]
        asking = asyncio.create_task(watcher.get(f"/screen?after={seq}"))
        await asyncio.sleep(0.1)
        assert not asking.done()
        await watcher.post("/pause")
        answer = await asking
        assert answer["paused"]
        assert answer["seq"] > seq

    play(story, policy=Policy.OFF)


def test_a_policy_counts_until_told_otherwise() -> None:
    async def story(watcher: Bench) -> None:
        answer = await watcher.post("/policy", {"policy": "failed"})
        assert answer == {"lane": "save", "policy": "failed", "configured": "all"}
        assert watcher.loop.state.top.policy_override is Policy.FAILED
        assert (await watcher.post("/policy", {"policy": "configured"}))["policy"] == "all"
        assert watcher.loop.state.top.policy_override is None
        for body in (
            {},
            {"policy": "off"},
            {"policy": 1},
            {"policy": "all", "x": 1},
            {"policy": "all", "lane": "commit"},
        ):
            with pytest.raises(RequestRefused):
                await watcher.post("/policy", dict(body))

    play(story)


def test_runs_are_asked_for_again_and_by_words_in_their_names() -> None:
    async def story(watcher: Bench) -> None:
        await ran(watcher, Outcome.FAILED)
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await watcher.end_of((await watcher.post("/runs", {"matching": "TEST_a one"}))["id"])
        assert watcher.runs.started[-1].run.selection == Only((TEST,), because="on request: names with 'TEST_a one'")
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await watcher.end_of((await watcher.post("/runs", {"again": True}))["id"])
        assert watcher.runs.started[-1].run.selection == Only((TEST,), because="the last tests again, on request")
        with pytest.raises(RequestRefused, match="no known test has 'nothing'"):
            await watcher.post("/runs", {"matching": "nothing"})
        for body in ({"again": False}, {"again": True, "policy": "all"}, {"matching": ""}, {"matching": "a\nb"}):
            with pytest.raises(RequestRefused):
                await watcher.post("/runs", dict(body))

    play(story, policy=Policy.OFF)


class Elsewhere:
    """The watcher of a bench, as an attached dashboard sees it; it can be gone for a while."""

    folder = "/some/workspace"

    def __init__(self, watcher: Bench) -> None:
        self._client = watcher.client
        self.is_gone = False
        self.stuck: threading.Event | None = None

    def get(self, path: str) -> dict[str, object]:
        if self.is_gone:
            raise ControlError("no watcher runs here")
        if self.stuck is not None:
            self.stuck.wait(60)
        return self._client.get(path)

    def post(self, path: str, body: dict[str, object] | None = None) -> dict[str, object]:
        return self._client.post(path, body)


def test_an_attached_dashboard_follows_asks_and_outlives_a_moment_without_a_watcher() -> None:
    async def story(watcher: Bench) -> None:
        await ran(watcher, Outcome.FAILED)
        is_left = asyncio.Event()
        elsewhere = Elsewhere(watcher)
        backend = RemoteBackend(elsewhere, is_left.set)
        following = asyncio.create_task(backend.follow(lambda _now: None))

        def shown(view: ViewState | None = None) -> str:
            rows = backend.rows(view or ViewState(), 24, time.time())
            assert len(rows) == 24
            return "\n".join(text for row in rows for text, _ in row.left)

        try:
            await watcher.until("it is red", lambda: "FAILED 1 of 1" in shown())
            assert backend.failure_count(ViewState()) == 1
            assert TEST in await backend.output(ViewState())
            await watcher.until("the help is there", lambda: "run all tests" in shown(ViewState(panel="help")))
            backend.perform(Action.CANCEL, ViewState())
            await watcher.until("it shows that nothing runs", lambda: "nothing is running" in shown())
            backend.perform(Action.FAILED, ViewState())
            await watcher.until("it runs", lambda: len(watcher.runs.started) == 2)
            assert isinstance(watcher.runs.started[-1].run.selection, Only)
            watcher.runs.outcomes.put_nowait(Outcome.PASSED)
            await watcher.until("it is green", lambda: "PASSED 1 test" in shown())
            elsewhere.is_gone = True
            await watcher.until("it shows that", lambda: "no watcher runs here" in shown())
            outdated = backend.rows(ViewState(), 24, time.time())
            assert outdated[0].band == OUTDATED  # what was green may have changed
            assert not [each for each in outdated if "green" in str(each) or "✔" in str(each)]
            elsewhere.is_gone = False
            await watcher.until("it is back", lambda: "no watcher runs here" not in shown())
            assert backend.rows(ViewState(), 24, time.time())[0].band == "bold black on green"
            backend.perform(Action.ALL, ViewState())
            await watcher.until("it runs all", lambda: len(watcher.runs.started) == 3)
            assert isinstance(watcher.runs.started[-1].run.selection, All)
            assert watcher.loop.state.top.policy_override is None
            watcher.runs.outcomes.put_nowait(Outcome.PASSED)
            backend.perform(Action.QUIT, ViewState())
            assert is_left.is_set()
        finally:
            following.cancel()
            await asyncio.gather(following, backend.settle(), return_exceptions=True)

    play(story, policy=Policy.OFF)


def test_an_attached_dashboard_says_when_the_watcher_is_silent_and_can_be_left_then() -> None:
    async def story(watcher: Bench) -> None:
        await ran(watcher, Outcome.PASSED)
        elsewhere = Elsewhere(watcher)
        backend = RemoteBackend(elsewhere, lambda: None)
        following = asyncio.create_task(backend.follow(lambda _now: None))
        await watcher.until(
            "it is green", lambda: backend.rows(ViewState(), 24, time.time())[0].band == "bold black on green"
        )
        elsewhere.stuck = threading.Event()
        rows = backend.rows(ViewState(), 24, time.time() + SILENCE_S + 1)
        assert rows[0].band == OUTDATED
        assert "this is its last screen" in rows[-2].left[0][0]
        await asyncio.sleep(1.5)  # one request is stuck now
        following.cancel()
        await asyncio.gather(following, backend.settle(), return_exceptions=True)

    began = time.monotonic()
    play(story, policy=Policy.OFF)
    assert time.monotonic() - began < 20


def test_an_attached_terminal_shows_the_notifications_of_a_watcher_without_one() -> None:
    async def story() -> list[str]:
        written: list[str] = []
        relay = NotificationRelay()
        notifier = AttachedNotifier({"TERM": "xterm-kitty"}, "/shop", TerminalAccess(written.append), pytest.fail)
        red = Notification(NotificationKind.RED, "✘ shop: 1 test failed", ("test_a",), Lane.SAVE, Verdict.FAILED)
        await relay.deliver(red)
        notifier.receive(relay.live)  # from the time before
        await relay.deliver(red)
        for _ in range(3):
            notifier.receive(relay.live)
        await notifier.outbox.close(5.0)
        assert len(written) == 1
        await relay.withdraw()
        notifier.receive(relay.live)
        await notifier.outbox.close(5.0)
        relay.method = TerminalMethod.BELL
        await relay.deliver(red)
        notifier.receive(relay.live)
        await notifier.outbox.close(5.0)
        notifier.receive({"number": 9})  # from a future version of watchtest
        await notifier.outbox.close(5.0)
        return written

    shown, withdrawn, rung = asyncio.run(story())
    assert shown.startswith("\x1b]99;")
    assert "p=close" in withdrawn
    assert rung == "\a"
