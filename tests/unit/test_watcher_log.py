"""The watcher's log: the content of a record, what happens if its file is removed, and that only the watcher writes
it."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import shutil
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.watcher_states import Story, failed

from watchtest import cli
from watchtest.errors import WorkspaceError
from watchtest.views.lines.plain_lines import log_event
from watchtest.watcher_log import (
    LOG_BYTES,
    NAME,
    OLD_FILES,
    LogFollower,
    create_logged_task,
    format_record,
    last_lines,
    logging_to,
)
from watchtest.workspace.lock import WatcherLock

A = "tests/test_a.py::test_a"
log = logging.getLogger("a.part")


@contextmanager
def watcher(folder: Path) -> Iterator[WatcherLock]:
    with WatcherLock(folder) as lock, logging_to(folder / NAME, lock.is_ours):
        yield lock


def records(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".watchtest"


def test_a_record_is_a_line_without_control_sequences(folder: Path) -> None:
    with watcher(folder):
        log.warning("said %s", "a\x1b[31mb\nc", extra={"lane": "save", "run": "r1"})
    (record,) = records(folder / NAME)
    assert record.pop("at").endswith("Z")
    wanted = {"level": "warning", "logger": "a.part", "message": "said ab\nc", "lane": "save", "run": "r1"}
    assert record == wanted


def test_an_exception_is_there_with_its_traceback(folder: Path) -> None:
    with watcher(folder):
        try:
            raise ValueError("of the \x1b[2Jbox")
        except ValueError:
            log.exception("it failed")
    error = records(folder / NAME)[0]["error"]
    assert (error["type"], error["message"]) == ("ValueError", "of the box")
    assert "Traceback" in error["traceback"]
    assert "\x1b" not in error["traceback"]


def test_what_a_task_logs_names_its_lane_and_its_run_while_that_goes_on(folder: Path) -> None:
    async def outlives() -> None:
        await over.wait()
        log.info("after it")

    async def run() -> None:
        others.append(asyncio.create_task(outlives(), name="listener"))
        log.info("in the task")
        await asyncio.to_thread(log.info, "in a thread of it")

    async def whole() -> None:
        await create_logged_task(run(), "save", "s.7", name="run s.7")
        over.set()
        await asyncio.gather(*others)
        log.info("elsewhere")

    others: list[asyncio.Task[None]] = []
    over = asyncio.Event()
    with watcher(folder):
        asyncio.run(whole())
    about = {
        record["message"]: [record.get(key) for key in ("lane", "run", "task")] for record in records(folder / NAME)
    }
    assert about["in the task"] == ["save", "s.7", "run s.7"]
    assert about["in a thread of it"][:2] == ["save", "s.7"]
    assert about["after it"] == ["save", None, "listener"]
    assert about["elsewhere"][:2] == [None, None]


def test_uncaught_exceptions_in_threads_and_destructors_and_warnings_are_logged(folder: Path) -> None:
    class Falling:
        def __del__(self) -> None:
            raise ValueError("in its last moment")

    def fail() -> None:
        raise ValueError("in the thread")

    with watcher(folder):
        thread = threading.Thread(target=fail, name="worker")
        thread.start()
        thread.join(10)
        falling = Falling()
        del falling
        gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.warn("old ways", stacklevel=1)
    said = [(record["message"], (record.get("error") or {}).get("message")) for record in records(folder / NAME)]
    assert ("the thread worker failed", "in the thread") in said
    assert any(error == "in its last moment" for _, error in said)
    assert any("old ways" in message for message, _ in said)


def test_an_error_that_ends_the_watcher_is_its_last_word(folder: Path) -> None:
    with pytest.raises(RuntimeError), watcher(folder):
        raise RuntimeError("boom")
    record = records(folder / NAME)[-1]
    assert (record["message"], record["error"]["message"]) == ("the watcher ended with an error", "boom")


def test_after_git_clean_the_log_goes_on_in_a_new_file(folder: Path) -> None:
    with watcher(folder) as lock:
        log.info("before")
        shutil.rmtree(folder)
        log.info("meanwhile")
        assert not (folder / NAME).exists(), "the owner of the folder is not known yet"
        lock.keep()
        log.info("after")
    said = [record["message"] for record in records(folder / NAME)]
    assert said[0] == "meanwhile"
    assert said[-1] == "after"
    assert (folder / ".gitignore").read_text() == "*\n"


def test_the_log_alone_may_be_removed_as_well(folder: Path) -> None:
    with watcher(folder):
        log.info("before")
        (folder / NAME).unlink()
        log.info("after")
    assert [record["message"] for record in records(folder / NAME)] == ["after"]


def test_a_watcher_that_lost_its_lock_writes_nothing_into_the_log_of_the_next(folder: Path) -> None:
    def lose() -> None:
        with watcher(folder) as first:
            log.info("of the first")
            (folder / "lock").unlink()
            with WatcherLock(folder):
                log.info("of the first, too late")
                first.keep()

    with pytest.raises(WorkspaceError):
        lose()
    assert [record["message"] for record in records(folder / NAME)] == ["of the first"]


def test_it_is_rotated_and_bounded(folder: Path) -> None:
    with watcher(folder):
        for number in range((OLD_FILES + 2) * LOG_BYTES // 100_000):
            log.info("%d %s", number, "x" * 100_000)
    files = sorted(file.name for file in folder.glob(f"{NAME}*"))
    assert files == [NAME, *(f"{NAME}.{number}" for number in range(1, OLD_FILES + 1))]
    assert all((folder / file).stat().st_size <= LOG_BYTES for file in files)
    lines, _ = last_lines(folder / NAME, 15)
    numbers = [int(json.loads(line)["message"].split()[0]) for line in lines]
    assert numbers == list(range(numbers[-1] - 14, numbers[-1] + 1)), "in order, across two files"


def test_what_could_not_be_written_is_counted(folder: Path) -> None:
    with watcher(folder):
        log.info("before")
        (folder / NAME).unlink()
        (folder / NAME).mkdir()
        log.info("lost")
        log.info("lost")
        (folder / NAME).rmdir()
        log.info("after")
    said = [record["message"] for record in records(folder / NAME)]
    assert said[0].startswith("2 records could not be written: ")
    assert said[1:] == ["after"]


# -- reading ---------------------------------------------------------------------------------------


def test_a_follower_goes_on_in_the_next_file(tmp_path: Path) -> None:
    file = tmp_path / NAME
    follower = LogFollower(file)
    assert follower.new_lines() == []
    file.write_text("one\ntwo\nha")
    assert follower.new_lines() == ["one", "two"]
    with file.open("a") as stream:
        stream.write("lf\n")
    assert follower.new_lines() == ["half"]
    with file.open("a") as stream:
        stream.write("last of the old\n")
    file.rename(tmp_path / f"{NAME}.1")
    file.write_text("first of the new\n")
    assert follower.new_lines() == ["last of the old", "first of the new"]
    file.unlink()
    assert follower.new_lines() == []
    file.write_text("anew\n")
    assert follower.new_lines() == ["anew"]


def test_people_see_time_level_context_message_and_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    record = {"at": "2026-11-17T06:41:45.123Z", "level": "error", "message": "m", "lane": "save", "run": "s.1"}
    record |= {"error": {"type": "E", "message": "m", "traceback": "Traceback:\n  at\x1b[1m x\n"}}  # type: ignore[dict-item]
    assert format_record(json.dumps(record)) == "2026-11-17 06:41:45 error [save s.1] m\n    Traceback:\n      at x"


@pytest.mark.parametrize("line", ["2026 INFO x: of an older watchtest \x1b[1m", '{"at": "20', "[]", '{"at": 5}', "7"])
def test_a_line_that_is_no_record_is_shown_as_it_is(line: str) -> None:
    assert format_record(line) == line.replace("\x1b[1m", "")


def test_the_command_shows_the_last_lines(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with watcher(folder):
        for number in range(5):
            log.info("number %d", number)
    at = ["-C", str(folder.parent), "logs", "--watcher", "-n", "2"]
    assert cli.main(at) == 0
    assert [line.split(" info ")[1] for line in capsys.readouterr().out.splitlines()] == ["number 3", "number 4"]
    assert cli.main([*at, "--json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [json.loads(line)["message"] for line in lines] == ["number 3", "number 4"]


def test_without_a_log_the_command_says_how_to_get_one(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-C", str(folder.parent), "logs", "--watcher"]) == 2
    assert "watchtest start" in capsys.readouterr().err
    for wrong in (["logs", "--json"], ["logs", "--watcher", "kv"]):
        with pytest.raises(SystemExit):
            cli.main(wrong)


def test_a_reader_that_has_seen_enough_is_no_error(folder: Path) -> None:
    import subprocess
    import sys

    with watcher(folder):
        for number in range(2000):
            log.info("number %d %s", number, "x" * 100)
    command = [sys.executable, "-m", "watchtest", "-C", str(folder.parent), "logs", "--watcher", "-f", "-n", "2000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=dict(os.environ)) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(30) == 0
        assert process.stderr.read() == b""


# -- what happens ----------------------------------------------------------------------------------


def test_what_happens_is_told_with_its_lane_and_run(folder: Path) -> None:
    story = Story().change().sync("3f2a91c4d5e6").collect(A).results(failed(A))
    story.end("3f2a91c4d5e6", [failed(A)]).change("a.py")
    with watcher(folder):
        for step in story.steps:
            log_event(*step)
        log_event(story.state, story.state, None)
    told_of = [(record["message"], record["lane"], record.get("run")) for record in records(folder / NAME)]
    assert told_of == [
        ("starting", "save", "s.1"),
        ("syncing · run s.1 · save · all tests", "save", "s.1"),
        ("running 1 test", "save", "s.1"),
        ("failed 1 of 1 test in 0.8s · tree 3f2a91c4 · save", "save", "s.1"),
        ("changed 1 file: a.py", "save", "s.2"),
        ("syncing · run s.2 · save · all tests", "save", "s.2"),
    ]
