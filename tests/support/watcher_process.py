"""A real watcher process on a real project, through the front door: `python -m watchtest`.

`Project` is a folder with its own environment, boxes and history; `Watcher` is one process on it. Every wait has a
deadline; when it passes, the error shows the watcher's output. Trees are read without any code of watchtest: by git,
and by a small script that runs on the host or in the box.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import docker

Status = dict[str, Any]
Tree = dict[str, list[Any]]
T = TypeVar("T")

FOREIGN = ("WATCHTEST_", "PYTEST_", "COV_", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX", "XDG_")
LIMIT_S = 30.0
POLL_S = 0.01

# Every path in a folder except what runs leave behind: kind, mode, and digest or target. Only empty folders count.
TREE_SCRIPT = r"""
import hashlib, json, os, stat, sys
root, left_out = os.fsencode(sys.argv[1]), {b".watchtest", b"__pycache__", b".pytest_cache", b".git"}
found = {}
def look(folder, prefix):
    names = [name for name in os.listdir(folder) if name not in left_out]
    for name in names:
        path = os.path.join(folder, name)
        mode = os.lstat(path).st_mode
        key = os.fsdecode(prefix + name)
        if stat.S_ISLNK(mode):
            found[key] = ["symlink", os.fsdecode(os.readlink(path))]
        elif stat.S_ISDIR(mode):
            if not look(path, prefix + name + b"/"):
                found[key] = ["folder"]
        else:
            with open(path, "rb") as stream:
                found[key] = ["file", oct(stat.S_IMODE(mode)), hashlib.sha256(stream.read()).hexdigest()]
    return names
look(root, b"")
sys.stdout.write(json.dumps(found))
"""


def environ_around(around: Path, image: str) -> dict[str, str]:
    """Return an environment for a watcher that shares no cache, state or setting with another."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
    return kept | {
        "HOME": str(around),
        "TZ": "UTC",
        "LC_ALL": "C.UTF-8",
        "XDG_CONFIG_HOME": str(around / "config"),
        "WATCHTEST_CACHE_DIR": str(around / "cache"),
        "WATCHTEST_STATE_DIR": str(around / "state"),
        "WATCHTEST_RUNTIME_DIR": str(runtime_folder(around)),
        "WATCHTEST_NOTIFY_DESKTOP": "false",
        "WATCHTEST_BOX_IMAGE": image,
    }


def runtime_folder(around: Path) -> Path:
    """Return the folder of the watchers' sockets, which need short paths; those of tests are long."""
    return Path(tempfile.gettempdir(), f"wt-{hashlib.sha256(os.fsencode(around)).hexdigest()[:12]}")


