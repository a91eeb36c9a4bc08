"""Tests that hang in every possible way: each ends soon after its limit, shows where it hung, and leaves nothing
behind.

A service runs in the same box and must not be affected.
"""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import docker
import pytest
from support.watcher_process import Project, Status, Watcher, wait_for

SETTINGS = """
[runner]
args = ["-s"]

[[services]]
name = "beside"
command = "exec sleep {seconds}"
"""
GREEN = "def test_hangs():\n    pass\n"
GRACE_S = 0.5
HERE_IF_BUSY = "# or here"
"""Where the limit may find 200 forks on a machine that is busy with other tests."""
TEST_S = 1.2
SLACK_S = 5.0
"""What may pass between a limit and the verdict: stacks, three signals with their grace, and a busy machine."""

# Every test hangs in a line that ends with `# here`. Children that only fork are recognised by their name.
HEAD = """import ctypes, os, signal, subprocess, sys, time

MARK = "{mark}"
LIBC = ctypes.CDLL(None)


def sleeper(mark=MARK):
    return [sys.executable, "-c", "import time; time.sleep(600)", mark]


def rename():
    LIBC.prctl(15, MARK[:15].encode(), 0, 0, 0)


def fork(count):
    for _ in range(count):
        if os.fork() == 0:  # or here
            rename()
            while True:
                LIBC.pause()


def daemons():
    subprocess.Popen(sleeper(), start_new_session=True)
    subprocess.Popen(["env", "-i", *sleeper()], start_new_session=True)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, sleeper())
        os._exit(0)
    os.wait()


def go_deaf():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)


def test_hangs():
"""
BODIES = {
    "in a C call": "LIBC.pause()  # here",
    "in a C call that holds the interpreter": "ctypes.PyDLL(None).sleep(600)  # here",
    "deaf to every signal": "go_deaf()\n    while True:\n        time.sleep(600)  # here",
    "behind daemons": "daemons()\n    time.sleep(600)  # here",
    "behind 200 children": "fork(200)\n    time.sleep(600)  # here",
    "in a lock": "import threading\n    lock = threading.Lock()\n    lock.acquire()\n    lock.acquire()  # here",
}
ALL_AT_ONCE = "go_deaf()\n    daemons()\n    fork(200)\n    ctypes.PyDLL(None).sleep(600)  # here"
# Its children keep printing, so that silence cannot be what ends it.
CHATTY = """go_deaf()
    daemons()
    if os.fork() == 0:
        rename()
        while True:
            time.sleep(0.1)
            print("still here", flush=True)
    time.sleep(600)  # here"""


