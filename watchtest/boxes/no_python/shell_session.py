"""The session of a box without Python: bring its tree to a snapshot, run a command, save a small state.

It has the same interface as a session with an agent. The host's view of the tree is what the last listing proved, so a
delta is computed against what is really there. Every error ends the session: the next one examines the box again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from importlib import resources
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeVar

from watchtest.agent.frames import Frame
from watchtest.agent.jobs.job_limits import KILL, KILL_SUPERVISOR
from watchtest.agent.owned_paths import STAGE, parse_ledger
from watchtest.boxes import protocols
from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.no_python import shell_tree
from watchtest.boxes.no_python.shell_job import STDOUT, JobOutput, ShellJob, new_token
from watchtest.core.model import Delta, Entry, Snapshot, difference
from watchtest.errors import BY_ITSELF, BoxError, BoxGone, ChannelLost, DiskFull, ServiceError, WatchtestError

if TYPE_CHECKING:
    from watchtest.boxes.docker.container_tools import DockerTools

ASK_EVERY_S = 2.0
ALIVE_LIMIT_S = 6.0
CLOSE_LIMIT_S = 5.0


class ShellChannel:
    """Asks the engine every few seconds whether the container still runs. Once lost, it stays lost."""

    def __init__(self, tools: DockerTools) -> None:
        self._tools = tools
        self._lost_reason: str | None = None
        self._heart: asyncio.Task[None] | None = None
        self._uploads = 0
        self.closed = asyncio.Event()
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.on_push: Callable[[Frame], None] = lambda _frame: None
        """Never called: without an agent, nothing is pushed. Part of the interface of a channel."""
        self.was_stopped = False

    def open(self) -> None:
        self._heart = asyncio.create_task(self._beat(), name="heartbeat of a plain box")

    @property
    def is_lost(self) -> bool:
        return self._lost_reason is not None

    def mark_lost(self, reason: str) -> None:
        if self._lost_reason is None:
            self._lost_reason = reason
            self.closed.set()
            self.on_lost(reason)

    def lost_error(self) -> ChannelLost:
        return ChannelLost(f"lost the box: {self._lost_reason or 'the connection has ended'}", hint=BY_ITSELF)

    @contextmanager
    def uploading(self) -> Iterator[None]:
        """Pause the heartbeat: an engine that unpacks an archive answers no other request for that container."""
        self._uploads += 1
        try:
            yield
        finally:
            self._uploads -= 1

    async def close(self) -> None:
        self.mark_lost("closed by the watcher")
        if self._heart is not None:
            self._heart.cancel()
            await asyncio.gather(self._heart, return_exceptions=True)
        try:
            await in_daemon_thread(self._tools.close, CLOSE_LIMIT_S)
        except TimeoutError:
            return  # the engine stalls; do not wait for it

    async def _beat(self) -> None:
        while self._lost_reason is None:
            await asyncio.sleep(ASK_EVERY_S)
            if self._uploads:
                continue
            try:
                reason = await in_daemon_thread(self._tools.why_gone, ALIVE_LIMIT_S)
            except WatchtestError as error:
                reason = error.message
            except TimeoutError:
                reason = f"the engine did not answer within {ALIVE_LIMIT_S:g} s"
            if reason and not self._uploads:
                self.mark_lost(reason)


ANSWER_LIMIT_S = 60.0
SYNC_LIMIT_S = 300.0
SWEEP_LIMIT_S = 30.0
ANSWER_LIMIT = 256 * 1024 * 1024
ERRORS_LIMIT = 2000
REPORT_LIMIT = 64 * 1024 * 1024
FILE_LIMIT = 256 * 1024 * 1024
TAKEN = 97
"""The exit code of shell_agent.sh if another watcher has taken the box."""
PROBE = f"""
mkdir -p "$1/plain" "$2/{STAGE}" || exit 1
while read -r key value rest; do case $key in Uid: | Gid:) echo "$value" ;; esac; done < /proc/self/status
for tool in {" ".join(shell_tree.HASHES)}; do if command -v $tool > /dev/null; then echo $tool; exit; fi; done
echo none
"""
"""The script that prepares a box and prints its user, its group and its hash tool."""

T = TypeVar("T")


class _CommandResult(NamedTuple):
    code: int
    output: bytes
    errors: str
    """Its stderr."""


class ShellSession:
    """The holder of the box. `open` invalidates every earlier session."""

    python = ""
    executable = ""
    has_services = False
    is_empty = False
    lost_in = ""

    def __init__(self, tools: DockerTools, root: str, home: str) -> None:
        self.channel = ShellChannel(tools)
        self.generation = 0
        self.saved_state: Mapping[str, Any] = {}
        self._tools = tools
        self._root = root
        self._home = home
        self._holder = secrets.token_hex(8)
        self._hash_tool = ""
        self._owner = shell_tree.FileOwner(0, 0)
        self._written: dict[str, shell_tree.OwnedPath] = {}
        """The tree as it was last written; the lists in the box contain exactly these paths."""
        self._tree: dict[str, Entry] = {}
        """The part of it that a listing has proved."""
        self._changed_paths: set[str] = set()
        """Owned paths that are missing or changed."""

    async def open(self) -> None:
        with self._lost_on_error():
            probed = await self._call(lambda: self._execute(["/bin/sh", "-c", PROBE, "sh", self._home, self._root]))
            uid, gid, hash_tool = _parse_probe(probed, self._root)
            self._owner, self._hash_tool = shell_tree.FileOwner(uid, gid), hash_tool
            await self._call(self._install)
            swept = await self._call(lambda: self._execute(self._script("sweep", "KILL", "all")), SWEEP_LIMIT_S)
            if swept.code != 0:
                raise BoxError(
                    f"processes of an earlier run cannot be killed: {swept.errors}",
                    hint="`watchtest reset` creates a new box",
                )
            manifest, ledger, remembered = await self._call(self._read_saved)
            self._written = shell_tree.read_manifest(manifest, hash_tool)
            self._changed_paths = parse_ledger(ledger or b"")
            self.saved_state = _parse_state(remembered)
            await self._list_tree("list")
        self.channel.open()

    async def save_state(self, what: Mapping[str, Any]) -> None:
        with self._lost_on_error():
            state = json.dumps(dict(what), separators=(",", ":"))
            saved = await self._call(lambda: self._execute(self._script("remember", state)))
            _require_success(saved, "cannot save the state of the box")
        self.saved_state = dict(what)

    async def apply_services(self, order: Mapping[str, Any]) -> bytes:
        raise ServiceError(
            "services need Python 3.8 or newer in the box, but its image has none",
            hint="set box.image to an image with Python, or add its installation to box.setup and `watchtest reset`",
        )

    # -- the tree ----------------------------------------------------------------------------------

    @property
    def path_count(self) -> int:
        """The number of paths that snapshots have brought into the box."""
        return len(self._tree) + len(self._changed_paths)

    async def refresh(self) -> None:
        """Find out what has changed in the tree since the last time: tests may write anywhere in it."""
        with self._lost_on_error():
            await self._list_tree("list")

    async def sync(self, snapshot: Snapshot, read: protocols.ContentReader) -> tuple[int, Delta]:
        """Bring the tree, as `refresh` saw it, to the snapshot; return its new generation and what was changed."""
        delta = difference(self._tree, snapshot.entries)
        if not delta and self._changed_paths <= snapshot.entries.keys():
            return self.generation, delta
        with self._lost_on_error():
            old = {path: self._written[path] for path in self._tree}
            lost = frozenset(self._changed_paths)
            # Files are read in a thread, so that a large tree does not block everything else.
            written, archive = await asyncio.to_thread(
                shell_tree.prepare, old, lost, delta, read, self._hash_tool, self._owner
            )
            with self.channel.uploading():
                await self._call(lambda: self._upload(f"{self._root}/{STAGE}", archive), SYNC_LIMIT_S)
            self._written, self._changed_paths = written, set()
            await self._list_tree("apply")
            for path in sorted(self._changed_paths):
                if "\n" not in path:  # a listing cannot prove a path with one, so it is written again each time
                    raise ChannelLost(f"{path} differs from what was written there", hint=BY_ITSELF)
            self._tree, self._changed_paths = dict(snapshot.entries), set()
        self.generation += 1
        return self.generation, delta

    async def fingerprints(self, python: str, paths: Collection[str]) -> Mapping[str, Any]:
        return {}  # they need Python

    async def _list_tree(self, action: str) -> None:
        answer = await self._call(lambda: self._execute(self._script(action)), SYNC_LIMIT_S)
        _require_success(answer, "the tree cannot be updated")
        right = shell_tree.proved_paths(self._written, answer.output)
        self._tree = {path: self._written[path].entry for path in self._written if path in right}
        self._changed_paths = (self._changed_paths | self._written.keys()) - right

    def _upload(self, folder: str, archive: IO[bytes]) -> None:
        with archive:
            self._tools.put(folder, archive)

    # -- jobs --------------------------------------------------------------------------------------

    async def run(
        self,
        job: protocols.JobSpec,
        on_results: protocols.OnResults,
        on_output: protocols.OnOutput,
        stop: asyncio.Queue[bool] | None = None,
    ) -> protocols.JobResult:
        """Run a job to its end. Each item of `stop` is a request to stop it: True kills, False interrupts first."""
        what = job.command
        if not isinstance(what, protocols.Command):
            raise protocols.no_python_error()
        with self._lost_on_error():
            if job.requires is not None and job.requires != self.generation:
                raise BoxError(f"the run requires generation {job.requires}, the box is at {self.generation}")
            report = f"{self._home}/plain/report"
            argv = [word.replace(protocols.REPORT, report) for word in what.argv]
            token = new_token()
            env = {**job.env, "WATCHTEST_JOB": self._home}
            script = self._script("run", token, what.folder, *argv)
            command = await self._call(lambda: self._tools.start(script, env, job.path_first))
            shell_job = ShellJob(job, token, command, self._take_step, on_results, JobOutput(on_output))
            try:
                result = await shell_job.until_ended(stop, self.channel.closed)
                if result is None:
                    result = await self._unknown_end(shell_job, command.exit_code)
            finally:
                command.close()  # what still runs in the box sees the end of its stdin and is killed
            if shell_job.has_leftovers:
                await self._restart()
            has_report = any(protocols.REPORT in word for word in what.argv)
            content = await self._call(lambda: self._tools.get(report, REPORT_LIMIT)) if has_report else None
            return replace(result, report=content)

    async def _unknown_end(self, shell_job: ShellJob, exit_code: Callable[[], int | None]) -> protocols.JobResult:
        """The stream has ended without the last line. It is a result only if the supervisor was surely killed."""
        if gone := await self._call(self._tools.why_gone):
            raise BoxGone(f"the box was lost during the run: {gone}", hint=BY_ITSELF)
        code = await self._call(exit_code)
        if not code:
            raise ChannelLost("the connection to the run was lost; how the run ended is unknown", hint=BY_ITSELF)
        if not await self._take_step(KILL_SUPERVISOR):
            await self._restart()
        return shell_job.unknown_end("the supervisor of the run was killed")

    async def _take_step(self, step: str) -> bool:
        """Carry out a step of a stop; return whether it succeeded."""
        words = (KILL, "all") if step == KILL_SUPERVISOR else (step,)
        result = await self._call(lambda: self._execute(self._script("sweep", *words)), SWEEP_LIMIT_S)
        return result.code == 0

    async def _restart(self) -> None:
        """Restart the box because a process in it cannot be killed; the next session opens it again."""
        await self._call(self._tools.restart)
        self.channel.mark_lost("the box was restarted to end processes that a run had left in it")

    # -- the box -----------------------------------------------------------------------------------

    def _script(self, action: str, *words: str) -> list[str]:
        return ["/bin/sh", f"{self._home}/plain/shell_agent.sh", action, self._home, self._root, self._holder, *words]

    def _execute(self, argv: list[str]) -> _CommandResult:
        """Run a small command to its end. Blocks."""
        started = self._tools.start(argv, {})
        output, errors = bytearray(), bytearray()
        try:
            while pieces := started.read():
                for stream, piece in pieces:
                    (output if stream == STDOUT else errors).extend(piece)
                if len(output) > ANSWER_LIMIT:
                    raise ChannelLost(f"the answer of the box is larger than {ANSWER_LIMIT} bytes")
            code = started.exit_code()
        finally:
            started.close()
        if code is None:
            raise ChannelLost("the connection to a command in the box was lost", hint=BY_ITSELF)
        return _CommandResult(code, bytes(output), errors.decode("utf-8", "replace").strip()[-ERRORS_LIMIT:])

    def _install(self) -> None:
        script = resources.files("watchtest.boxes.no_python").joinpath("shell_agent.sh").read_bytes()
        with shell_tree.ArchiveBuilder(self._owner) as builder:
            builder.file("shell_agent.sh", script, 0o644)
            builder.file("holder", f"{self._holder}\n".encode(), 0o644)
            self._upload(f"{self._home}/plain", builder.finish())

    def _read_saved(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        names = ("plain/manifest", "owned", "remembered.json")
        manifest, ledger, remembered = (self._tools.get(f"{self._home}/{name}", FILE_LIMIT) for name in names)
        return manifest, ledger, remembered

    async def _call(self, call: Callable[[], T], limit_s: float = ANSWER_LIMIT_S) -> T:
        """Make a blocking call in a thread, with a time limit; raise if the box is lost."""
        if self.channel.is_lost:
            raise self.channel.lost_error()
        try:
            return await in_daemon_thread(call, limit_s)
        except TimeoutError as error:
            raise ChannelLost(f"the box did not answer within {limit_s:g} s", hint=BY_ITSELF) from error

    @contextmanager
    def _lost_on_error(self) -> Iterator[None]:
        """End the session if the block raises, because the state of the box is unknown then."""
        try:
            yield
        except BaseException as error:
            self.channel.mark_lost(f"given up after: {error or type(error).__name__}")
            raise


def _parse_probe(probed: _CommandResult, root: str) -> tuple[int, int, str]:
    words = probed.output.decode("ascii", "replace").split()
    if probed.code != 0 or len(words) != 3 or not words[0].isdigit() or not words[1].isdigit():
        error = BoxError(
            f"the folder {shlex.quote(root)} in the box cannot be written: {probed.errors or probed.code}",
            hint="set box.workdir to a folder the box's user may write, or box.user to one who may",
        )
        error.code = "workdir"
        raise error
    return int(words[0]), int(words[1]), words[2]


def _require_success(answer: _CommandResult, what: str) -> None:
    if answer.code == 0:
        return
    if answer.code == TAKEN:
        raise ChannelLost("another watcher has taken this box", hint=BY_ITSELF)
    kind = DiskFull if "No space left" in answer.errors else BoxError
    raise kind(f"{what}: {answer.errors or f'exit code {answer.code}'}")


def _parse_state(content: bytes | None) -> Mapping[str, Any]:
    try:
        what = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}  # damaged: setup is simply repeated
    return what if isinstance(what, dict) else {}