@dataclass
class Project:
    """A workspace and everything around it that a test must not share with others."""

    root: Path
    around: Path
    """The folder of caches, state and outputs, outside the workspace."""
    kind: str
    environ: dict[str, str]
    watchers: list[Watcher] = field(default_factory=list)
    has_boxes: bool = True
    """False if no engine ever made a box for it, so that none has to be removed."""

    def save(self, path: str, content: str | bytes) -> None:
        """Write a file in place, as editors do."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)

    def watch(
        self, *flags: str, env: Mapping[str, str] | None = None, before: tuple[str, ...] = (), limit_s: float = LIMIT_S
    ) -> Watcher:
        """Start a watcher; `before` is put in front of its command."""
        command = [*before, sys.executable, "-m", "watchtest", "watch", "--plain", "--engine", self.kind, *flags]
        output = self.around / f"watcher-{len(self.watchers) + 1}"
        watcher = Watcher(self, command, {**self.environ, **(env or {})}, output, limit_s)
        self.watchers.append(watcher)
        return watcher

    def once(self, *flags: str, env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S) -> tuple[int, str]:
        """Run `watch --once` and return its exit code and output."""
        watcher = self.watch("--once", *flags, env=env)
        code = watcher.wait_for_end(limit_s)
        watcher.must_be_tidy()
        return code, watcher.said

    def command(
        self, *argv: str, env: Mapping[str, str] | None = None, limit_s: float = LIMIT_S
    ) -> subprocess.CompletedProcess[str]:
        """Run another command of watchtest on this workspace."""
        return subprocess.run(
            [sys.executable, "-m", "watchtest", *argv],
            cwd=self.root,
            env={**self.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            timeout=limit_s,
            check=False,
        )

    def execute(self, *argv: str, limit_s: float = LIMIT_S) -> subprocess.CompletedProcess[str]:
        """Run `watchtest exec`."""
        return self.command("exec", "--engine", self.kind, "--", *argv, limit_s=limit_s)

    # -- trees, without any code of ours -----------------------------------------------------------

    def tree_id(self) -> str:
        """Return git's id of the working tree, computed with an index and a repository outside it."""
        repository = self.around / "oracle.git"
        index = self.around / "oracle.index"
        environ = {
            "PATH": self.environ["PATH"],
            "GIT_DIR": str(repository),
            "GIT_WORK_TREE": str(self.root),
            "GIT_INDEX_FILE": str(index),
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
        }
        if not repository.exists():
            _output(["git", "init", "--quiet", "--bare", str(repository)], {"PATH": self.environ["PATH"]})
            (repository / "info").mkdir(exist_ok=True)
            (repository / "info" / "exclude").write_text(".watchtest/\n")
        index.unlink(missing_ok=True)
        _output(["git", "-c", "core.bare=false", "add", "-A", "."], environ, cwd=self.root)
        return _output(["git", "write-tree"], environ, cwd=self.root).strip()

    def tree(self) -> Tree:
        """Return what is in the workspace."""
        return tree_of(self.root)

    def box_tree(self, lane: str = "save") -> Tree:
        """Return what is in the box of a lane."""
        if self.kind == "docker":
            tree: Tree = json.loads(self.in_container("python3", "-c", TREE_SCRIPT, "/workspace", lane=lane))
            return tree
        return tree_of(self.local_box(lane) / "tree")

    def local_box(self, lane: str = "save") -> Path:
        (folder,) = (Path(self.environ["WATCHTEST_CACHE_DIR"]) / "boxes").glob(f"*-{lane}")
        return folder

    # -- the container, without any code of ours ---------------------------------------------------

    def container(self, lane: str = "save") -> str:
        """Return the id of the only container of a lane."""
        with closing(docker.from_env(environment=self.environ)) as client:
            labels = [f"watchtest.workspace={self.root}", f"watchtest.lane={lane}"]
            (found,) = client.api.containers(all=True, filters={"label": labels})
            return str(found["Id"])

    def in_container(self, *argv: str, lane: str = "save") -> str:
        with closing(docker.from_env(environment=self.environ)) as client:
            code, output = client.containers.get(self.container(lane)).exec_run(list(argv), demux=True)
            assert code == 0, output
            return str((output[0] or b"").decode())

    def box_processes(self) -> list[str]:
        """Return the command lines of every process in the box or, for the local box, of the whole machine."""
        if self.kind == "docker":
            with closing(docker.from_env(environment=self.environ)) as client:
                rows = client.containers.get(self.container()).top(ps_args="-eo pid,args")["Processes"]
            return [str(row[-1]) for row in rows]
        found = []
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit():
                try:
                    found.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
                except OSError:
                    continue  # ended while we looked
        return found


