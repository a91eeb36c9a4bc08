"""Commands that users run in the box, with and without a watcher: exec, exec -d, shell, logs, snapshot, reset."""

from __future__ import annotations

import os
import pty
import random
import select
import subprocess
import sys
import time
from contextlib import closing

import docker
import pytest
from support.watcher_process import Project, wait_for

GREEN = "def test_it(): pass\n"


def test_a_command_without_a_watcher_finds_the_code_as_it_is_now(project: Project) -> None:
    """The workspace is never empty: the box is made, filled and set up first."""
    project.save("test_it.py", GREEN)
    project.save("word.txt", "one")
    first = project.execute("sh", "-c", "cat word.txt; ls")
    assert first.returncode == 0, first.stderr
    assert first.stdout == "onetest_it.py\nword.txt\n"
    project.save("word.txt", "two")
    assert project.execute("cat", "word.txt").stdout == "two"


def test_a_command_beside_a_watcher_leaves_it_alone(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    # Immediately, while the watcher is still making the box: the command waits for it.
    said = project.execute("cat", "test_it.py")
    assert said.stdout == GREEN, said.stderr
    before = watcher.wait_for_verdict("passed")
    assert project.execute("sh", "-c", "echo kept > made-in-the-box").returncode == 0
    assert watcher.status["run_id"] == before["run_id"]
    assert watcher.status["problem"] is None
    project.save("test_it.py", "def test_it(): assert open('made-in-the-box').read() == 'kept\\n'\n")
    watcher.wait_for_verdict("passed")
    assert "is gone" not in watcher.output, "this box was made by this watcher, and is still there"
    assert (project.root / ".watchtest" / "by-hand").exists(), "its verdicts are no proof for others"


def test_a_command_says_how_it_ended(project: Project) -> None:
    project.save("test_it.py", GREEN)
    assert project.execute("sh", "-c", "exit 7").returncode == 7
    missing = project.command("exec", "--engine", project.kind)
    assert missing.returncode == 2
    assert "write the command after two dashes" in missing.stderr


def test_a_box_whose_setup_fails_can_still_be_visited(project: Project) -> None:
    project.save("test_it.py", GREEN)
    broken = {"WATCHTEST_BOX_SETUP": "['echo no such package; exit 1']"}
    said = project.command("exec", "--engine", project.kind, "--", "ls", env=broken)
    assert said.returncode == 0
    assert said.stdout == "test_it.py\n"
    assert "setup failed: echo no such package" in said.stderr


@pytest.mark.thorough
def test_a_detached_command_outlives_runs_and_its_words_can_be_read(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    script = "echo began; while ! test -e stop; do sleep 0.1; done; echo ended; rm stop"
    started = project.command("exec", "--engine", project.kind, "-d", "--", "sh", "-c", script)
    assert started.returncode == 0, started.stderr
    name = started.stdout.split()[1].rstrip(";")
    assert project.command("logs", "--engine", project.kind).stdout.split() == [name]
    project.save("test_it.py", GREEN + "# once more\n")
    watcher.wait_for_verdict("passed")

    def log() -> str:
        return project.command("logs", "--engine", project.kind, name).stdout

    assert log() == "began\n"
    assert project.execute("touch", "stop").returncode == 0
    wait_for("the command to end", lambda: log() == "began\nended\n")


@pytest.mark.thorough
def test_logs_of_an_unknown_name_are_an_error(project: Project) -> None:
    project.save("test_it.py", GREEN)
    project.once()
    for name, words in (("nobody", "there is no log of 'nobody'"), ("../x", "not a name")):
        said = project.command("logs", "--engine", project.kind, name)
        assert said.returncode == 2
        assert words in said.stderr


def test_reset_recreates_the_box(project: Project) -> None:
    project.save("test_it.py", GREEN)
    assert project.execute("touch", "made-in-the-box").returncode == 0
    said = project.command("reset", "--engine", project.kind)
    assert said.returncode == 0, said.stderr
    assert "deleted: 1 " in said.stdout
    assert "created again" in said.stdout
    assert project.execute("ls").stdout == "test_it.py\n"


def test_reset_beside_a_watcher_is_healed_by_it(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    assert project.execute("touch", "made-in-the-box").returncode == 0
    assert project.command("reset", "--engine", project.kind).returncode == 0
    watcher.wait_for_words("retrying", limit_s=20)
    project.save("test_it.py", "import os\ndef test_it(): assert not os.path.exists('made-in-the-box')\n")
    watcher.wait_for_verdict("passed")
    watcher.must_be_tidy()


@pytest.mark.docker
def test_a_snapshot_is_what_a_new_box_starts_from(docker_project: Project) -> None:
    project = docker_project
    project.save("test_it.py", GREEN)
    assert project.execute("sh", "-c", "echo by hand > /opt/package").returncode == 0
    kept = project.command("snapshot", "--engine", "docker")
    assert kept.returncode == 0, kept.stderr
    assert "every box of this workspace now starts from it" in kept.stdout
    project.command("reset", "--engine", "docker")
    assert project.execute("cat", "/opt/package").stdout == "by hand\n"
    # What was not kept is reported when its box is gone.
    assert project.execute("sh", "-c", "echo unkept > /opt/other").returncode == 0
    subprocess.run(["docker", "rm", "-f", project.container()], check=True, capture_output=True, timeout=30)
    code, said = project.once()
    assert code == 0
    assert "manual changes of the old one are lost" in said
    assert "echo unkept > /opt/other" in said


def test_a_shell_has_a_terminal_and_gives_it_back(project: Project) -> None:
    project.save("test_it.py", GREEN)
    assert project.execute("true").returncode == 0
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "watchtest", "shell", "--engine", project.kind]
    shell = subprocess.Popen(command, cwd=project.root, env=project.environ, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    try:
        os.write(ours, b"test -t 0 && echo is-a-$((1000+1))-terminal; ls; exit 5\n")
        said = read_all(ours, shell)
    finally:
        shell.kill()
        os.close(ours)
    assert shell.wait(20) == 5, said
    assert "is-a-1001-terminal" in said
    assert "test_it.py" in said


def read_all(terminal: int, process: subprocess.Popen[bytes], limit_s: float = 30.0) -> str:
    said = b""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                said += os.read(terminal, 65536)
            except OSError:
                break  # the other end is closed
        elif process.poll() is not None:
            break
    process.wait(10)
    return said.decode(errors="replace")


def test_a_shell_without_a_terminal_says_what_to_use_instead(project: Project) -> None:
    project.save("test_it.py", GREEN)
    said = project.command("shell", "--engine", project.kind)
    assert said.returncode == 2
    assert "watchtest exec" in said.stderr


def test_a_command_does_not_wait_for_a_setup_that_has_failed(project: Project) -> None:
    project.save("test_it.py", GREEN)
    broken = {"WATCHTEST_BOX_SETUP": "['exit 1']"}
    watcher = project.watch(env=broken)
    watcher.wait_for_activity("degraded")
    said = project.command("exec", "--engine", project.kind, "--", "ls", env=broken)
    assert said.stdout == "test_it.py\n"
    assert "could not set up the box; continuing with the box as it is" in said.stderr


def test_two_first_commands_at_once_both_get_their_box(project: Project) -> None:
    project.save("test_it.py", GREEN)
    command = [sys.executable, "-m", "watchtest", "exec", "--engine", project.kind, "--", "ls"]
    both = [
        subprocess.Popen(command, cwd=project.root, env=project.environ, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [process.communicate(timeout=60)[0] for process in both] == ["test_it.py\n"] * 2
    assert [process.returncode for process in both] == [0, 0]


def test_a_command_whose_reader_has_gone_or_that_is_ended_leaves_nothing_running(project: Project) -> None:
    project.save("test_it.py", GREEN)
    assert project.execute("true").returncode == 0
    mark = str(random.randrange(10**8, 10**9))  # also the number of seconds that one of them sleeps
    watchtest = f"'{sys.executable}' -m watchtest exec --engine {project.kind} --"
    flood = f"{watchtest} sh -c 'while :; do echo {mark}; done' | head -1"
    around = {"cwd": project.root, "env": project.environ}
    done = subprocess.run(["sh", "-c", flood], **around, capture_output=True, text=True, timeout=60)  # type: ignore[call-overload]
    assert done.stdout == f"{mark}\n"
    assert "Traceback" not in done.stderr
    assert "failed" not in done.stderr
    command = [sys.executable, "-m", "watchtest", "exec", "--engine", project.kind, "--", "sleep", mark]
    waiting = subprocess.Popen(command, cwd=project.root, env=project.environ)
    wait_for(
        "the command", lambda: any(f"sleep {mark}" in line for line in project.box_processes() if "exec" not in line)
    )
    waiting.terminate()
    waiting.wait(20)
    wait_for("its end", lambda: not any(mark in line for line in project.box_processes()))


@pytest.mark.thorough
def test_words_of_a_service_or_a_setup_cannot_command_the_terminal(project: Project) -> None:
    project.save("test_it.py", GREEN)
    rude_words = r"printf '\\033]0;owned\\007said'; sleep 1000"
    project.save("watchtest.toml", f"[[services]]\nname = 'rude'\ncommand = \"{rude_words}\"\n")
    code, _ = project.once()
    assert code == 0
    said = project.command("logs", "--engine", project.kind, "rude").stdout
    assert "said" in said
    assert "\x1b" not in said
    rude = {"WATCHTEST_BOX_SETUP": "[\"printf '\\\\033]0;owned\\\\007set-up\\\\n'\"]"}
    told = project.command("exec", "--engine", project.kind, "--", "true", env=rude).stderr
    assert "set-up" in told
    assert "\x1b" not in told


@pytest.mark.docker
@pytest.mark.thorough
def test_what_the_user_makes_from_our_images_is_not_our_box(docker_project: Project) -> None:
    project = docker_project
    project.save("test_it.py", GREEN)
    assert project.execute("touch", "/opt/mine").returncode == 0
    with closing(docker.from_env(environment=project.environ)) as client:
        label = [f"watchtest.workspace={project.root}", "watchtest.role=environment"]
        (kept,) = client.images.list(filters={"label": label})
        theirs = client.containers.run(kept, ["1000"], entrypoint="sleep", detach=True)
        try:
            assert project.execute("test", "-e", "/opt/mine").returncode == 0
            assert project.command("reset", "--engine", "docker").returncode == 0
            theirs.reload()
            assert theirs.status == "running"
        finally:
            theirs.remove(force=True)
