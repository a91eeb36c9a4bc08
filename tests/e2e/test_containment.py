"""Whatever a test kills, stops or damages: its run ends, the test is named, and the next save gets a right verdict."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from support.projects import MakeProject, end
from support.watcher_process import Project, Status, Watcher

pytestmark = [pytest.mark.docker, pytest.mark.timeout(240)]
LIMIT_S, GRACE_S = 8.0, 0.5
ENDS_WITHIN_S = LIMIT_S + 15.0
SERVED_WITHIN_S = 15.0
HOSTILE = "test_hostile.py::test_hostile"
PROVED_BY_DEFAULT = (
    "stops the supervisor and goes on",
    "kills everything else and goes on",
    "kills everything",
    "deletes the agent",
)


@dataclass(frozen=True)
class Attack:
    """`code` is the body of a test, or a module with it. `is_named`: the test must be among the failures."""

    code: str
    verdicts: tuple[str, ...] = ("passed", "error", "failed")
    is_named: bool = False
    is_first: bool = False
    """No test runs before it."""

    @property
    def source(self) -> str:
        code = textwrap.dedent(self.code).strip()
        attack = code if "def test_hostile" in code else f"def test_hostile():\n{textwrap.indent(code, '    ')}"
        imports = "import glob, os, resource, shutil, signal, sys, time\n"
        before = "" if self.is_first else "def test_before():\n    pass\n"
        return f"{imports}{before}{attack}\ndef test_after():\n    pass\n"


ATTACKS = {
    "stops its parent": Attack("os.kill(os.getppid(), signal.SIGSTOP); time.sleep(600)", ("error",), is_named=True),
    "stops the supervisor and goes on": Attack("os.kill(os.getppid(), signal.SIGSTOP)", ("passed",)),
    "stops the supervisor's group and goes on": Attack(
        "os.killpg(os.getpgid(os.getppid()), signal.SIGSTOP)", ("passed",), is_first=True
    ),
    "leaves a process that stops the supervisor again and again": Attack(
        """
        if os.fork() == 0:
            supervisor = os.getppid()
            supervisor = int(open(f'/proc/{supervisor}/stat').read().rpartition(')')[2].split()[1])
            while True:
                os.kill(supervisor, signal.SIGSTOP)
        """,
        ("passed", "error"),
    ),
    "stops itself": Attack("os.kill(os.getpid(), signal.SIGSTOP)", ("error",), is_named=True),
    "stops everything": Attack("os.kill(-1, signal.SIGSTOP)"),
    "stops everything and hangs": Attack("os.kill(-1, signal.SIGSTOP); time.sleep(600)", ("error",), is_named=True),
    "stops everything again and again": Attack(
        """
        while True:
            os.kill(-1, signal.SIGSTOP)
            time.sleep(0.01)
        """,
        ("error",),
        is_named=True,
    ),
    "kills everything else and goes on": Attack(
        "os.kill(-1, signal.SIGKILL)", ("error",), is_named=True, is_first=True
    ),
    "kills everything": Attack("os.kill(-1, signal.SIGKILL); time.sleep(600)", ("error",), is_named=True),
    "kills everything when it is imported": Attack(
        "def test_hostile():\n    pass\nos.kill(-1, signal.SIGKILL)", ("error",)
    ),
    "kills every process before it": Attack(
        """
        for pid in range(2, os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        """,
        ("error",),
        is_named=True,
    ),
    "deletes the agent": Attack("shutil.rmtree('/opt/watchtest', ignore_errors=True)"),
    "overwrites the agent": Attack(
        """
        for file in glob.glob('/opt/watchtest/agent-*/**/*.py', recursive=True):
            open(file, 'w').write('raise SystemExit(0)')
        """
    ),
    "overwrites pytest": Attack(
        """
        import _pytest, pluggy
        for folder in (*_pytest.__path__, *pluggy.__path__):
            for file in glob.glob(folder + '/**/*.py', recursive=True):
                open(file, 'w').write('raise SystemExit(0)')
        """
    ),
    "deletes the virtualenv": Attack("shutil.rmtree('/opt/watchtest/venv')"),
    "deletes the interpreter": Attack(
        """
        for folder in (*glob.glob('/usr/lib/python3*'), *glob.glob('/usr/local/lib/python3*'), '/usr/bin'):
            shutil.rmtree(folder, ignore_errors=True)
        """
    ),
    "deletes the workspace": Attack("shutil.rmtree('/workspace', ignore_errors=True)"),
    "replaces the workspace": Attack(
        """
        os.chdir('/')
        os.rename('/workspace', '/elsewhere')
        os.symlink('/etc', '/workspace')
        """
    ),
    "deletes /tmp": Attack("shutil.rmtree('/tmp')"),
    "takes all permissions away": Attack(
        "[os.chmod(folder, 0) for folder in ('/workspace', '/opt/watchtest', '/tmp')]"
    ),
    "leaves a deaf daemon": Attack(
        """
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
            for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
                signal.signal(number, signal.SIG_IGN)
            os.execve(sys.executable, ['python3', '-c', 'import time; time.sleep(600)'], {})
        """,
        ("passed",),
    ),
    "closes all files": Attack("os.closerange(0, 256)"),
    "lowers its limits": Attack(
        """
        for limit in (resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC):
            resource.setrlimit(limit, (3, 3))
        """
    ),
    "lowers the limits of all processes": Attack(
        """
        for pid in range(2, 60000):
            try:
                resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, 3))
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))
            except OSError:
                pass
        """
    ),
    "is deaf": Attack(
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(600)
        """,
        ("error",),
        is_named=True,
    ),
    "prints a gigabyte": Attack("[os.write(1, b'x' * 2**20) for _ in range(1024)]"),
    "writes results of its own and leaves": Attack(
        """
        import json
        rows = [{"k": "test", "test": test, "outcome": "passed", "duration_s": 0.1} for test in (
            "test_hostile.py::test_hostile", "test_hostile.py::test_after")]
        rows.append({"k": "finish", "exit_code": 0, "withdrawn": ""})
        for fd in range(3, 64):
            try:
                os.write(fd, "".join(json.dumps(row) + "\\n" for row in rows).encode())
            except OSError:
                pass
        os._exit(0)
        """,
        ("error",),
        is_named=True,
    ),
    "leaves many processes": Attack(
        """
        try:
            while os.fork():
                pass
            signal.pause()
        except OSError:
            pass
        """
    ),
}


