"""The control API over its real socket: it requests, watches, ends and pauses runs, and refuses invalid requests."""

from __future__ import annotations

import asyncio
import json
import stat
import time
from pathlib import Path
from typing import Any

import pytest
from support.control_server import TEST, Bench, FakeHistory, bench, play, short_folder

from watchtest.client.watcher import ControlClient, RequestRefused
from watchtest.control.api.operations import BODY_LIMIT
from watchtest.control.run_reports import RunReport
from watchtest.core.events import SourceChanged, SourceCompared
from watchtest.core.model import All, Lane, Only, Outcome, Policy, RunState, Trigger
from watchtest.errors import ControlError, EngineError


def test_a_run_that_is_asked_for_is_told_from_queue_to_end() -> None:
    async def story(watcher: Bench) -> None:
        requested = await watcher.post("/runs", {"tests": [TEST]})
        assert (requested["lane"], requested["trigger"], requested["ended"]) == ("save", "manual", False)
        await watcher.until("it runs", lambda: len(watcher.runs.started) == 1)
        assert watcher.runs.started[0].run.id == requested["id"]
        selection = watcher.runs.started[0].run.selection
        assert isinstance(selection, Only)
        assert selection.tests == (TEST,)
        report = await watcher.get("/runs/current")
        assert (report["id"], report["state"], report["tree"]) == (requested["id"], "running", "tree1")
        assert report["progress"] == {"done": 0, "total": 1}
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        end = await watcher.end_of(requested["id"])
        assert (end["state"], end["counts"]["passed"], end["reason"]) == ("passed", 1, None)

    play(story, policy=Policy.OFF)


def test_a_superseded_run_names_the_run_that_goes_on_in_its_place() -> None:
    async def story(watcher: Bench) -> None:
        requested = await watcher.post("/runs", {"tests": [TEST]})
        await watcher.until("it runs", lambda: len(watcher.runs.started) == 1)
        watcher.loop.post(SourceCompared(Lane.SAVE, time.time(), requested["id"], frozenset({"code.py"})))
        given_up = await watcher.end_of(requested["id"])
        assert given_up["state"] == "superseded"
        await watcher.until("its successor runs", lambda: len(watcher.runs.started) == 2)
        successor = watcher.runs.started[1].run
        assert (given_up["successor"], successor.selection) == (successor.id, watcher.runs.started[0].run.selection)
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        end = await watcher.end_of(successor.id)
        assert (end["state"], end["successor"]) == ("passed", None)

    play(story, policy=Policy.OFF)


def test_the_answer_to_an_accepted_run_is_202_and_to_an_ended_one_200() -> None:
    async def story(watcher: Bench) -> None:
        accepted = await watcher.raw(_request("POST", "/runs", b"{}"))
        assert accepted.startswith(b"HTTP/1.1 202 ")
        run = json.loads(accepted.partition(b"\r\n\r\n")[2])["id"]
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await watcher.end_of(run)
        assert (await watcher.raw(_request("POST", f"/runs/{run}/cancel", b""))).startswith(b"HTTP/1.1 200 ")

    play(story, policy=Policy.OFF)


def test_a_run_by_policy_gets_its_selection_from_what_is_known() -> None:
    async def story(watcher: Bench) -> None:
        for policy in ("all", "failed", "affected"):
            watcher.runs.outcomes.put_nowait(Outcome.PASSED)
            await watcher.end_of((await watcher.post("/runs", {"policy": policy}))["id"])
        because = [start.run.selection for start in watcher.runs.started]
        assert [type(selection) for selection in because] == [All, All, All]
        assert "none is known to fail" in because[1].because

    play(story, policy=Policy.OFF)


def test_runs_wait_in_line_each_under_its_own_id_and_none_is_lost() -> None:
    async def story(watcher: Bench) -> None:
        requested = [(await watcher.post("/runs", {"tests": [f"test_{n}.py"]}))["id"] for n in range(5)]
        assert len(set(requested)) == 5
        waiting = await watcher.get(f"/runs/{requested[3]}")
        assert (waiting["state"], waiting["reason"]) == ("queued", f"run {requested[0]} is in progress")
        for _ in requested:
            watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        ends = [await watcher.end_of(run) for run in requested]
        assert [end["state"] for end in ends] == ["passed"] * 5
        assert [start.run.id for start in watcher.runs.started][:5] == requested

    play(story, policy=Policy.OFF)


