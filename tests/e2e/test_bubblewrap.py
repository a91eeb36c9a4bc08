"""The local box in bubblewrap: an ordinary project is green, a nosy one finds nothing, and no process outlives it."""

from __future__ import annotations

import os
import signal
import sys
import sysconfig
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects import MakeProject, end
from support.watcher_process import Project, wait_for

pytestmark = pytest.mark.bubblewrap

NOSY = """
import os, socket
from pathlib import Path

import pytest

HOME, WORKSPACE, SECRET = Path({home!r}), Path({workspace!r}), {secret!r}


def test_the_users_home_is_out_of_sight():
    assert not (HOME / ".ssh").exists()
    with pytest.raises(OSError):
        (HOME / ".ssh" / "id_ed25519").read_text()
    assert Path.home() != HOME


def test_the_real_workspace_is_out_of_sight():
    assert not WORKSPACE.exists()
    with pytest.raises(OSError):
        (WORKSPACE / "written by a test").write_text("x")


@pytest.mark.parametrize("folder", ["/", "/etc", "/usr", "/home", "/root", "/run"])
def test_nothing_else_can_be_written(folder):
    with pytest.raises(OSError):
        Path(folder, "written by a test").write_text("x")


def test_other_processes_are_out_of_sight():
    commands = [file.read_bytes() for file in Path("/proc").glob("[0-9]*/cmdline")]
    assert not [command for command in commands if b"watch\\0--plain" in command]


def test_the_sockets_of_services_are_out_of_sight():
    assert not [name for name in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus") if os.path.exists(name)]


def test_the_secrets_of_the_host_are_not_in_the_environment():
    assert SECRET not in "".join(os.environ.values())


def test_the_tree_the_home_and_tmp_can_be_written(tmp_path):
    for folder in (Path.cwd(), Path.home(), tmp_path, Path("/tmp")):
        (folder / "made").write_text("x")
"""

HANGING = """
import subprocess, time


def test_hangs():
    subprocess.Popen(["setsid", "sleep", "{marker}"])
    subprocess.Popen(["env", "-i", "setsid", "sleep", "{marker}"])
    time.sleep(600)
"""


