"""One project with its watcher, and what is compared at each rest."""

from __future__ import annotations

import http.client
import json
import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
import jsonschema
from engine.images import PYTHON_313
from support.faults.stalling_proxy import StallingProxy
from support.git_repo import Repo
from support.projects import end
from support.watcher_process import Project, Status, Watcher, environ_around, runtime_folder

from chaos import sample
from chaos.judge import Judge, Judgement
from chaos.trees import EMPTY_FOLDER, LEFT_OUT, READ_FOLDER, Entries, Trees, differences, entries_of, parse_entries

LANES = ("save", "stage", "commit")
SETTLED_WITHIN_S = 40.0
GONE_WITHIN_S = 5.0
POLL_S = 0.02
EXIT_CODES = {"passed": 0, "failed": 1, "error": 1, "no_tests": 5}
IN_PROGRESS = ("MERGE_HEAD", "CHERRY_PICK_HEAD", "REVERT_HEAD", "rebase-merge", "rebase-apply", "index.lock")
OWN_FILES = {
    ".gitignore", "status.json", "heartbeat", "locations", "lock", "watchtest.log", "gate.lock",
    "background.err", "by-hand",
}  # fmt: skip
"""What may lie in `.watchtest` at rest."""


BOX_LOST = ("channel", "engine", "box")
"""The problems of a lane whose box is gone. Until git is done, it may have no reason to open another."""


class Violation(AssertionError):
    """What watchtest says or leaves behind is not what the oracle found."""


class NotNow(Exception):
    """The step is not possible in the present state."""


@dataclass(frozen=True, slots=True)
class Truth:
    """What a lane ought to say."""

    tree: str
    judgement: Judgement