class Scene:
    """One watcher with a green project in a small container; each attack is a save, and so is its removal."""

    def __init__(self, project: Project, warm: str = "auto") -> None:
        self.project = project
        project.save("test_good.py", "def test_good():\n    pass\n")
        project.save("test_hostile.py", "def test_hostile():\n    pass\n")
        limits = {"WATCHTEST_RUNNER_TIMEOUT_S": str(LIMIT_S), "WATCHTEST_RUNNER_GRACE_S": str(GRACE_S)}
        limits |= {"WATCHTEST_BOX_PIDS": "250", "WATCHTEST_BOX_CPUS": "1", "WATCHTEST_BOX_MEMORY": "1g"}
        limits["WATCHTEST_RUNNER_WARM"] = warm
        self.watcher: Watcher = project.watch(env=limits)
        self.watcher.wait_for_verdict("passed", limit_s=60)

    def get_warm(self) -> None:
        """Run until a run was forked from the warm process."""
        log = self.project.root / ".watchtest" / "watchtest.log"
        for _ in range(50):
            before = log.read_text(errors="replace").count('"cold start: ')
            assert self.project.command("run", "--wait", "--all").returncode == 0
            if log.read_text(errors="replace").count('"cold start: ') == before:
                return
        raise AssertionError("no run was warm")

    def verdict_on(self, source: str) -> tuple[Status, float]:
        """Save the hostile file and return the status with its verdict, and after how long it was there."""
        began = time.monotonic()
        self.project.save("test_hostile.py", source)
        return self.watcher.wait_for_verdict(limit_s=60), time.monotonic() - began


@pytest.fixture
def scene(tmp_path: Path, make_project: MakeProject) -> Iterator[Scene]:
    project = make_project(tmp_path, "docker")
    yield Scene(project)
    end(project)


@pytest.mark.parametrize(
    "name",
    [name if name in PROVED_BY_DEFAULT else pytest.param(name, marks=pytest.mark.thorough) for name in ATTACKS],
)
def test_the_run_of_a_hostile_test_ends_and_the_next_saves_are_served(scene: Scene, name: str) -> None:
    must_survive(scene, ATTACKS[name])


@pytest.mark.thorough
@pytest.mark.parametrize("warm", ["off", "on"])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("name", ["stops the supervisor and goes on", "kills everything else and goes on"])
def test_a_test_that_goes_on_after_its_attack_does_so_warm_and_cold_first_and_later(
    tmp_path: Path, make_project: MakeProject, name: str, is_first: bool, warm: str
) -> None:
    project = make_project(tmp_path, "docker")
    try:
        scene = Scene(project, warm)
        if warm == "on":
            scene.get_warm()
        must_survive(scene, replace(ATTACKS[name], is_first=is_first))
    finally:
        end(project)


def must_survive(scene: Scene, attack: Attack) -> None:
    """Assert that the run of the attack ends as it should, and that the saves after it get right verdicts."""
    status, took_s = scene.verdict_on(attack.source)
    assert took_s < ENDS_WITHIN_S, scene.watcher.said
    assert status["verdict"] in attack.verdicts, scene.watcher.said
    if attack.is_named:
        assert HOSTILE in [failure["id"] for failure in status["failures"]]
    status, took_s = scene.verdict_on("def test_hostile():\n    pass\ndef test_after():\n    pass\n")
    assert took_s < SERVED_WITHIN_S, scene.watcher.said
    assert status["verdict"] == "passed", scene.watcher.said
    # What is broken is red, whatever the attack has done to pytest.
    status, took_s = scene.verdict_on("def test_hostile():\n    assert False\n")
    assert took_s < SERVED_WITHIN_S, scene.watcher.said
    assert [failure["id"] for failure in status["failures"]] == [HOSTILE]
    scene.watcher.must_be_tidy()