def test_a_full_queue_refuses_the_next_run_in_words() -> None:
    async def story(watcher: Bench) -> None:
        async def ask_without_end() -> None:
            for _ in range(200):
                await watcher.post("/runs", {"tests": [TEST]})

        with pytest.raises(RequestRefused) as refused:
            await ask_without_end()
        assert refused.value.reason == "queue_full"
        for lane in watcher.loop.state.ranked:
            for requested in lane.queue.waiting:
                await watcher.post(f"/runs/{requested.id}/cancel")

    play(story, policy=Policy.OFF)


@pytest.mark.parametrize(("verb", "state"), [("cancel", "cancelled"), ("kill", "killed")])
def test_the_run_under_way_is_ended_once_however_often_it_is_asked(verb: str, state: str) -> None:
    async def story(watcher: Bench) -> None:
        requested = await watcher.post("/runs")
        stopping = await watcher.post(f"/runs/current/{verb}")
        assert stopping["id"] == requested["id"]
        assert stopping["stopping"] or stopping["ended"]
        assert (await watcher.end_of(requested["id"]))["state"] == state
        for _ in range(2):
            again = await watcher.post(f"/runs/{requested['id']}/{verb}")
            assert (again["id"], again["state"]) == (requested["id"], state)
        with pytest.raises(RequestRefused, match="nothing is running"):
            await watcher.post(f"/runs/current/{verb}")

    play(story, policy=Policy.OFF)


def test_a_run_that_waits_is_cancelled_without_touching_the_one_under_way() -> None:
    async def story(watcher: Bench) -> None:
        first, second = [(await watcher.post("/runs", {"tests": [name]}))["id"] for name in ("test_a.py", "test_b.py")]
        await watcher.post(f"/runs/{second}/cancel")
        assert (await watcher.end_of(second))["state"] == "cancelled"
        assert (await watcher.get("/runs/current"))["id"] == first
        watcher.runs.outcomes.put_nowait(Outcome.FAILED)
        assert (await watcher.end_of(first))["state"] == "failed"
        assert len(watcher.runs.started) == 1

    play(story, policy=Policy.OFF)


def test_cancelling_a_run_of_a_lower_lane_leaves_the_higher_lane_alone() -> None:
    async def story(watcher: Bench) -> None:
        commit = (await watcher.post("/runs", {"lane": "commit"}))["id"]
        save = (await watcher.post("/runs", {"lane": "save"}))["id"]
        assert (await watcher.get("/runs/current"))["id"] == save
        await watcher.post(f"/runs/{commit}/cancel")
        assert (await watcher.end_of(commit))["state"] == "cancelled"
        assert (await watcher.get("/runs/current"))["id"] == save
        await watcher.post("/runs/current/kill")
        assert (await watcher.end_of(save))["state"] == "killed"

    play(story, Lane.SAVE, Lane.COMMIT, policy=Policy.OFF)


def test_a_run_that_breaks_says_why() -> None:
    async def story(watcher: Bench) -> None:
        requested = await watcher.post("/runs")
        watcher.runs.outcomes.put_nowait(ValueError("out of order"))
        end = await watcher.end_of(requested["id"])
        assert end["state"] == "broken"
        assert "ValueError: out of order" in end["reason"]
        await watcher.post("/pause")

    play(story, policy=Policy.OFF)


def test_with_nothing_under_way_a_cancel_calls_off_the_next_attempt() -> None:
    async def story(watcher: Bench) -> None:
        requested = await watcher.post("/runs")
        watcher.runs.outcomes.put_nowait(EngineError("the engine is away"))
        assert (await watcher.end_of(requested["id"]))["state"] == "broken"
        with pytest.raises(RequestRefused, match="will not retry by itself"):
            await watcher.post("/runs/current/cancel")
        await asyncio.sleep(0.7)  # the first attempt would have come after half a second
        assert len(watcher.runs.started) == 1

    play(story, policy=Policy.OFF)


def test_a_paused_lane_keeps_what_is_asked_until_it_is_resumed() -> None:
    async def story(watcher: Bench) -> None:
        for _ in range(2):
            assert (await watcher.post("/pause"))["lanes"] == {"save": {"paused": True}}
        watcher.loop.post(SourceChanged(Lane.SAVE, 1.0, frozenset({"code.py"})))
        requested = await watcher.post("/runs")
        waiting = await watcher.get(f"/runs/{requested['id']}")
        assert waiting["state"] == "queued"
        assert "paused" in waiting["reason"]
        assert watcher.runs.started == []
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        assert (await watcher.post("/resume", {"lane": "save"}))["lanes"] == {"save": {"paused": False}}
        assert (await watcher.end_of(requested["id"]))["state"] == "passed"

    play(story)


def test_one_lane_can_be_paused_alone() -> None:
    async def story(watcher: Bench) -> None:
        answer = await watcher.post("/pause", {"lane": "commit"})
        assert answer["lanes"] == {"save": {"paused": False}, "commit": {"paused": True}}

    play(story, Lane.SAVE, Lane.COMMIT, policy=Policy.OFF)


