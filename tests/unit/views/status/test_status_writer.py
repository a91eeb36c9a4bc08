"""The status file on a real disk: complete at every moment, and no obstacle to the watcher."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support import TESTS
from support.watcher_states import NOON, Story, failed, passed

from watchtest.errors import WorkspaceError
from watchtest.views.status.status_document import Document, WriterInfo
from watchtest.views.status.status_writer import StatusFile, writer_of_this_process

WRITER = WriterInfo(pid=7, host="host", version="0.1.0", started_at=NOON)
A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / ".watchtest"


def open_file(folder: Path, problems: list[str] | None = None) -> StatusFile:
    report = pytest.fail if problems is None else problems.append
    return StatusFile(folder, WRITER, on_problem=report, clock=lambda: NOON)


def read(folder: Path) -> Document:
    document: Document = json.loads((folder / "status.json").read_bytes())
    return document


def test_the_folder_keeps_itself_out_of_git(folder: Path) -> None:
    with open_file(folder):
        assert (folder / ".gitignore").read_text() == "*\n"


def test_a_gitignore_of_the_users_own_stays(folder: Path) -> None:
    folder.mkdir()
    (folder / ".gitignore").write_text("status.json\n")
    with open_file(folder):
        pass
    assert (folder / ".gitignore").read_text() == "status.json\n"


def test_a_change_of_verdict_activity_or_problem_is_written_at_once(folder: Path) -> None:
    story = Story()
    with open_file(folder) as file:
        file.show(story.state, NOON)
        assert read(folder)["activity"] == "starting"
        file.show(story.change().state, NOON)
        assert read(folder)["activity"] == "syncing"
        file.show(story.sync("t1").collect(A, B).state, NOON)
        assert read(folder)["activity"] == "running"
        file.show(story.end("t1", [failed(A), passed(B)]).state, NOON)
        assert read(folder)["verdict"] == "failed"
        assert (folder / "locations").read_text() == "tests/test_a.py:14:1: assert 3 == 4\n"
        file.show(story.change("x.py").breaks().state, NOON)
        assert read(folder)["problem"]["code"] == "engine"


def test_progress_is_written_four_times_a_second_and_its_last_word_is_not_lost(folder: Path) -> None:
    tests = [f"t.py::t{number}" for number in range(100)]
    story = Story().change().sync("t1").collect(*tests)
    with open_file(folder) as file:
        file.show(story.state, NOON)
        first = read(folder)["seq"]
        for number, test in enumerate(tests):
            file.show(story.results(passed(test)).state, NOON + number / 100)
        assert read(folder)["seq"] - first <= 4
        assert read(folder)["progress"]["done"] < 100
        file.tick(NOON + 2)
        assert read(folder)["progress"]["done"] == 100
        settled = read(folder)["seq"]
        file.tick(NOON + 4)
        assert read(folder)["seq"] == settled


def test_the_heartbeat_is_touched_every_five_seconds(folder: Path) -> None:
    def beat() -> float:
        return (folder / "heartbeat").stat().st_mtime

    with open_file(folder) as file:
        assert beat() == NOON
        file.tick(NOON + 4.9)
        assert beat() == NOON
        file.tick(NOON + 5)
        assert beat() == NOON + 5
        file.tick(NOON - 100)  # the clock was set back
        assert beat() == NOON - 100


def test_a_clean_stop_says_stopped_and_keeps_the_verdict(folder: Path) -> None:
    with open_file(folder) as file:
        file.show(Story().run("t1", passed(A)).state, NOON)
    assert (read(folder)["activity"], read(folder)["verdict"]) == ("stopped", "passed")


@pytest.mark.parametrize(
    ("error", "activity"),
    [(KeyboardInterrupt(), "stopped"), (WorkspaceError("gone"), "stopped"), (RuntimeError("bug"), "idle")],
)
def test_a_crash_is_not_called_a_stop(folder: Path, error: BaseException, activity: str) -> None:
    def watch() -> None:
        with open_file(folder) as file:
            file.show(Story().run("t1", passed(A)).state, NOON)
            raise error

    with pytest.raises(type(error)):
        watch()
    assert read(folder)["activity"] == activity


def test_seq_goes_on_after_a_new_start(folder: Path) -> None:
    with open_file(folder) as file:
        file.show(Story().state, NOON)
    last = read(folder)["seq"]
    with open_file(folder) as file:
        file.show(Story().state, NOON)
        assert read(folder)["seq"] == last + 1


def test_a_leftover_of_a_killed_writer_is_no_obstacle_and_no_link_is_followed(folder: Path, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder.mkdir()
    (folder / ".status.json.new").symlink_to(precious)
    (folder / "status.json").write_bytes(b'{"seq": "torn')
    with open_file(folder) as file:
        file.show(Story().state, NOON)
        assert read(folder)["seq"] == 1
    assert precious.read_text() == "mine"
    assert not (folder / ".status.json.new").exists()


def test_a_folder_that_was_swept_away_comes_back(folder: Path) -> None:
    story = Story().run("t1", failed(A))
    with open_file(folder) as file:
        file.show(story.state, NOON)
        shutil.rmtree(folder)
        file.show(story.change("x.py").state, NOON)
        assert read(folder)["verdict"] == "failed"
        assert sorted(path.name for path in folder.iterdir()) == [".gitignore", "heartbeat", "locations", "status.json"]
        file.tick(NOON + 9)
        assert (folder / "heartbeat").exists()


@pytest.mark.parametrize("name", ["status.json", "locations", ""])
def test_a_file_that_was_deleted_at_rest_comes_back_without_another_event(folder: Path, name: str) -> None:
    with open_file(folder) as file:
        file.show(Story().run("t1", failed(A)).state, NOON)
        before = read(folder)["verdict"], (folder / "locations").read_text()
        (folder / name).unlink() if name else shutil.rmtree(folder)
        file.tick(NOON + 1)
        assert (read(folder)["verdict"], (folder / "locations").read_text()) == before


def test_a_disk_that_refuses_is_reported_once_and_tried_again(tmp_path: Path) -> None:
    problems: list[str] = []
    workspace = tmp_path / "workspace"
    story = Story()
    with open_file(workspace / ".watchtest", problems) as file:
        file.show(story.change().state, NOON)
        file.show(story.sync("t1").collect(A).state, NOON)
        file.tick(NOON + 1)
        assert len(problems) == 1
        assert "cannot write the status file" in problems[0]
        assert "No such file or directory" in problems[0]
        assert not workspace.exists(), "a workspace that vanished must not come back empty"
        workspace.mkdir()
        file.tick(NOON + 2)
        assert read(workspace / ".watchtest")["activity"] == "running"
        assert len(problems) == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a limit on the size of files stands for the full disk")
def test_a_full_disk_does_not_end_the_watcher(folder: Path) -> None:
    code = """
