"""Which exit codes `watch --once` and signals lead to, and what they leave behind."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects import MakeProject, end
from support.watcher_process import Project

GREEN = "def test_it():\n    pass\n"
RED = "def test_it():\n    assert 0\n"
HANGS = "import time\n\ndef hang_here():\n    time.sleep(60)\n\ndef test_hangs():\n    hang_here()\n"


@pytest.fixture
def local(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """A project for tests where the kind of box makes no difference."""
    project = make_project(tmp_path, "local")
    yield project
    end(project)


def test_once_tells_green_red_no_tests_and_timed_out(project: Project) -> None:
    project.save("test_it.py", GREEN)
    assert project.once()[0] == 0
    project.save("test_it.py", RED)
    assert project.once()[0] == 1
    (project.root / "test_it.py").unlink()
    assert project.once()[0] == 5
    project.save("test_it.py", HANGS)
    code, said = project.once(env={"WATCHTEST_RUNNER_TIMEOUT_S": "1", "WATCHTEST_RUNNER_GRACE_S": "0.2"})
    assert code == 124
    assert "the run took longer than 1 s, in test_it.py::test_hangs" in said


def test_an_engine_that_cannot_be_reached_is_4(tmp_path: Path, make_project: MakeProject) -> None:
    project = make_project(tmp_path, "docker")
    project.has_boxes = False
    project.save("test_it.py", GREEN)
    watcher = project.watch("--once", env={"DOCKER_HOST": "unix:///nonexistent"})
    assert watcher.wait_for_end() == 4
    assert "no Docker engine answers at unix:///nonexistent" in watcher.said
    assert "--engine local" in watcher.said, "what to do about it"
    watcher.must_be_tidy()


@pytest.mark.docker
def test_an_image_that_cannot_be_had_is_4(tmp_path: Path, make_project: MakeProject) -> None:
    project = make_project(tmp_path, "docker")
    project.save("test_it.py", GREEN)
    code, said = project.once(env={"WATCHTEST_BOX_IMAGE": "watchtest-test/no-such-image:1"}, limit_s=60)
    assert code == 4
    assert "cannot pull the image watchtest-test/no-such-image:1" in said
    end(project)


@pytest.mark.docker
def test_an_image_without_python_is_4_and_says_what_to_do(tmp_path: Path, make_project: MakeProject) -> None:
    project = make_project(tmp_path, "docker")
    project.save("test_it.py", GREEN)
    code, said = project.once(env={"WATCHTEST_BOX_IMAGE": "watchtest-test/bare:latest"}, limit_s=60)
    assert code == 4
    assert "no Python 3.8 or newer in the image" in said
    assert "box.image" in said
    end(project)


def test_a_setup_that_fails_is_4_and_shows_its_last_words(project: Project) -> None:
    project.save("test_it.py", GREEN)
    code, said = project.once(env={"WATCHTEST_BOX_SETUP": "['echo it broke because; exit 3']"})
    assert code == 4
    assert "setup failed" in said
    assert "exit code 3" in said
    assert "it broke because" in said


def test_ctrl_c_is_130_and_leaves_nothing_locked_and_nothing_running(project: Project) -> None:
    project.save("test_it.py", HANGS)
    watcher = project.watch("--once")
    watcher.wait_until("the test runs", lambda: (watcher.own_status.get("progress") or {}).get("total"))
    assert watcher.stop(signal.SIGINT) == 130
    assert watcher.status["activity"] == "stopped"
    watcher.must_be_tidy()
    project.save("test_it.py", GREEN)
    assert project.once()[0] == 0


def test_ctrl_c_before_anything_is_ready_is_130(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch("--once", env={"WATCHTEST_BOX_SETUP": "['sleep 60']"})
    watcher.wait_for_words("setup: sleep 60")
    assert watcher.stop(signal.SIGINT) == 130
    watcher.must_be_tidy()


def test_a_second_watcher_says_so_and_leaves_the_first_alone(local: Project) -> None:
    local.save("test_it.py", GREEN)
    first = local.watch()
    first.wait_for_verdict("passed")
    code, said = local.once()
    assert code == 2
    assert f"is already watched by process {first.process.pid}" in said
    local.save("test_it.py", RED)
    first.wait_for_verdict("failed")
    first.must_be_tidy()


# -- the dashboard, on a terminal ------------------------------------------------------------------


@pytest.mark.parametrize("way", ["q", "interrupt"])
def test_the_dashboard_shows_the_verdict_and_gives_the_terminal_back(local: Project, way: str) -> None:
    local.save("test_it.py", "import os\n\ndef test_it():\n    assert '\\x1b]0;pwned\\x07' == ''\n")
    ours, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    environ = {**local.environ, "TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "watchtest", "watch", "--engine", "local"]
    process = subprocess.Popen(
        command,
        cwd=local.root,
        env=environ,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # keys are read only from the process's own terminal
    )
    try:
        shown = _read_until(ours, b"test_it.py:4")
        if way == "q":
            os.write(ours, b"q")
        else:
            process.send_signal(signal.SIGINT)
        shown += _read_until_end(ours, process)
        assert process.returncode == (0 if way == "q" else 130)
        assert termios.tcgetattr(theirs) == before, "the terminal is not as it was"
        assert b"]0;pwned" not in shown.replace(b"'\\x1b]0;pwned", b""), "a test has set the title of the terminal"
        assert shown.rstrip().endswith(b"\x1b[?25h") or b"\x1b[?25h" in shown[-200:], "the cursor is still hidden"
        assert b"Traceback" not in shown
    finally:
        if process.poll() is None:
            process.kill()
            process.wait(10)
        os.close(ours)
        os.close(theirs)


def _read_until(descriptor: int, words: bytes, limit_s: float = 30.0) -> bytes:
    shown = b""
    deadline = time.monotonic() + limit_s
    while words not in shown:
        assert time.monotonic() < deadline, shown[-3000:].decode("utf-8", "replace")
        if select.select([descriptor], [], [], 0.1)[0]:
            shown += os.read(descriptor, 65536)
    return shown


def _read_until_end(descriptor: int, process: subprocess.Popen[bytes], limit_s: float = 20.0) -> bytes:
    shown = b""
    deadline = time.monotonic() + limit_s
    while process.poll() is None or select.select([descriptor], [], [], 0.1)[0]:
        assert time.monotonic() < deadline, "it did not end"
        with contextlib.suppress(OSError):
            if select.select([descriptor], [], [], 0.05)[0]:
                shown += os.read(descriptor, 65536)
    return shown