@dataclass
class World:
    """Everything that belongs to one stretch of steps."""

    project: Project
    repo: Repo
    trees: Trees
    judge: Judge
    lanes: dict[str, str]
    proxy: StallingProxy | None
    """Between the watcher and its container engine; the driver itself does not go through it."""
    engine: docker.DockerClient | None
    schema: dict[str, Any]
    random: random.Random = field(default_factory=random.Random)
    number: int = 0
    watcher: Watcher = field(init=False)
    held: set[str] = field(default_factory=set)
    """Lanes whose changes may wait for the next request, because a run was cancelled or the box was changed."""
    rests: int = 0

    def __post_init__(self) -> None:
        for path, text in sample.FILES.items():
            self.project.save(path, text)
        self.repo.commit("first")
        self.start()

    @property
    def root(self) -> Path:
        return self.project.root

    def start(self) -> None:
        flags = [f"--trigger={lane}={self.lanes.get(lane, 'off')}" for lane in LANES]
        self.watcher = self.project.watch(*flags)

    # -- files -------------------------------------------------------------------------------------

    def files(self, suffix: str = ".py") -> list[str]:
        """Return the files of the workspace with this suffix, sorted."""
        found = []
        for folder, folders, names in os.walk(self.root):
            folders[:] = sorted(set(folders) - {".git", ".watchtest"})
            prefix = os.path.relpath(folder, self.root)
            found += [os.path.normpath(f"{prefix}/{name}") for name in names if name.endswith(suffix)]
        return sorted(path for path in found if not (self.root / path).is_symlink())

    def read(self, path: str) -> str:
        try:
            return (self.root / path).read_bytes().decode()
        except (OSError, UnicodeDecodeError) as error:
            raise NotNow from error

    def write(self, path: str, content: str | bytes) -> str:
        """Save a file in the manner of one editor or another; return its words."""
        data = content.encode() if isinstance(content, str) else content
        file = self.root / path
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            if file.is_dir():
                raise NotNow
            match self.random.randrange(5):
                case 0:
                    fresh = file.with_name(f".{file.name}.swp")
                    fresh.write_bytes(data)
                    fresh.replace(file)
                    how = "by rename"
                case 1 if file.exists():
                    backup = file.with_name(f"{file.name}~")
                    file.rename(backup)
                    file.write_bytes(data)
                    backup.unlink()
                    how = "with a backup"
                case 2:
                    half = len(data) // 2
                    with file.open("wb", buffering=0) as stream:
                        stream.write(data[:half])
                        time.sleep(self.random.choice((0, 0.01, 0.07)))
                        stream.write(data[half:])
                    how = "in two pieces"
                case _:
                    file.write_bytes(data)
                    how = "in place"
        except OSError as error:
            raise NotNow from error
        return f"{path!r} {how}"

    # -- git ---------------------------------------------------------------------------------------

    def git(self, *arguments: str) -> str:
        return self.repo.git(*arguments, check=False)

    @property
    def is_git_busy(self) -> bool:
        folder = self.root / ".git"
        return any((folder / name).exists() for name in IN_PROGRESS) or bool(self.git("ls-files", "--unmerged"))

    # -- the watcher -------------------------------------------------------------------------------

    def api(self, method: str, path: str, body: dict[str, object] | None = None) -> dict[str, Any]:
        """Send a request to the watcher's socket, as any program would."""
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while True:
            try:
                return self._request(method, path, body)
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not self.watcher.is_alive:
                    raise Violation(f"the watcher ended with {self.watcher.process.returncode}") from error
                if time.monotonic() > deadline:
                    raise Violation(f"{method} {path}: no answer ({error})") from error
                time.sleep(POLL_S)

    def _request(self, method: str, path: str, body: dict[str, object] | None) -> dict[str, Any]:
        (address,) = runtime_folder(self.project.around).glob("*.sock")
        with closing(http.client.HTTPConnection("localhost", timeout=20)) as connection:
            connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.sock.settimeout(20)
            connection.sock.connect(str(address))
            headers = {} if body is None else {"Content-Type": "application/json"}
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer

    def any_lane(self) -> str:
        return self.random.choice(sorted(self.lanes))

    # -- processes ---------------------------------------------------------------------------------

    def processes(self) -> dict[int, str]:
        """Return the processes of this project on the machine, by pid: the watcher and what is in local boxes."""
        mark = os.fsencode(self.project.around)
        found = {}
        for folder in Path("/proc").iterdir():
            if folder.name.isdigit() and int(folder.name) != os.getpid():
                try:
                    command = (folder / "cmdline").read_bytes()
                    if command and (mark in command or mark in (folder / "environ").read_bytes()):
                        found[int(folder.name)] = command.replace(b"\0", b" ").decode("utf-8", "replace")
                except OSError:
                    continue  # it has just ended
        return found

    def container(self, lane: str) -> Any:
        """Return the container of a lane; NotNow unless there is exactly one, and it is running."""
        found = [container for container in self._containers(lane) if container.status == "running"]
        if len(found) != 1:
            raise NotNow
        return found[0]

    def _containers(self, lane: str) -> list[Any]:
        assert self.engine is not None
        labels = [f"watchtest.workspace={self.root}", f"watchtest.lane={lane}"]
        found: list[Any] = self.engine.containers.list(all=True, filters={"label": labels})
        return found

    def box(self, lane: str) -> Path:
        """Return the folder of a local box; NotNow if there is none yet."""
        found = list((self.project.around / "cache" / "boxes").glob(f"*-{lane}"))
        if len(found) != 1 or not (found[0] / "tree").is_dir():
            raise NotNow
        return found[0]

    # -- rest --------------------------------------------------------------------------------------

    def rest(self) -> None:
        """Wait until the watcher has settled, and compare everything with the oracle."""
        self.rests += 1
        self.watcher.wait_until("the watcher has started", lambda: bool(self.watcher.own_status))
        truths = self._truths()
        for lane in sorted(self.held & truths.keys()):
            self.api("POST", "/runs", {"lane": lane})
        self.held -= truths.keys()
        if truths and self.random.random() < 0.4:
            asked = self.random.choice(sorted(truths))
            self._compare_lane(asked, truths[asked], self._wait_as_commands_do(asked)["lanes"][asked])
        status = self._wait_for_rest(truths)
        try:
            jsonschema.validate(status, self.schema)
        except jsonschema.ValidationError as error:
            raise Violation(f"the status file does not match its schema: {error.message}") from error
        for lane, truth in truths.items():
            self._compare_lane(lane, truth, status["lanes"][lane])
            self._compare_mirror(lane, truth)
        for lane in self.lanes.keys() - truths.keys():
            problem = status["lanes"][lane]["problem"]
            if problem and problem["code"] not in BOX_LOST:
                raise Violation(f"{lane} has to wait for git, but it says {problem}")
        self._look_for_strays()
        if self.random.random() < 0.15:
            self._compare_commands(truths)
        self.watcher.must_be_tidy()

    def _truths(self) -> dict[str, Truth]:
        truths = {}
        if "save" in self.lanes:
            tree = self.trees.working_tree()
            truths["save"] = Truth(tree, self.judge.judge(tree, self.trees.empty_folders()))
        if not self.is_git_busy:
            for lane, find in (("stage", self.trees.index), ("commit", self.trees.head)):
                if lane in self.lanes and (tree_id := find()) is not None:
                    truths[lane] = Truth(tree_id, self.judge.judge(tree_id))
        return truths

    def _wait_as_commands_do(self, lane: str) -> Status:
        """Return the status as `status --wait` does: its answer must be about the code at the time of the question."""
        words = self.random.random() < 0.2
        if words:
            done = self.project.command("status", "--wait", "--json", "--lane", lane, limit_s=SETTLED_WITHIN_S)
            try:
                document: Status = json.loads(done.stdout)
            except ValueError as error:
                raise Violation(f"status --wait: exit code {done.returncode}: {done.stderr}") from error
            expected = EXIT_CODES.get(document["lanes"][lane]["verdict"])
            if done.returncode != expected:
                raise Violation(f"status --wait: exit code {done.returncode}, but it says {document['lanes'][lane]}")
            return document
        answer = self.api("POST", "/look", {"lane": lane})
        deadline = time.monotonic() + SETTLED_WITHIN_S
        while True:
            if answer.get("settled"):
                status = self.api("GET", "/status")
                if status["lanes"][lane]["activity"] not in ("starting", "syncing", "running"):
                    return status
            if time.monotonic() > deadline:
                raise Violation(f"{lane}: /look does not settle: {answer}")
            time.sleep(POLL_S)
            answer = self.api("GET", f"/look?lane={lane}")

    def _wait_for_rest(self, truths: dict[str, Truth]) -> Status:
        deadline = time.monotonic() + SETTLED_WITHIN_S
        status: Status = {}
        while time.monotonic() < deadline:
            status = self.watcher.own_status
            lanes = status.get("lanes", {})
            if lanes and all(_is_at_rest(lanes[lane], truth.tree) for lane, truth in truths.items()):
                return status
            if not self.watcher.is_alive:
                raise Violation(f"the watcher ended with {self.watcher.process.returncode}")
            time.sleep(POLL_S)
        wanted = {lane: truth.tree for lane, truth in truths.items()}
        shown = {
            lane: {key: facts[key] for key in ("activity", "verdict", "reason", "code", "pending", "problem", "scope")}
            for lane, facts in status.get("lanes", {}).items()
            if facts
        }
        raise Violation(f"not at rest after {SETTLED_WITHIN_S:g} s; the trees are {wanted}, the status says {shown}")

    def _compare_lane(self, lane: str, truth: Truth, said: dict[str, Any]) -> None:
        judgement = truth.judgement
        if said["code"]["tree"] != truth.tree:
            raise Violation(f"{lane}: the verdict is about {said['code']['tree']}, not about the tree {truth.tree}")
        red = {failure["id"] for failure in said["failures"]}
        facts = f"pytest says {judgement.verdict} {sorted(judgement.red)}; watchtest {said['verdict']} {sorted(red)}"
        if said["verdict"] != judgement.verdict:
            raise Violation(f"{lane}: {facts}, {said['scope']}, {said['reason']}")
        if judgement.is_collected and red != judgement.red:
            raise Violation(f"{lane}: {facts}, {said['scope']}")
        if not judgement.red <= red:
            raise Violation(f"{lane}: {facts}, {said['scope']}")

    def _compare_mirror(self, lane: str, truth: Truth) -> None:
        expected = dict(self.trees.entries(truth.tree))
        if lane == "save":
            expected |= dict.fromkeys(self.trees.empty_folders(), (EMPTY_FOLDER, ""))
        if different := differences(expected, self._in_box(lane)):
            raise Violation(f"{lane}: the mirror is not exact: {different}")

    def _in_box(self, lane: str) -> Entries:
        try:
            if self.project.kind == "local":
                return entries_of(self.box(lane) / "tree")
            command = ["python3", "-c", READ_FOLDER, "/workspace", *LEFT_OUT]
            code, output = self.container(lane).exec_run(command, demux=True)
        except NotNow as error:
            raise Violation(f"{lane}: there is no single box at rest") from error
        if code != 0:
            raise Violation(f"{lane}: the box cannot be read: {output}")
        return parse_entries(output[0].decode())

    def _look_for_strays(self) -> None:
        deadline = time.monotonic() + GONE_WITHIN_S
        while found := self._strays():
            if time.monotonic() > deadline:
                raise Violation(f"left over: {found}")
            time.sleep(POLL_S * 5)

    def _strays(self) -> list[str]:
        found = [line for pid, line in self.processes().items() if not self._is_expected(pid, line)]
        names = {path.name for path in (self.root / ".watchtest").iterdir()}
        found += sorted(name for name in names - OWN_FILES if not name.startswith("watchtest.log."))
        if self.project.kind == "docker":
            for lane in self.lanes:
                containers = self._containers(lane)
                if len(containers) != 1:
                    found.append(f"{len(containers)} containers of the lane {lane}")
                for container in containers:
                    rows = container.top(ps_args="-ww -eo pid,args")["Processes"]
                    found += [row[-1] for row in rows if "sleep 7654" in row[-1]]
        return found

    def _is_expected(self, pid: int, line: str) -> bool:
        own = self.watcher.process.pid
        is_agent = " -I -c " in line or "watchtest_agent.warm import zygote" in line
        is_helper = "cat-file --batch" in line and line.startswith("git ") and _parent(pid) == own
        return pid == own or line.split(" ", 1)[0].endswith("bwrap") or is_agent or is_helper

    def _compare_commands(self, truths: dict[str, Truth]) -> None:
        """Compare the exit codes of `status` and `gate` with the oracle."""
        for lane, arguments in (("stage", ("--staged",)), ("commit", ("--commit", "HEAD"))):
            if lane not in truths:
                continue
            done = self.project.command("gate", *arguments, limit_s=SETTLED_WITHIN_S)
            if done.returncode != EXIT_CODES[truths[lane].judgement.verdict]:
                raise Violation(f"gate {arguments}: {done.returncode}, {truths[lane]}\n{done.stdout}{done.stderr}")

    # -- the end -----------------------------------------------------------------------------------

    def finish(self) -> None:
        """Stop the watcher and look for anything that it leaves behind."""
        if (code := self.watcher.stop()) != 0:
            raise Violation(f"the watcher ended with {code}")
        for watcher in self.project.watchers:
            watcher.must_be_tidy()
        if self.watcher.status.get("activity") != "stopped":
            raise Violation(f"the last status says {self.watcher.status.get('activity')}")
        deadline = time.monotonic() + GONE_WITHIN_S
        while left := [*self.processes().values(), *self._temporary_files()]:
            if time.monotonic() > deadline:
                raise Violation(f"left over after the end: {left}")
            time.sleep(POLL_S * 5)
        listed = self.project.command("history", "list", "-n", "10000", "--json").stdout
        active = [run for run in json.loads(listed)["runs"] if run["state"] in ("queued", "syncing", "running")]
        if active:
            raise Violation(f"runs that never ended: {active}")

    def _temporary_files(self) -> list[str]:
        places = (self.project.around / "tmp", runtime_folder(self.project.around))
        return [str(path) for place in places if place.is_dir() for path in place.iterdir()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0  # it has just ended


def _is_at_rest(lane: dict[str, Any], tree: str) -> bool:
    is_done = lane["activity"] == "idle" and not lane["pending"]["changes"] and not lane["problem"]
    return is_done and lane["code"]["tree"] == tree


@contextmanager
def open_world(
    around: Path, engine: str, lanes: dict[str, str], python: Path, settings: dict[str, str]
) -> Iterator[World]:
    """Open a fresh project with its watcher; kill everything that is left of it at the end."""
    with ExitStack() as stack:
        root = around / "my pröject"
        (around / "tmp").mkdir(parents=True)
        environ = {
            **environ_around(around, PYTHON_313),
            "TMPDIR": str(around / "tmp"),
            "WATCHTEST_BOX_ENGINE": engine,
            "WATCHTEST_WATCH_SHRINK_GUARD": "false",
            **settings,
        }
        proxy, client = None, None
        if engine == "local":
            packages = next(python.parent.parent.glob("lib/python3*/site-packages"))
            link = f'cd "$VIRTUAL_ENV"/lib/python3*/site-packages && echo "{packages}" > pytest.pth'
            environ |= {"WATCHTEST_BOX_PYTHON": str(python), "WATCHTEST_BOX_SETUP": f"['{link}']"}
        else:
            behind = Path("/var/run/docker.sock")
            proxy = stack.enter_context(StallingProxy(runtime_folder(around).with_suffix(".engine"), behind))
            client = stack.enter_context(closing(docker.DockerClient(base_url=f"unix://{behind}")))
            environ["DOCKER_HOST"] = proxy.host
        project = Project(root, around, engine, environ)
        stack.callback(end, project)
        repo = Repo(root)
        trees = Trees(repo, around)
        judge = stack.enter_context(Judge(str(python), trees, around))
        schema = json.loads(project.command("status", "--schema").stdout)
        yield World(project, repo, trees, judge, lanes, proxy, client, schema)