@dataclass
class Stage:
    """One watcher with limits and a service, which runs one hanging test after the other."""

    project: Project
    watcher: Watcher
    mark: str
    """The name of all that hangs, unlike that of any other test that runs at the same time."""
    service: str

    def hang(self, name: str, body: str, limit_s: float) -> Status:
        service = self.processes(self.service)
        assert len(service) == 1, service
        source = HEAD.replace("{mark}", self.mark) + f"    {body}\n"
        began = time.monotonic()
        self.project.save("test_hangs.py", source)
        status = self.watcher.wait_for_verdict("error", limit_s=limit_s + SLACK_S)
        took_s = time.monotonic() - began
        assert took_s < limit_s + SLACK_S, name
        self.must_name_the_place(name, status, source)
        left = self.processes(self.mark)
        assert not left, f"left of {name}: {left}"
        assert self.processes(self.service) == service, f"the service was touched: {name}"
        return status

    def must_name_the_place(self, name: str, status: Status, source: str) -> None:
        lines = [
            number for number, text in enumerate(source.splitlines(), 1) if text.endswith(("# here", HERE_IF_BUSY))
        ]
        (failure,) = status["failures"]
        line = failure["line"]
        assert (failure["id"], failure["kind"]) == ("test_hangs.py::test_hangs", "timed out"), name
        assert failure["file"] == "test_hangs.py", f"{name}: {failure}"
        assert line in lines, f"{name}: {failure}"
        assert "test_hangs.py::test_hangs" in failure["message"], name
        shown = self.project.command("history", "show", "last")
        assert shown.returncode == 0, shown.stderr
        assert "timed out" in shown.stdout.replace("_", " "), name
        assert f"test_hangs.py:{line}" in shown.stdout, f"{name}\n{shown.stdout}"
        kept = json.loads(self.project.command("history", "show", "last", "--json").stdout)
        assert re.search(rf'test_hangs\.py", line {line}\b', json.dumps(kept).replace('\\"', '"')), name

    @property
    def cold_runs(self) -> int:
        """Return the runs that should have been warm and were not."""
        return (self.project.root / ".watchtest" / "watchtest.log").read_text(errors="replace").count('"cold start: ')

    def get_warm(self) -> None:
        """Run until a run was forked from the warm process."""
        for _ in range(50):
            before = self.cold_runs
            done = self.project.command("run", "--wait", "--all")
            assert done.returncode == 0, done.stdout + done.stderr
            if self.cold_runs == before:
                return
        raise AssertionError("no run was warm")

    def mend(self) -> None:
        self.project.save("test_hangs.py", GREEN)
        self.watcher.wait_for_verdict("passed")
        self.watcher.must_be_tidy()

    def processes(self, words: str) -> dict[str, str]:
        """Return all processes in the box, by pid, that have these words in their name or arguments."""
        rows: list[tuple[str, str]] = []
        if self.project.kind == "docker":
            with closing(docker.from_env(environment=self.project.environ)) as client:
                top = client.containers.get(self.project.container()).top(ps_args="-eo pid,stat,comm:32,args")
            rows = [(row[0], " ".join(row[1:])) for row in top["Processes"]]
        else:
            rows = [(folder.name, said_of(folder)) for folder in Path("/proc").iterdir() if folder.name.isdigit()]
        return {pid: said for pid, said in rows if words in said and not said.startswith("Z")}


def said_of(folder: Path) -> str:
    """Return the state, name and arguments of a process, as `ps` shows them."""
    try:
        name, _, rest = (folder / "stat").read_text(errors="replace").rpartition(")")
        arguments = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""  # ended while we looked
    return f"{rest.split()[0]} {name.partition('(')[2]} {arguments}"