import resource, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from support.watcher_states import NOON, Story, failed
from watchtest.views.status.status_writer import StatusFile, WriterInfo
import signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with StatusFile(Path(sys.argv[1]), WriterInfo(1, "h", "v", NOON), on_problem=print, clock=lambda: NOON) as file:
    file.show(Story().state, NOON)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
    file.show(Story().run("t1", failed("a.py::b")).state, NOON)
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    file.tick(NOON + 1)
"""
    command = [sys.executable, "-c", code, str(folder), str(TESTS)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.count("cannot write the status file") == 1
    assert read(folder)["verdict"] == "failed"


def test_a_reader_in_a_tight_loop_never_sees_half_a_file(folder: Path) -> None:
    story = Story().run("t1", *(failed(f"t.py::t{number}", output="x" * 200) for number in range(50)))
    states = [story.state, story.change("x.py").state]
    with open_file(folder) as file:
        file.show(Story().state, NOON)
        is_over = threading.Event()
        seen: list[int] = []
        broken: list[bytes] = []

        def watch() -> None:
            while not is_over.is_set():
                content = (folder / "status.json").read_bytes()
                try:
                    seen.append(json.loads(content)["seq"])
                except ValueError:
                    broken.append(content)

        reader = threading.Thread(target=watch)
        reader.start()
        for number in range(300):
            file.show(states[number % 2], NOON + number)
        is_over.set()
        reader.join(30)
    assert broken == []
    assert seen == sorted(seen)
    assert len(set(seen)) > 10


def test_the_writer_is_this_very_process() -> None:
    writer = writer_of_this_process("1.2.3")
    assert writer.pid == os.getpid()
    assert writer.version == "1.2.3"
    if sys.platform == "linux":
        assert writer.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        assert writer.pid_start == int(Path("/proc/self/stat").read_text().rsplit(")", 1)[1].split()[19])


def test_a_test_that_is_found_to_be_flaky_is_marked_without_another_event(folder: Path) -> None:
    flaky: list[frozenset[str] | None] = [None]
    file = StatusFile(folder, WRITER, on_problem=pytest.fail, clock=lambda: NOON, flaky=lambda: flaky[0])
    with file:
        file.show(Story().run("t1", failed(A)).state, NOON)
        assert [failure["flaky"] for failure in read(folder)["failures"]] == [None]
        flaky[0] = frozenset({A})
        file.tick(NOON + 1)
        assert [failure["flaky"] for failure in read(folder)["failures"]] == [True]
        seq = read(folder)["seq"]
        file.tick(NOON + 2)
        assert read(folder)["seq"] == seq