@pytest.fixture
def project(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """A project with pytest from the interpreter that runs these tests: the sandbox shows what box.python needs."""
    project = make_project(tmp_path, "local")
    packages = sysconfig.get_path("purelib")
    link = f'cd "$VIRTUAL_ENV"/lib/python3*/site-packages && echo "{packages}" > pytest.pth'
    project.environ |= {
        "WATCHTEST_BOX_SANDBOX": "on",
        "WATCHTEST_BOX_PYTHON": sys.executable,
        "WATCHTEST_BOX_SETUP": f"['{link}']",
    }
    yield project
    end(project)


def make_nosy(project: Project) -> None:
    (project.around / ".ssh").mkdir()
    (project.around / ".ssh" / "id_ed25519").write_text("private")
    secret = uuid.uuid4().hex
    project.environ["AWS_SECRET_ACCESS_KEY"] = secret
    project.save("test_nosy.py", NOSY.format(home=str(project.around), workspace=str(project.root), secret=secret))


def test_a_nosy_project_finds_nothing_and_can_do_no_harm(project: Project) -> None:
    make_nosy(project)
    watcher = project.watch()
    status = watcher.wait_for_verdict("passed")
    assert status["run_counts"]["passed"] == 12
    assert "sandboxed by bubblewrap" in watcher.said
    assert "not isolated: the network, reading files outside homes and workspace" in watcher.said
    for folder in (project.root, project.around, Path("/"), Path("/etc"), Path("/root"), Path("/home"), Path("/tmp")):
        assert not os.access(folder / "written by a test", os.F_OK)
        assert not os.access(folder / "made", os.F_OK)


def test_the_same_project_is_red_without_a_sandbox(project: Project) -> None:
    """This proves that the sandbox made it green."""
    make_nosy(project)
    only_looking = {"WATCHTEST_RUNNER_ARGS": "['-k', 'out_of_sight or environment']"}
    code, said = project.once(env={"WATCHTEST_BOX_SANDBOX": "off", **only_looking})
    assert code == 1
    for name in ("home_is_out_of_sight", "workspace_is_out_of_sight", "processes_are_out_of_sight"):
        assert name in said
    assert "test_the_secrets_of_the_host_are_not_in_the_environment" not in said, "that holds without a sandbox, too"


def test_what_is_installed_and_made_in_the_box_stays(project: Project) -> None:
    project.save("test_it.py", "def test_it():\n    pass\n")
    assert project.once()[0] == 0
    assert project.execute("sh", "-c", "echo kept > ~/kept; echo kept > kept").returncode == 0
    project.save(
        "test_it.py", "from pathlib import Path\n\ndef test_it():\n    assert Path('~/kept').expanduser().exists()\n"
    )
    assert project.once()[0] == 0
    assert project.execute("cat", "kept").stdout == "kept\n"


# -- nothing outlives it ---------------------------------------------------------------------------


class Scene:
    """A run that hangs in the sandbox, with runaway processes that can be recognised from outside."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.marker = f"9{uuid.uuid4().int % 10**8}.25"
        project.save("test_hang.py", HANGING.format(marker=self.marker))
        self.watcher = project.watch()
        self.watcher.wait_until("the runaways", lambda: len(self.runaways()) == 2)

    def runaways(self) -> list[str]:
        return [line for line in self.project.box_processes() if line.strip() == f"sleep {self.marker}"]

    def of_the_box(self) -> list[int]:
        """Return bubblewrap, its first process, the agent, and everything it forked."""
        home, found = str(self.project.local_box() / "home").encode(), []
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                words = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # ended while we looked
            if home in words and b"-c" in words:
                found.append(int(folder.name))
        return found

    def agent(self) -> int:
        """Return the agent: the only process besides bubblewrap whose parent is not one of them."""
        plain = {pid for pid in self.of_the_box() if b"bwrap" not in Path(f"/proc/{pid}/cmdline").read_bytes()}
        parent = {pid: int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]) for pid in plain}
        (agent,) = (pid for pid in plain if parent[pid] not in plain)
        return agent

    def is_gone(self) -> bool:
        return not self.runaways() and not self.of_the_box()


def test_a_killed_watcher_leaves_no_process(project: Project) -> None:
    scene = Scene(project)
    scene.watcher.kill9()
    wait_for("the end of everything in the sandbox", scene.is_gone, limit_s=10)


def test_a_stopped_watcher_leaves_no_process(project: Project) -> None:
    scene = Scene(project)
    assert scene.watcher.stop() == 0
    assert scene.is_gone()


@pytest.mark.thorough
def test_an_agent_that_is_killed_takes_the_sandbox_with_it_and_is_replaced(project: Project) -> None:
    scene = Scene(project)
    project.save("test_hang.py", "def test_it():\n    pass\n")
    os.kill(scene.agent(), signal.SIGKILL)
    scene.watcher.wait_for_verdict("passed")
    assert scene.runaways() == []


@pytest.mark.parametrize("sandbox", ["on", "off"])
@pytest.mark.thorough
def test_an_agent_that_stands_still_is_ended_by_the_next_watcher(project: Project, sandbox: str) -> None:
    """It does not see the end of its input, and a new agent could not reach it from another sandbox."""
    scene = Scene(project)
    stuck = scene.agent()
    os.kill(stuck, signal.SIGSTOP)
    scene.watcher.kill9()
    time.sleep(0.2)
    assert scene.runaways(), "so there is something to end"
    project.save("test_hang.py", "def test_it():\n    pass\n")
    after = project.watch(env={"WATCHTEST_BOX_SANDBOX": sandbox})
    after.wait_for_verdict("passed")
    assert scene.runaways() == []
    assert stuck not in scene.of_the_box()
