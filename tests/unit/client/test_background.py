"""Which process watches: more than a number in a file proves it, so that no other process is mistaken for it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support import TESTS
from support.watcher_states import Story, passed

from watchtest.client import background
from watchtest.client.background import BackgroundWatcher, is_alive, signal_sender, verified_pid
from watchtest.errors import ControlError, WorkspaceError
from watchtest.views.status.status_writer import StatusFile, writer_of_this_process
from watchtest.workspace.lock import WatcherLock

# Holds the lock as a watcher does, and says so in its status; ignores SIGTERM if asked to.
WATCHER = """
import signal, sys, time
from pathlib import Path
from watchtest.workspace.lock import WatcherLock
from watchtest.views.status.status_writer import StatusFile, writer_of_this_process
from support.watcher_states import Story, passed
own, is_deaf = Path(sys.argv[1]), sys.argv[2] == "deaf"
if is_deaf:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
with WatcherLock(own):
    file = StatusFile(own, writer_of_this_process("1"), on_problem=sys.exit).__enter__()
    file.show(Story().run("t1", passed("a")).state, time.time())
    print("watches", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> BackgroundWatcher:
    monkeypatch.setenv("WATCHTEST_RUNTIME_DIR", str(tmp_path / "run"))
    folder = tmp_path / "project"
    folder.mkdir()
    return BackgroundWatcher(folder)


@contextmanager
def watcher(workspace: BackgroundWatcher, manner: str = "polite") -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", WATCHER, str(workspace.state_folder), manner]
    environ = {**os.environ, "PYTHONPATH": str(TESTS)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environ, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"watches\n"
            yield process
        finally:
            process.kill()


def show(own: Path, **changes: object) -> None:
    """Write a status of this process with these changes."""
    file = StatusFile(own, writer_of_this_process("1"), on_problem=pytest.fail)
    file.__enter__()
    file.show(Story().run("t1", passed("a")).state, time.time())
    document = json.loads((own / "status.json").read_bytes())
    document["writer"] |= changes
    (own / "status.json").write_text(json.dumps(document))


def test_without_the_lock_there_is_no_watcher(workspace: BackgroundWatcher) -> None:
    assert workspace.process() is None
    workspace.state_folder.mkdir()
    show(workspace.state_folder)
    assert workspace.process() is None, "a status alone is no watcher, though its writer lives"
    assert workspace.stop(pytest.fail) is None


def test_the_holder_is_named_with_its_start_and_its_place(workspace: BackgroundWatcher) -> None:
    with watcher(workspace) as process:
        holder = workspace.process()
        assert holder is not None
        assert (holder.pid, holder.is_background) == (process.pid, True)
        assert f"process {process.pid}, since 20" in str(holder)
        assert str(holder).endswith(", in the background")


@pytest.mark.skipif(sys.platform != "linux", reason="asks /proc")
@pytest.mark.parametrize(
    "changes", [{"pid_start": 1}, {"boot_id": "another"}, {"host": "elsewhere"}, {"pid": 1}, {"pid": "x"}]
)
def test_a_process_that_merely_has_the_number_is_not_taken_for_the_watcher(
    workspace: BackgroundWatcher, changes: dict[str, object]
) -> None:
    with WatcherLock(workspace.state_folder):
        show(workspace.state_folder)
        assert (found := workspace.process()) is not None
        assert found.pid == os.getpid()
        show(workspace.state_folder, **changes)
        assert workspace.process() is None


def test_a_process_that_ended_is_no_writer() -> None:
    writer = writer_of_this_process("1")
    known = {"pid": writer.pid, "pid_start": writer.pid_start, "boot_id": writer.boot_id, "host": writer.host}
    assert verified_pid(known) == os.getpid()
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        deadline = time.monotonic() + 10
        while is_alive(process.pid):  # it stays a zombie until its parent collects it
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert verified_pid({**known, "pid": process.pid}) is None
    with pytest.raises(ProcessLookupError), signal_sender(process.pid) as send:
        send(signal.SIGTERM)


def test_stop_returns_when_the_lock_is_free(workspace: BackgroundWatcher) -> None:
    with watcher(workspace) as process:
        holder = workspace.stop(pytest.fail)
        assert holder is not None
        assert holder.pid == process.pid
        assert not workspace.is_watched()
        assert process.wait(10) == -signal.SIGTERM


def test_a_watcher_that_does_not_listen_is_killed_and_that_is_said(workspace: BackgroundWatcher) -> None:
    said: list[str] = []
    with watcher(workspace, "deaf") as process:
        assert workspace.stop(said.append, limit_s=0.3) is not None
        assert process.wait(10) == -signal.SIGKILL
    assert len(said) == 1
    assert f"process {process.pid}" in said[0]
    assert "is killed" in said[0]
    assert not workspace.is_watched()


def test_a_process_that_cannot_be_identified_is_not_killed(
    workspace: BackgroundWatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "START_LIMIT_S", 0.2)
    with WatcherLock(workspace.state_folder):
        show(workspace.state_folder, host="elsewhere")
        with pytest.raises(ControlError, match=r"the process cannot be identified .*elsewhere"):
            workspace.stop(pytest.fail)


def test_a_watcher_that_dies_at_once_is_told_in_its_own_words(workspace: BackgroundWatcher) -> None:
    with pytest.raises(ControlError, match=r"exit code 2 before it was ready: /nowhere: no such folder") as error:
        workspace.start(["-C", "/nowhere", "watch", "--silent"])
    assert error.value.exit_code == 2
    assert "name one with -C FOLDER" in error.value.hint
    assert not workspace.is_watched()


def test_a_folder_that_cannot_be_written_is_said(workspace: BackgroundWatcher) -> None:
    workspace.state_folder.write_text("in the way")
    with pytest.raises(WorkspaceError, match="is not a folder, so watchtest does not use it"):
        workspace.start(["watch", "--silent"])