class Watcher:
    """A started watcher process."""

    def __init__(
        self, project: Project, command: list[str], environ: Mapping[str, str], output: Path, limit_s: float
    ) -> None:
        self._project = project
        self._limit_s = limit_s
        self._stdout, self._stderr = output.with_suffix(".out"), output.with_suffix(".err")
        with self._stdout.open("wb") as out, self._stderr.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=project.root, env=dict(environ), stdin=subprocess.DEVNULL, stdout=out, stderr=err
            )

    # -- what it says ------------------------------------------------------------------------------

    @property
    def output(self) -> str:
        return self._stdout.read_text(encoding="utf-8", errors="surrogateescape")

    @property
    def errors(self) -> str:
        return self._stderr.read_text(encoding="utf-8", errors="surrogateescape")

    @property
    def said(self) -> str:
        return self.output + self.errors

    @property
    def status(self) -> Status:
        """Return the status file; empty if there is none. A broken one is an error."""
        try:
            status: Status = json.loads((self._project.root / ".watchtest" / "status.json").read_bytes())
        except FileNotFoundError:
            return {}
        return status

    @property
    def own_status(self) -> Status:
        """Return the status only if this process wrote it."""
        status = self.status
        return status if status and status["writer"]["pid"] == self.process.pid else {}

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def peak_memory_mb(self) -> float:
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", text)
        assert found is not None
        return int(found[1]) / 1024

    # -- waiting -----------------------------------------------------------------------------------

    def wait_until(self, what: str, look: Callable[[], T | None], limit_s: float | None = None) -> T:
        """Return the first result of `look` that is not None or False. Fails if the watcher ends before."""
        deadline = time.monotonic() + (limit_s or self._limit_s)
        while True:
            was_alive = self.is_alive
            found = look()
            if found is not None and found is not False:
                return found
            assert was_alive, f"the watcher ended with {self.process.returncode} before: {what}\n{self._told()}"
            assert time.monotonic() < deadline, f"not within the limit: {what}\n{self._told()}"
            time.sleep(POLL_S)

    def wait_for_verdict(
        self, verdict: str | None = None, *, tree: str | None = None, limit_s: float | None = None
    ) -> Status:
        """Return the status once it is idle and about exactly this tree, by default the current working tree.

        A verdict from an outdated box is passed over, as long as a clean environment may come.
        """
        tree = tree or self._project.tree_id()

        def look() -> Status | None:
            status = self.own_status
            if not status or status["activity"] != "idle" or status["pending"]["changes"]:
                return None
            if (status["provisional"] or {}).get("code") == "dependencies" and not status["problem"]:
                return None
            return status if status["code"]["tree"] == tree else None

        status = self.wait_until(f"a verdict on the tree {tree}", look, limit_s)
        assert verdict is None or status["verdict"] == verdict, f"{status['verdict']}, not {verdict}\n{self._told()}"
        return status

    def wait_for_activity(self, *activities: str, limit_s: float | None = None) -> Status:
        def look() -> Status | None:
            status = self.own_status
            return status if status and status["activity"] in activities else None

        return self.wait_until(f"activity {' or '.join(activities)}", look, limit_s)

    def wait_for_words(self, words: str, limit_s: float | None = None) -> None:
        self.wait_until(f"the words {words!r}", lambda: words in self.said, limit_s)

    def wait_for_end(self, limit_s: float | None = None) -> int:
        try:
            return self.process.wait(limit_s or self._limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the watcher did not end\n{self._told()}") from None

    # -- ending ------------------------------------------------------------------------------------

    def stop(self, number: int = signal.SIGTERM, limit_s: float = 20.0) -> int:
        """Send this signal and return the exit code."""
        self.process.send_signal(number)
        return self.wait_for_end(limit_s)

    def kill9(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def must_be_tidy(self) -> None:
        """Fail if either stream or the status contains a traceback of ours or mentions a bug."""
        # The output of tests is shown behind a bar; a traceback there is theirs.
        own = [line for line in self.output.splitlines() if not re.match(r"[\d:]{8} (\[\w+\] )?  \| ", line)]
        for text in ("\n".join(own), self.errors, json.dumps(self.status.get("problem"))):
            assert "Traceback" not in text, self._told()
            assert "internal error" not in text, self._told()
            assert "bug:" not in text, self._told()

    def _told(self) -> str:
        log = self._project.root / ".watchtest" / "watchtest.log"
        told = log.read_text(errors="replace")[-3000:] if log.exists() else "none"
        return (
            f"--- stdout ---\n{self.output[-4000:]}\n--- stderr ---\n{self.errors[-4000:]}\n"
            f"--- log ---\n{told}\n--- status ---\n{json.dumps(self.status)[:3000]}"
        )


def wait_for(what: str, look: Callable[[], bool], limit_s: float = LIMIT_S) -> None:
    """Wait for a condition that needs no watcher."""
    deadline = time.monotonic() + limit_s
    while not look():
        assert time.monotonic() < deadline, f"not within {limit_s:g} s: {what}"
        time.sleep(POLL_S)


def tree_of(folder: Path) -> Tree:
    tree: Tree = json.loads(_output([sys.executable, "-I", "-c", TREE_SCRIPT, str(folder)], dict(os.environ)))
    return tree


def _output(command: list[str], environ: Mapping[str, str], cwd: Path | None = None) -> str:
    done = subprocess.run(
        command, cwd=cwd, env=dict(environ), capture_output=True, encoding="utf-8", timeout=30, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout
