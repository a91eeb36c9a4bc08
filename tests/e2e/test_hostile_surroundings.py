"""Hostile environments: each gives a clear message and no traceback, and the watcher keeps running where it can."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects import MakeProject, end
from support.watcher_process import Project, Status, Watcher

GREEN = "def test_it():\n    pass\n"
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
NASTY = (
    "\\x1b]0;pwned\\x07 \\x1b[2J\\x1b[31mred \\x9b31m \\x90dcs\\x9c "
    "[bold]markup[/bold] <b>&amp; \\u202emirrored \\x00 \\r over"
)


@pytest.fixture
def local(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """A project for tests where the kind of box makes no difference."""
    project = make_project(tmp_path, "local")
    yield project
    end(project)


# -- settings and flags ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("[box\n", "not valid TOML"),
        ('[box]\nengin = "local"\n', "engine"),
        ("[runner]\ntimeout_s = 'soon'\n", "runner.timeout_s"),
        ("[runner]\ntimeout_s = -1\n", "runner.timeout_s"),
        ("[bux]\nx = 1\n", "box"),
        ("\xff\xfe", "watchtest.toml"),
    ],
)
def test_a_bad_config_is_told_by_file_and_key(local: Project, config: str, words: str) -> None:
    local.save("watchtest.toml", config.encode("latin-1"))
    code, said = local.once()
    assert code == 2
    assert "watchtest.toml" in said
    assert words in said
    assert len(said.splitlines()) <= 6


@pytest.mark.parametrize(
    "flags",
    [
        ("--no-such-flag",),
        ("--engine", "qemu"),
        ("--trigger", "save=sometimes"),
        ("--trigger", "lunch=all"),
        ("--trigger", "save"),
        ("surplus",),
    ],
)
def test_a_bad_flag_is_told(local: Project, flags: tuple[str, ...]) -> None:
    code, said = local.once(*flags)
    assert code == 2
    assert flags[-1].rpartition("=")[2] in said


@pytest.mark.parametrize(
    "argv",
    [
        ("-C", "/no/such/folder", "watch"),
        ("--config", "no-such-file.toml", "watch"),
        ("no-such-command",),
        ("exec",),
        ("exec", "--"),
    ],
)
def test_bad_arguments_are_told_in_a_line(local: Project, argv: tuple[str, ...]) -> None:
    done = local.command(*argv)
    assert done.returncode == 2, done.stderr
    assert done.stderr.strip()
    assert "Traceback" not in done.stderr


# -- files -----------------------------------------------------------------------------------------


def test_what_cannot_be_mirrored_is_left_out_and_said(project: Project) -> None:
    project.save("test_it.py", GREEN)
    os.mkfifo(project.root / "pipe")
    (project.root / "loop").symlink_to("loop")
    (project.root / "dangling").symlink_to("nowhere")
    here = Path.cwd()
    with socket.socket(socket.AF_UNIX) as listener:
        os.chdir(project.root)  # the path of a socket must be short
        try:
            listener.bind("socket")
        finally:
            os.chdir(here)
        watcher = project.watch()
        watcher.wait_until("a verdict", lambda: watcher.own_status.get("verdict") == "passed")
        assert "left out pipe: is a named pipe" in watcher.output
        assert "left out socket: is a socket" in watcher.output
        tree = project.box_tree()
        assert tree["loop"] == ["symlink", "loop"]
        assert tree["dangling"] == ["symlink", "nowhere"]
        assert {"pipe", "socket"}.isdisjoint(tree)
        watcher.must_be_tidy()


def test_an_unreadable_file_is_left_out_said_and_taken_in_once_it_can_be_read(local: Project) -> None:
    local.save("test_it.py", GREEN)
    local.save("secret.txt", "x")
    local.save("closed/inside.txt", "x")
    (local.root / "secret.txt").chmod(0)
    (local.root / "closed").chmod(0)
    try:
        watcher = local.watch(before=_without_power_over_files())
        watcher.wait_until("a verdict", lambda: watcher.own_status.get("verdict") == "passed")
        assert "left out secret.txt: cannot be read (Permission denied)" in watcher.output
        assert "left out closed: cannot be read (Permission denied)" in watcher.output
        (local.root / "secret.txt").chmod(0o644)
        (local.root / "closed").chmod(0o755)
        watcher.wait_for_verdict("passed")
        assert local.box_tree() == local.tree()
        watcher.must_be_tidy()
    finally:
        (local.root / "closed").chmod(0o755)


def _without_power_over_files() -> tuple[str, ...]:
    """Root can read everything unless it drops that capability."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") is None:
        pytest.skip("as root, only setpriv can make a file unreadable")
    return ("setpriv", "--bounding-set=-dac_override,-dac_read_search")