def test_runs_that_memory_has_lost_come_from_the_history() -> None:
    past = FakeHistory([RunReport("old.1", Lane.SAVE, Trigger.SAVE, RunState.FAILED, counts={Outcome.FAILED: 2})])

    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, past=past) as watcher:
                report = await watcher.get("/runs/old.1")
                assert (report["state"], report["counts"]["failed"]) == ("failed", 2)
                assert (await watcher.post("/runs/old.1/kill"))["state"] == "failed"
                for path in ("/runs/none.1", "/runs/..", "/runs/a%00b", "/runs/" + "9" * 500):
                    with pytest.raises(RequestRefused):
                        await watcher.get(path)

    asyncio.run(whole())


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "not JSON"),
        (b"[" * 60_000, "not JSON"),
        (b'"all"', "must be a JSON object"),
        (b'{"argv": ["-x"]}', "unknown member 'argv'"),
        (b'{"tests": []}', "at least one test"),
        (b'{"tests": "test_a.py"}', "at least one test"),
        (b'{"tests": [7]}', "not a test: 7"),
        (b'{"tests": [""]}', "not a test"),
        (b'{"tests": ["-p no:cacheprovider"]}', "not a test"),
        (b'{"tests": ["@options.txt"]}', "not a test"),
        (b'{"tests": ["test_a.py\\u0000"]}', "not a test"),
        (b'{"tests": ["test_a.py\\n-x"]}', "not a test"),
        (b'{"tests": ["\\ud800"]}', "not valid Unicode"),
        (b'{"tests": ["../other/test_a.py"]}', "outside the workspace"),
        (b'{"tests": ["/etc/passwd"]}', "outside the workspace"),
        (b'{"tests": ["C:\\\\test_a.py"]}', "outside the workspace"),
        (b'{"tests": ["' + b"a" * 5000 + b'"]}', "the limit"),
        (b'{"policy": "off"}', "no such policy"),
        (b'{"policy": ["all"]}', "no such policy"),
        (b'{"policy": "all", "tests": ["test_a.py"]}', "exclude each other"),
        (b'{"lane": "stag"}', "no such lane"),
    ],
)
def test_a_run_that_asks_for_anything_but_tests_is_refused(body: bytes, words: str) -> None:
    async def story(watcher: Bench) -> None:
        answer = await watcher.raw(_request("POST", "/runs", body))
        head, _, content = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 400 ")
        refusal = json.loads(content)
        assert refusal.keys() == {"code", "message", "hint"}
        assert refusal["code"] == "bad_request"
        assert words in refusal["message"]
        assert watcher.runs.started == []

    play(story, policy=Policy.OFF)


def test_parameters_of_a_test_may_hold_what_a_path_may_not() -> None:
    async def story(watcher: Bench) -> None:
        test = "tests/test_a.py::test_paths[/etc/../x-é@\\]"
        watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        await watcher.end_of((await watcher.post("/runs", {"tests": [test]}))["id"])
        selection = watcher.runs.started[0].run.selection
        assert isinstance(selection, Only)
        assert selection.tests == (test,)

    play(story, policy=Policy.OFF)


@pytest.mark.parametrize("size", [BODY_LIMIT + 1, 10_000_000])
def test_a_body_that_is_too_large_is_refused_and_the_watcher_goes_on(size: int) -> None:
    async def story(watcher: Bench) -> None:
        answer = await watcher.raw(_request("POST", "/runs", b" " * size))
        assert answer.startswith(b"HTTP/1.1 413 ")
        assert b'"code":"too_large"' in answer
        chunked = b"POST /runs HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        chunks = (b"8000\r\n" + b" " * 0x8000 + b"\r\n") * (size // 0x8000 + 1) + b"0\r\n\r\n"
        assert (await watcher.raw(chunked + chunks)).startswith(b"HTTP/1.1 413 ")
        assert (await watcher.get("/health"))["status"] == "ok"

    play(story, policy=Policy.OFF)


def test_what_is_not_served_is_said_as_json() -> None:
    async def story(watcher: Bench) -> None:
        for request, status, code in (
            (_request("GET", "/nothing", b""), b"404", "no_such_route"),
            (_request("DELETE", "/runs", b""), b"405", "wrong_method"),
            (_request("POST", "/runs", b'{"lane": "commit"}'), b"409", "lane_off"),
            (_request("POST", "/runs/current/cancel", b'{"signal": 9}'), b"400", "bad_request"),
        ):
            head, _, content = (await watcher.raw(request)).partition(b"\r\n\r\n")
            assert head.split()[1] == status
            assert json.loads(content)["code"] == code
        assert (await watcher.raw(b"nonsense\r\n\r\n")).startswith(b"HTTP/1.1 400 ")

    play(story, policy=Policy.OFF)