@pytest.fixture(params=[pytest.param("auto", id="warm", marks=pytest.mark.thorough), pytest.param("off", id="cold")])
def warm(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def stage_of(project: Project, warm: str, **limits: float) -> Stage:
    number = random.randrange(10**6, 10**7)
    project.save("watchtest.toml", SETTINGS.format(seconds=number))
    project.save("test_hangs.py", GREEN)
    given = {f"WATCHTEST_RUNNER_{name.upper()}": str(value) for name, value in limits.items()}
    env = {**given, "WATCHTEST_RUNNER_GRACE_S": str(GRACE_S), "WATCHTEST_RUNNER_WARM": warm}
    watcher = project.watch(env=env)
    stage = Stage(project, watcher, f"hangs-{number}", f"sleep {number}")
    watcher.wait_for_verdict("passed")
    wait_for("the service runs", lambda: len(stage.processes(stage.service)) == 1)
    if warm != "off":
        stage.get_warm()
    return stage


@pytest.mark.thorough
def test_the_limit_of_a_test_ends_each_and_says_where(project: Project, warm: str) -> None:
    stage = stage_of(project, warm, test_timeout_s=TEST_S)
    cold_runs = stage.cold_runs
    for name, body in BODIES.items():
        status = stage.hang(name, body, TEST_S)
        assert f"a test took longer than {TEST_S:g} s" in status["failures"][0]["message"]
    assert stage.cold_runs - cold_runs <= len(BODIES) / 2, "most of them were to hang in a warm process"
    stage.mend()


def test_the_limits_of_silence_and_of_the_run_end_each_and_say_where(project: Project, warm: str) -> None:
    stage = stage_of(project, warm, silence_timeout_s=2.0, timeout_s=4.0)
    silent = stage.hang("all at once", ALL_AT_ONCE, 2.0)
    assert "no output for 2 s" in silent["failures"][0]["message"]
    chatty = stage.hang("chatty", CHATTY, 4.0)
    assert "the run took longer than 4 s" in chatty["failures"][0]["message"]
    stage.mend()


# -- too much ----------------------------------------------------------------------------------------

FLOOD_MB = 200
FLOOD = """import os, sys

def test_first():
    os.write(1, b"the very first words\\n")

def test_floods():
    block = (b"x" * 99 + b"\\n") * 10_486
    for _ in range({megabytes}):
        os.write(1, block)
    os.write(1, b"the very last words\\n")
    assert False
"""
PEAKS = r"""
import glob, json, re, sys
peaks = []
for folder in glob.glob("/proc/[0-9]*"):
    try:
        words = open(folder + "/cmdline", "rb").read().split(b"\0")
        peak = re.search(r"VmHWM:\s+(\d+)", open(folder + "/status").read())
    except OSError:
        continue
    if peak and b"-I" in words and words[4:5] == [sys.argv[1].encode()]:
        peaks.append(int(peak[1]) / 1024)
print(json.dumps(peaks))
"""


def agents_peak_mb(project: Project) -> float:
    """Return the peak memory of the agent and of what it forked to supervise a run."""
    if project.kind == "docker":
        peaks = json.loads(project.in_container("python3", "-c", PEAKS, "/opt/watchtest"))
    else:
        home = str(project.local_box() / "home")
        peaks = json.loads(subprocess.check_output([sys.executable, "-c", PEAKS, home], timeout=10))
    return float(max(peaks))


@pytest.mark.parametrize("is_captured", [pytest.param(True, id="captured"), pytest.param(False, id="uncaptured")])
@pytest.mark.thorough
def test_a_flood_of_output_fills_no_memory_and_its_ends_are_kept(project: Project, is_captured: bool) -> None:
    project.save("watchtest.toml", "" if is_captured else '[runner]\nargs = ["-s"]\n')
    project.save("test_flood.py", GREEN)
    watcher = project.watch(limit_s=60)
    watcher.wait_for_verdict("passed")
    watcher_before, agent_before = watcher.peak_memory_mb, agents_peak_mb(project)
    project.save("test_flood.py", FLOOD.replace("{megabytes}", str(FLOOD_MB)))
    (failure,) = watcher.wait_for_verdict("failed")["failures"]
    assert failure["id"] == "test_flood.py::test_floods"
    assert watcher.peak_memory_mb - watcher_before < 40
    assert agents_peak_mb(project) - agent_before < 40
    shown = project.command("history", "show", "last", "--output").stdout
    assert len(shown) < 2_000_000
    assert "the very last words" in shown
    # What pytest captured is shown with the test; the rest is the output of the run.
    kind = "characters" if is_captured else "bytes of output"
    left_out = re.search(rf"\[\.\.\. (\d+) {kind} left out \.\.\.\]", shown)
    assert left_out is not None, shown[-3000:]
    assert int(left_out[1]) > (FLOOD_MB - 1) * 2**20
    assert is_captured or "the very first words" in shown
    watcher.must_be_tidy()


@pytest.mark.docker
def test_a_test_that_takes_more_memory_than_there_is_is_named_so(docker_project: Project) -> None:
    project = docker_project
    project.save("watchtest.toml", '[box]\nmemory = "64m"\n')
    project.save("test_memory.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    project.save("test_memory.py", "def test_hoards():\n    hoard = [bytearray(2**20) for _ in range(500)]\n")
    status = watcher.wait_for_verdict("error")
    (failure,) = status["failures"]
    assert failure["id"] == "test_memory.py::test_hoards"
    assert "out of memory: the kernel killed the run" in failure["message"]
    assert "out of memory" in project.command("history", "show", "last").stdout
    project.save("test_memory.py", GREEN)
    watcher.wait_for_verdict("passed")
    watcher.must_be_tidy()