def test_a_workspace_that_vanishes_is_waited_for(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    away = project.around / "away"
    project.root.rename(away)
    watcher.wait_for_words("the workspace is gone or cannot be reached")
    assert watcher.is_alive
    (away / "test_it.py").write_text("def test_it():\n    assert 'edited' == 'while away'\n")
    assert not project.root.exists(), "a workspace that is gone must not come back as an empty folder"
    away.rename(project.root)
    watcher.wait_for_verdict("failed")
    assert watcher.stop() == 0
    watcher.must_be_tidy()


@pytest.mark.thorough
def test_a_workspace_that_vanishes_during_a_run_is_waited_for(local: Project) -> None:
    local.save("test_it.py", "import time\n\ndef test_it():\n    time.sleep(1)\n")
    watcher = local.watch()
    watcher.wait_for_activity("running")
    away = local.around / "away"
    local.root.rename(away)
    watcher.wait_for_words("the workspace is gone or cannot be reached")
    watcher.wait_for_words("passed 1 test")
    away.rename(local.root)
    watcher.wait_for_verdict("passed")
    local.save("test_it.py", "def test_it():\n    assert 0\n")
    watcher.wait_for_verdict("failed")
    watcher.must_be_tidy()


@pytest.mark.thorough
def test_a_workspace_that_was_deleted_and_created_again_is_watched_again(local: Project) -> None:
    local.save("test_it.py", GREEN)
    watcher = local.watch()
    watcher.wait_for_verdict("passed")
    shutil.rmtree(local.root)
    watcher.wait_for_words("the workspace is gone or cannot be reached")
    staged = local.around / "clone"
    staged.mkdir()
    (staged / "test_it.py").write_text("def test_it():\n    assert 'a' == 'clone'\n")
    staged.rename(local.root)
    watcher.wait_for_verdict("failed")
    status = local.command("status")
    assert status.returncode == 1, status.stdout
    assert "died" not in status.stdout, "the watcher lives"
    code, said = local.once()
    assert (code, "watched already" in said) == (2, True), f"a second watcher came in:\n{said}"


# -- output ----------------------------------------------------------------------------------------


@pytest.mark.thorough
def test_a_test_that_prints_50_megabytes_is_survived(project: Project) -> None:
    project.save(
        "test_loud.py",
        "import os\n\nLINE = 'x' * 99 + '\\n'\n\n"
        "def test_captured():\n    for _ in range(5):\n        print(LINE * 100_000)\n    assert 0, LINE * 100_000\n\n"
        "def test_raw(capfd):\n    with capfd.disabled():\n        for _ in range(500):\n"
        "            os.write(1, LINE.encode() * 1_000)\n    print('last words')\n    assert 0\n",
    )
    watcher = project.watch(limit_s=60)
    status = watcher.wait_for_verdict("failed")
    assert status["run_counts"]["failed"] == 2
    assert status["truncated"] is True
    by_test = {failure["id"]: failure for failure in status["failures"]}
    assert "last words" in by_test["test_loud.py::test_raw"]["output"]
    assert len(json.dumps(status)) < 1_000_000
    assert watcher.peak_memory_mb < 400
    assert len(watcher.output) < 20_000
    project.save("test_loud.py", GREEN)
    watcher.wait_for_verdict("passed")
    shown = project.command("history", "show", status["run_id"])
    assert shown.returncode == 0, shown.stderr
    assert len(shown.stdout) < 5_000_000
    watcher.must_be_tidy()


def test_control_sequences_reach_no_terminal_and_no_reader(project: Project) -> None:
    project.save(
        "test_nasty.py",
        f'import pytest, warnings\n\nNASTY = "{NASTY}"\n\n'
        "@pytest.mark.parametrize('value', [NASTY, 'a\\nb'], ids=[NASTY, 'two\\nlines'])\n"
        "def test_nasty(value):\n    print(NASTY)\n    assert value == '', NASTY\n\n"
        "def test_raises():\n    raise type(NASTY.replace(chr(0), ''), (Exception,), {})(NASTY)\n\n"
        "def test_raw(capfd):\n    with capfd.disabled():\n        print(NASTY)\n",
    )
    watcher = project.watch()
    status = watcher.wait_for_verdict("failed")
    assert status["run_counts"] == {"passed": 1, "failed": 3, "error": 0, "skipped": 0, "xfailed": 0, "stale": 0}
    _must_be_harmless(watcher, status)
    for argv in (("status",), ("status", "--line"), ("history", "list"), ("history", "show", status["run_id"])):
        done = project.command(*argv)
        assert done.returncode in (0, 1), done.stderr
        assert not CONTROLS.search(done.stdout + done.stderr), argv
    # A collection error is reported differently and shows the raw output on the terminal.
    project.save("test_nasty.py", f'NASTY = "{NASTY}"\nprint(NASTY)\nraise RuntimeError(NASTY)\n')
    _must_be_harmless(watcher, watcher.wait_for_verdict("error"))
    project.save(
        "test_nasty.py", f'import os\n\ndef test_it():\n    os.write(2, "{NASTY}".encode())\n    os._exit(3)\n'
    )
    _must_be_harmless(watcher, watcher.wait_for_verdict("error"))
    watcher.must_be_tidy()


def _must_be_harmless(watcher: Watcher, status: Status) -> None:
    assert not CONTROLS.search(watcher.said), CONTROLS.findall(watcher.said)
    for text in _strings(status):
        assert not CONTROLS.search(text), repr(text)


def _strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for below in value.values():
            yield from _strings(below)
    elif isinstance(value, list):
        for below in value:
            yield from _strings(below)


def test_names_of_files_that_are_no_text_are_mirrored_and_shown_harmlessly(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    (project.root / "\x1b]0;pwned\x07.txt").write_text("x")
    (project.root / os.fsdecode(b"not-utf8-\xff.txt")).write_text("x")
    (project.root / "back\\slash 'quote' \"double\" $(touch x) ;.txt").write_text("x")
    watcher.wait_for_verdict("passed")
    assert project.box_tree() == project.tree()
    assert not CONTROLS.search(watcher.said)
    watcher.must_be_tidy()
