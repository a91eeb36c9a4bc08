"""`watchtest status` on real files, with locks held by real processes."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import jsonschema
import pytest
from support.watcher_states import BY_HAND, OUTDATED, Story, failed, passed, skipped, start

from watchtest import cli
from watchtest.commands import add_module
from watchtest.core import text
from watchtest.core.events import CancelRequested, EnvironmentBuilt, EnvironmentChecked, Halted, RunEnded
from watchtest.core.model import Lane, Problem, StopReason
from watchtest.core.state import State
from watchtest.core.step import leave
from watchtest.errors import UsageError, WorkspaceError
from watchtest.views.status.status_writer import StatusFile, writer_of_this_process
from watchtest.workspace.folder import find_workspace

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
Watch = Callable[[State], None]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".git").mkdir()
    return tmp_path / ".watchtest"


@pytest.fixture
def watch(folder: Path) -> Iterator[Watch]:
    """Start a watcher that shows one state and stays alive, holding its lock."""
    lock = filelock.FileLock(folder / "lock")

    def show(state: State) -> None:
        _write(folder, state)
        lock.acquire(timeout=0)

    yield show
    lock.release()


def _write(folder: Path, state: State) -> None:
    file = StatusFile(folder, writer_of_this_process("0.1.0"), on_problem=pytest.fail)
    file.__enter__()
    file.show(state, time.time())


def story_of_now() -> Story:
    return Story(now=time.time() - 2.5)


def ask(folder: Path, *flags: str) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-C", "--workspace", type=Path)
    add_module(parser.add_subparsers(), "status")
    arguments = parser.parse_args(["-C", str(folder.parent), "status", *flags])
    code = arguments.run(arguments)
    assert isinstance(code, int)
    return code


def one_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    code = ask(folder, "--line")
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    return code, said.strip()


def test_green(folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    watch(story_of_now().run("3f2a91c4d5e6", passed(A), skipped(B)).state)
    code, line = one_line(folder, capsys)
    assert code == 0
    assert line.startswith("✔ passed 1 test, 1 skipped · save 3f2a91c · 1.")
    assert line.endswith("s ago")


def test_red_names_the_first_place(folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    watch(story_of_now().run("3f2a91c4d5e6", failed(A), passed(B)).state)
    code, line = one_line(folder, capsys)
    assert code == 1
    assert line.startswith("✘ failed 1 of 2 · tests/test_a.py:14 · save 3f2a91c · ")


def test_green_with_a_change_pending_is_not_known_to_be_green(
    folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    story = story_of_now().run("t1", passed(A)).change("a.py").sync("t2").collect(A, B).results(passed(A))
    watch(story.state)
    code, line = one_line(folder, capsys)
    assert code == 1
    assert line.startswith("? testing 1 change · last: passed 1 test · save t1 · ")
    assert line.endswith(" · running 1/2")
    story.on(CancelRequested(Lane.SAVE, story.now))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.CANCELLED)))
    _write(folder, story.state)
    code, line = one_line(folder, capsys)
    assert code == 1
    assert line.startswith("? 1 change pending · last: passed 1 test · save t1 · ")


def test_nothing_known_no_tests_and_degraded_have_their_codes(
    folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(story_of_now().state)
    assert one_line(folder, capsys) == (1, "? unknown · starting")
    _write(folder, story_of_now().run("t1").state)
    code, line = one_line(folder, capsys)
    assert (code, line[:10]) == (5, "○ no tests")
    problem = Problem("engine", "no engine answers", "start docker")
    _write(folder, story_of_now().run("t1", passed(A)).change("x.py").breaks(problem).state)
    code, line = one_line(folder, capsys)
    assert code == 4
    assert line.startswith("? no engine answers · last: passed 1 test · ")
    assert line.endswith(" · degraded")


def test_a_provisional_green_is_not_plain_green(folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    watch(story_of_now().run("t1", passed(A), provisional=OUTDATED).state)
    code, line = one_line(folder, capsys)
    assert code == 1
    assert line.startswith("≈ passed 1 test (provisional: tested with the dependencies of before) · save t1")
    _write(folder, story_of_now().run("t1", passed(A), provisional=BY_HAND).state)
    code, line = one_line(folder, capsys)
    assert code == 0
    assert line.startswith("≈ passed 1 test (provisional: changed by hand: pip install x) · save t1")
    ask(folder)
    assert "  provisional: `watchtest snapshot` keeps it" in capsys.readouterr().out


def test_a_provisional_red_is_red(folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    watch(story_of_now().run("t1", failed(A), provisional=BY_HAND).state)
    code, line = one_line(folder, capsys)
    assert code == 1
    assert line.startswith("✘ failed 1 of 1 (provisional: ")


def test_a_provisional_verdict_says_what_will_make_it_final(folder: Path, watch: Watch) -> None:
    story = story_of_now().change("a.py")
    story.on(EnvironmentChecked(Lane.SAVE, story.now, "new")).sync("t1").end("t1", [passed(A)], provisional=OUTDATED)
    watch(story.state)
    document = json.loads((folder / "status.json").read_text())
    assert document["provisional"]["code"] == "dependencies"
    assert "a clean environment is being built" in document["provisional"]["hint"]
    failure = Problem("setup", "no clean environment: pip failed", "fix it")
    story.on(EnvironmentBuilt(Lane.SAVE, story.now, "new", failure))
    _write(folder, story.state)
    document = json.loads((folder / "status.json").read_text())
    assert document["problem"]["message"] == "no clean environment: pip failed"
    assert "see the problem" in document["provisional"]["hint"]
    assert document["lanes"]["save"]["provisional"] == document["provisional"]


def test_after_a_clean_stop_a_prompt_shows_no_green(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(folder, leave(story_of_now().run("t1", passed(A)).state))
    code, line = one_line(folder, capsys)
    assert code == 1
    assert line.startswith("? watcher stopped · last: passed 1 test · save t1 · ")


def test_a_watcher_that_was_killed_is_told_as_dead(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(folder, story_of_now().run("t1", passed(A)).state)
    code = (
        "import filelock, sys; lock = filelock.FileLock(sys.argv[1]); lock.acquire();"
        "print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code, str(folder / "lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as watcher:
        assert watcher.stdout is not None
        assert watcher.stdout.readline() == b"held\n"
        assert ask(folder, "--line") == 0
        watcher.kill()
        watcher.wait(30)
        capsys.readouterr()
        found, line = one_line(folder, capsys)
    assert found == 4
    assert line.startswith("! watcher is not running (died; last known: passed 1 test · save t1 · ")
    assert line.endswith("ago)")
    assert ask(folder) == 4
    assert "start it again with: watchtest watch" in capsys.readouterr().out
    assert ask(folder, "--json") == 4
    assert json.loads(capsys.readouterr().out)["alive"] is False


def test_a_watcher_without_a_heartbeat_is_told_as_not_responding(
    folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(story_of_now().run("t1", passed(A)).state)
    long_ago = time.time() - 16
    os.utime(folder / "heartbeat", (long_ago, long_ago))
    code, line = one_line(folder, capsys)
    assert code == 4
    assert line.startswith("! watcher is not responding for 16s · passed 1 test")


def test_where_the_lock_was_swept_away_the_heartbeat_decides(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _write(folder, story_of_now().run("t1", passed(A)).state)
    assert ask(folder, "--line") == 0
    os.utime(folder / "heartbeat", (1, 1))
    assert ask(folder, "--line") == 4
    capsys.readouterr()


def test_asking_twice_at_once_is_not_taken_for_a_watcher(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fcntl = pytest.importorskip("fcntl")
    _write(folder, story_of_now().run("t1", passed(A)).state)
    with (folder / "lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        assert ask(folder, "--line") == 4
    assert "died" in capsys.readouterr().out


def test_json_is_the_document_and_alive(folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    watch(story_of_now().run("t1", failed(A)).state)
    assert ask(folder, "--json") == 1
    said = json.loads(capsys.readouterr().out)
    assert said.pop("alive") is True
    assert said == json.loads((folder / "status.json").read_bytes())


def test_people_see_each_failure(folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    many = [failed(f"tests/test_a.py::test_{number:02}", number + 1) for number in range(12)]
    watch(story_of_now().box().run("t1", *many).state)
    assert ask(folder) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:4] == [
        "  tests/test_a.py:1  tests/test_a.py::test_00",
        "      assert total([1, 2]) == 4",
        "      assert 3 == 4",
    ]
    assert lines[-2:] == ["  and 2 more: watchtest status --json", "  box: docker · 1a2b3c4d5e6f · running"]


def test_without_a_file_it_says_how_to_get_one(folder: Path) -> None:
    with pytest.raises(WorkspaceError, match="watchtest watch") as error:
        ask(folder)
    assert error.value.exit_code == 2


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"schema": "watchtest.st', "not a complete JSON document"),
        (b"", "not a complete JSON document"),
        (b"\xff\xfe", "not a complete JSON document"),
        (b"[" * 100_000, "not a complete JSON document"),
        (b"[]", "not a status file of watchtest"),
        (b'{"schema": "other"}', "not a status file of watchtest"),
        (b'{"schema": "watchtest.status", "schema_version": 2}', "schema_version 2; this watchtest reads version 1"),
        (b'{"schema": "watchtest.status", "schema_version": 1}', "incomplete, no writer, activity"),
    ],
)
def test_a_file_that_cannot_be_believed_is_a_clear_error(folder: Path, content: bytes, complaint: str) -> None:
    folder.mkdir()
    (folder / "status.json").write_bytes(content)
    with pytest.raises(WorkspaceError, match=complaint):
        ask(folder)


def test_a_forged_file_of_odd_shapes_neither_crashes_nor_steers_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.mkdir()
    odd = {"schema": "watchtest.status", "schema_version": 1, "writer": [], "activity": "\x1b[2Jx", "verdict": 7}
    odd |= {"pending": "?", "lanes": 3, "failures": [1, {"file": 2, "id": "\x1b]0;x\x07id"}], "box": [], "problem": 1}
    odd |= {"failures_total": "many", "known_counts": None, "verdict_at": {}, "code": "c"}
    (folder / "status.json").write_text(json.dumps(odd))
    for flags in ((), ("--line",), ("--json",)):
        assert ask(folder, *flags) == 4
    assert "\x1b" not in capsys.readouterr().out


def test_a_console_that_knows_no_tick_does_not_crash(folder: Path) -> None:
    _write(folder, leave(story_of_now().run("t1", passed(A)).state))
    code = (
        "import argparse, pathlib, sys; from watchtest.commands import status;"
        "asked = dict(json=False, line=True, schema=False, lane=None, wait=False, timeout=None);"
        "asked['workspace'] = pathlib.Path(sys.argv[1]);"
        "sys.exit(status.run(argparse.Namespace(**asked)))"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    command = [sys.executable, "-c", code, str(folder.parent)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stderr) == (1, "")
    assert answer.stdout.startswith("? watcher stopped ? last: passed 1 test ? save t1")


def test_what_a_prompt_asks_for_is_the_same_line_and_costs_next_to_nothing(
    folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]
) -> None:
    watch(story_of_now().run("t1", failed(A), passed(B)).state)
    code, line = one_line(folder, capsys)
    for option in ("-C", "--workspace"):
        assert cli.main([option, str(folder.parent), "status", "--line"]) == code == 1
        assert capsys.readouterr().out.partition(" t1 ")[0] == line.partition(" t1 ")[0]
    script = (
        "import sys; before = set(sys.modules); from watchtest import cli;"
        f"code = cli.main(['-C', {str(folder.parent)!r}, 'status', '--line']);"
        "print(*sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    asked = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert asked.stdout.startswith("✘ failed 1 of 2")
    heavy = {"argparse", "pathlib", "typing", "dataclasses", "tempfile", "importlib.util", "shutil", "urllib.parse"}
    assert not heavy & set(asked.stderr.split())


def test_the_shortcut_for_harmless_text_lets_nothing_through_that_cleaning_takes_out() -> None:
    pattern = text._unwanted()
    assert not [code for code in range(0x110000) if pattern.fullmatch(chr(code)) and chr(code).isprintable()]


def test_a_lane_can_be_asked_for(folder: Path, watch: Watch, capsys: pytest.CaptureFixture[str]) -> None:
    story = Story(state=start(Lane.SAVE, Lane.COMMIT), now=time.time() - 2.5).run("t1", failed(A))
    story.lane = Lane.COMMIT
    watch(story.run("t2", passed(A)).state)
    assert one_line(folder, capsys)[0] == 1
    assert ask(folder, "--line", "--lane", "commit") == 0
    assert capsys.readouterr().out.startswith("✔ passed 1 test · commit t2 · ")
    assert ask(folder, "--json", "--lane", "commit") == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["verdict"], said["lanes"]["save"]) == ("passed", None)
    with pytest.raises(UsageError, match="the stage lane is off") as error:
        ask(folder, "--lane", "stage")
    assert "on: save, commit" in error.value.hint


def test_a_limit_needs_something_to_wait_for(folder: Path) -> None:
    with pytest.raises(SystemExit):
        ask(folder, "--timeout", "3")


def test_it_imports_nothing_heavy() -> None:
    code = "import sys; import watchtest.commands.status; print(*sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    heavy = {
        "rich",
        "pydantic",
        "docker",
        "git",
        "asyncio",
        "dataclasses",
        "filelock",
        "watchfiles",
        "sqlite3",
        "logging",
    }
    assert not heavy & set(loaded.stdout.split())


def test_the_workspace_is_found_from_below(tmp_path: Path) -> None:
    below = tmp_path / "repository" / "a" / "b"
    below.mkdir(parents=True)
    assert find_workspace(below) == below.resolve()
    (tmp_path / "repository" / ".git").write_text("gitdir: elsewhere\n")
    assert find_workspace(below) == (tmp_path / "repository").resolve()
    (below.parent / ".watchtest").mkdir()
    (below.parent / ".watchtest" / "status.json").write_text("{}")
    assert find_workspace(below) == (tmp_path / "repository").resolve(), "a watcher that once ran there owns nothing"


def test_a_home_folder_kept_in_git_is_not_the_project_of_all_below(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".git").mkdir()
    (tmp_path / "project").mkdir()
    assert find_workspace(tmp_path / "project") == (tmp_path / "project").resolve()
    assert find_workspace(tmp_path) == tmp_path.resolve()


def test_a_folder_that_is_not_there_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="no such folder"):
        find_workspace(tmp_path / "nowhere")
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="not a folder"):
        find_workspace(tmp_path / "file")


def test_the_schema_is_printed_without_a_status_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ask(folder, "--schema") == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(capsys.readouterr().out))