# -- the socket and its server ---------------------------------------------------------------------


def test_only_the_user_can_reach_the_socket_and_it_goes_with_the_watcher() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            runtime = folder / "run"
            async with bench(runtime) as watcher:
                path = watcher.client.paths[0]
                assert stat.S_IMODE(path.stat().st_mode) == 0o600
                assert stat.S_IMODE(runtime.stat().st_mode) == 0o700
                assert (await watcher.get("/status"))["schema"] == "watchtest.status"
            assert list(runtime.iterdir()) == []

    asyncio.run(whole())


def test_a_socket_that_a_dead_watcher_left_is_replaced() -> None:
    async def whole() -> None:
        import socket

        with short_folder() as folder:
            async with bench(folder, is_awaited=False) as watcher:
                stale = watcher.client.paths[0]
            left = socket.socket(socket.AF_UNIX)
            left.bind(str(stale))
            left.close()
            async with bench(folder) as watcher:
                assert (await watcher.get("/health"))["status"] == "ok"

    asyncio.run(whole())


def test_a_folder_that_others_can_write_is_passed_over_by_both_ends() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            folder.chmod(0o777)
            async with bench(folder, is_awaited=False) as watcher:
                await watcher.until("it says so", lambda: bool(watcher.says))
                assert "not a private folder" in watcher.says[0]
                watcher.loop.post(SourceChanged(Lane.SAVE, 1.0, frozenset({"code.py"})))
                await watcher.until("the watcher goes on", lambda: len(watcher.runs.started) == 1)
                watcher.runs.outcomes.put_nowait(Outcome.PASSED)
            assert len(watcher.says) == 1

    asyncio.run(whole())


def test_a_server_that_fails_by_a_bug_is_said_once_and_the_watcher_goes_on() -> None:
    async def whole() -> None:
        async with bench(Path("/nowhere\0"), is_awaited=False) as watcher:
            await watcher.until("it says so", lambda: bool(watcher.says))
            assert watcher.says[0].startswith("the control socket failed (ValueError")
            watcher.loop.post(SourceChanged(Lane.SAVE, 1.0, frozenset({"code.py"})))
            await watcher.until("the watcher goes on", lambda: len(watcher.runs.started) == 1)
            watcher.runs.outcomes.put_nowait(Outcome.PASSED)
        assert len(watcher.says) == 1

    asyncio.run(whole())


def test_a_request_that_fails_by_a_bug_is_answered_and_the_next_is_served(caplog: pytest.LogCaptureFixture) -> None:
    def status() -> dict[str, Any]:
        raise ValueError("no document")

    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder, status=status) as watcher:
                with pytest.raises(ControlError, match="ValueError: no document"):
                    await watcher.get("/status")
                assert (await watcher.get("/health"))["status"] == "ok"

    asyncio.run(whole())
    assert "a bug ended a control request" in caplog.text


def test_a_socket_that_was_swept_away_is_made_again() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder) as watcher:
                path = watcher.client.paths[0]
                path.unlink()
                await watcher.until("it is there again", path.exists)
                deadline = asyncio.get_running_loop().time() + 5
                while True:
                    try:
                        assert (await watcher.get("/health"))["status"] == "ok"
                        break
                    except ControlError:
                        assert asyncio.get_running_loop().time() < deadline
                        await asyncio.sleep(0.05)

    asyncio.run(whole())


def test_who_waits_for_an_answer_hears_that_the_watcher_leaves() -> None:
    async def whole() -> None:
        with short_folder() as folder:
            async with bench(folder) as watcher:
                watcher.gateway.close()
                with pytest.raises(ControlError):
                    await watcher.post("/runs")

    asyncio.run(whole())


def test_a_silent_client_blocks_no_other() -> None:
    async def story(watcher: Bench) -> None:
        mute = [await asyncio.open_unix_connection(str(watcher.client.paths[0])) for _ in range(20)]
        mute[0][1].write(b"POST /runs HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
        assert (await asyncio.wait_for(watcher.post("/pause"), 2))["lanes"] == {"save": {"paused": True}}
        for _, writer in mute:
            writer.close()

    play(story, policy=Policy.OFF)


def test_a_client_finds_no_watcher_where_none_listens(tmp_path: Path) -> None:
    with pytest.raises(ControlError, match="no watcher listens"):
        ControlClient([tmp_path / "none.sock"]).get("/health")


def _request(method: str, path: str, body: bytes) -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
