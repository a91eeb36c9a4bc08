"""A project with its own engine and proxy: its saves, its watcher, and the invariants of both."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from engine.images import PYTHON_313

from support.faults.container import Container
from support.faults.own_engine import OwnEngine
from support.faults.stalling_proxy import StallingProxy
from support.watcher_process import Project, Status, Watcher, environ_around, runtime_folder

NOTICED_WITHIN_S = 10.0
HEALED_WITHIN_S = 45.0
LOOK_AGAIN_S = 0.1
MEMORY = "256m"

# Each run leaves a process behind that has left its session; ending a run must end that process too.
TEST = """import pathlib, subprocess, time

def test_value():
    subprocess.Popen(["sleep", "7654.25"], start_new_session=True)
    time.sleep(float(pathlib.Path("slow.txt").read_text().split()[0]))
    assert pathlib.Path("value.txt").read_text() == "right"
"""


class Scene:
    """Everything that belongs to one test. The watcher talks to the engine through the proxy; the test does not."""

    def __init__(self, project: Project, engine: OwnEngine, proxy: StallingProxy, seed: int) -> None:
        self.project = project
        self.engine = engine
        self.proxy = proxy
        self.container = Container(project)
        self.random = random.Random(seed)
        self._saves = 0
        project.save("test_value.py", TEST)
        project.save("value.txt", "right")
        project.save("slow.txt", "0")
        self.watcher = self.watch()

    def watch(self) -> Watcher:
        self.watcher = self.project.watch(env={"DOCKER_HOST": self.proxy.host})
        return self.watcher

    # -- saving ------------------------------------------------------------------------------------

    @property
    def right_verdict(self) -> str:
        return "passed" if (self.project.root / "value.txt").read_text() == "right" else "failed"

    def save_something(self, slow_s: float = 0.0) -> None:
        """Save a new verdict and, elsewhere in the tree, create, change or remove a file or turn it into a link."""
        self._saves += 1
        self.project.save("slow.txt", f"{slow_s} {self._saves}")
        file = self.project.root / "data" / str(self.random.randrange(6))
        file.parent.mkdir(exist_ok=True)
        file.unlink(missing_ok=True)
        match self.random.randrange(4):
            case 0:
                file.symlink_to("../value.txt")
            case 1:
                pass
            case _:
                file.write_bytes(self.random.randbytes(self.random.randrange(20_000)))
                file.chmod(self.random.choice((0o644, 0o755)))
        self.project.save("value.txt", self.random.choice(("right", "wrong")))

    def pause(self, least_s: float, most_s: float) -> None:
        time.sleep(self.random.uniform(least_s, most_s))  # the random moment is the point of the test

    # -- waiting -----------------------------------------------------------------------------------

    def wait_for_run(self) -> None:
        """Wait until tests are being collected or run."""
        self.watcher.wait_for_activity("running", limit_s=HEALED_WITHIN_S)

    def wait_until_noticed(self) -> Status:
        """Wait until the status reports that the box is unreachable, and why."""

        def look() -> Status | None:
            status = self.watcher.own_status
            return status if status and status["activity"] == "degraded" and status["problem"] else None

        return self.watcher.wait_until("the status tells of the fault", look, NOTICED_WITHIN_S)

    def must_heal(self) -> Status:
        """Wait for the right verdict, an exact mirror and no stray processes; no status may claim success with a dead
        box."""
        tree, right, trouble = self.project.tree_id(), self.right_verdict, ""
        peace_since: float | None = None

        def look() -> Status | None:
            nonlocal trouble, peace_since
            status = self.watcher.own_status
            if not is_at_peace(status) or status["code"]["tree"] != tree:
                trouble, peace_since = "not at rest", None
                return None
            assert status["verdict"] == right, f"{status['verdict']}, but {right} is right"
            peace_since = peace_since or time.monotonic()
            trouble = self.container.trouble() or self._mirror_trouble()
            # It may have been lost again since the check.
            if not trouble and is_at_peace(after := self.watcher.own_status):
                return after
            is_late = time.monotonic() - peace_since > NOTICED_WITHIN_S
            assert not (trouble and is_late), f"the status reports no problem, but {trouble}"
            time.sleep(LOOK_AGAIN_S)  # each check costs the engine more than the watcher's own work
            return None

        try:
            return self.watcher.wait_until("whole again", look, HEALED_WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{trouble}\n{error}\n--- dockerd ---\n{self.engine.log()}") from error

    def _mirror_trouble(self) -> str:
        try:
            in_box, here = self.project.box_tree(), self.project.tree()
        except (AssertionError, OSError, ValueError) as error:
            return f"the tree in the box cannot be read: {error}"
        different = {path for path in in_box.keys() | here.keys() if in_box.get(path) != here.get(path)}
        return f"the mirror is not exact: {sorted(different)}" if different else ""


def is_at_peace(status: Status) -> bool:
    """Whether the status claims that the verdict is about the current code and that nothing is wrong."""
    if not status or status["activity"] != "idle":
        return False
    return not status["pending"]["changes"] and not status["problem"]


@contextmanager
def open_scene(around: Path, seed: int) -> Iterator[Scene]:
    """Open a fresh engine, proxy and project with a watcher; close them all at the end."""
    with ExitStack() as stack:
        engine = stack.enter_context(OwnEngine())
        proxy = stack.enter_context(StallingProxy(engine.folder / "proxy.sock", engine.socket))
        root = around / "my pröject"
        root.mkdir()
        environ = {**environ_around(around, PYTHON_313), "DOCKER_HOST": engine.host, "WATCHTEST_BOX_MEMORY": MEMORY}
        project = Project(root, around, "docker", environ)
        stack.callback(_end_watchers, project)
        yield Scene(project, engine, proxy, seed)


def _end_watchers(project: Project) -> None:
    for watcher in project.watchers:
        if watcher.is_alive:
            watcher.kill9()
    shutil.rmtree(runtime_folder(project.around), ignore_errors=True)
