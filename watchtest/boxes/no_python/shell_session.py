"""What can be done with a box without Python: bring its tree to a snapshot, run a command, remember a word.

Has the face of a session with an agent. The host's view of the tree is always what a listing has just proved, so a
delta is computed against what is really there. Whatever fails ends the session: the next one looks anew.

Whether a box without Python is still there: the engine is asked every few seconds. Owns the task that asks.
"""

from __future__ import annotations

import asyncio
import io
import json
import secrets
import shlex
import tarfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any, TypeVar

from watchtest.agent.frames import Frame
from watchtest.boxes.blocking_calls import in_daemon_thread
from watchtest.boxes.no_python import shell_tree
from watchtest.boxes.no_python.shell_job import Output, ShellJob, new_token
from watchtest.boxes.no_python.shell_tools import STDOUT, ShellTools
from watchtest.boxes.protocols import (
    REPORT,
    Command,
    ContentReader,
    JobResult,
    JobSpec,
    OnOutput,
    OnResults,
    no_python_error,
)
from watchtest.core.model import Delta, Entry, Snapshot, difference
from watchtest.errors import BY_ITSELF, BoxError, BoxGone, ChannelLost, DiskFull, ServiceError, WatchtestError

ASK_EVERY_S = 2.0
ALIVE_LIMIT_S = 6.0
CLOSE_LIMIT_S = 5.0


class ShellChannel:
    """Once lost, for whatever reason, it stays lost: the next session looks anew."""

    def __init__(self, tools: ShellTools) -> None:
        self._tools = tools
        self._lost: str | None = None
        self._heart: asyncio.Task[None] | None = None
        self._uploads = 0
        self.closed = asyncio.Event()
        self.on_lost: Callable[[str], None] = lambda _reason: None
        self.on_push: Callable[[Frame], None] = lambda _frame: None
        """Nobody says anything unasked here; it is part of the face of a channel."""

    def open(self) -> None:
        self._heart = asyncio.create_task(self._beat(), name="heartbeat of a plain box")

    @property
    def is_lost(self) -> bool:
        return self._lost is not None

    def mark_lost(self, reason: str) -> None:
        if self._lost is None:
            self._lost = reason
            self.closed.set()
            self.on_lost(reason)

    def lost_error(self) -> ChannelLost:
        return ChannelLost(f"lost the box: {self._lost or 'the connection has ended'}", hint=BY_ITSELF)

    @contextmanager
    def uploading(self) -> Iterator[None]:
        """An engine that unpacks an archive answers nothing else about that container."""
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
            return  # an engine that stalls; nobody waits for it

    async def _beat(self) -> None:
        while self._lost is None:
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
WORDS_LIMIT = 2000
REPORT_LIMIT = 64 * 1024 * 1024
FILE_LIMIT = 256 * 1024 * 1024
TAKEN = 97
"""The exit code of box.sh that says that somebody else has the box."""
LOOK = f"""
mkdir -p "$1/plain" "$2/{shell_tree.STAGE}" || exit 1
while read -r key value rest; do case $key in Uid: | Gid:) echo "$value" ;; esac; done < /proc/self/status
for tool in {" ".join(shell_tree.HASHES)}; do if command -v $tool > /dev/null; then echo $tool; exit; fi; done
echo none
"""
"""What a box without Python says of itself: user, group, and the tool by which it tells contents apart."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _CommandResult:
    code: int
    output: bytes
    words: str
    """What it said on stderr."""


class ShellSession:
    """One holder of the box, from its opening to its end. `open` makes every earlier one the last."""

    python = ""
    executable = ""
    has_services = False

    def __init__(self, tools: ShellTools, root: str, home: str) -> None:
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
        """The tree as it was last written; the box has a list of just these paths."""
        self._tree: dict[str, Entry] = {}
        """What of it is proved to be so."""
        self._lost: set[str] = set()
        """OwnedPath, but not there, or not what it should be."""

    async def open(self) -> None:
        with self._or_lost():
            looked = await self._call(lambda: self._execute(["/bin/sh", "-c", LOOK, "sh", self._home, self._root]))
            uid, gid, hash_tool = _look(looked, self._root)
            self._owner, self._hash_tool = shell_tree.FileOwner(uid, gid), hash_tool
            await self._call(self._install)
            swept = await self._call(lambda: self._execute(self._script("sweep", "KILL", "all")), SWEEP_LIMIT_S)
            if swept.code != 0:
                raise BoxError(
                    f"processes of an earlier run cannot be ended: {swept.words}",
                    hint="`watchtest reset` makes a new box",
                )
            manifest, ledger, remembered = await self._call(self._read_memory)
            self._written = shell_tree.read_manifest(manifest, hash_tool)
            self._lost = shell_tree.read_ledger(ledger)
            self.saved_state = _words(remembered)
            await self._look_at_the_tree("list")
        self.channel.open()

    async def save_state(self, what: Mapping[str, Any]) -> None:
        with self._or_lost():
            words = json.dumps(dict(what), separators=(",", ":"))
            _checked(await self._call(lambda: self._execute(self._script("remember", words))), "cannot write it down")
        self.saved_state = dict(what)

    async def apply_services(self, order: Mapping[str, Any]) -> bytes:
        raise ServiceError(
            "services need a Python 3.8 or newer in the box, and its image has none",
            hint="set box.image to an image with Python, or add its installation to box.setup and `watchtest reset`",
        )

    # -- the tree ----------------------------------------------------------------------------------

    @property
    def path_count(self) -> int:
        """How many paths a snapshot has brought here."""
        return len(self._tree) + len(self._lost)

    async def refresh(self) -> None:
        """Learn what became of the tree since it was last looked at: tests may write anywhere in it."""
        with self._or_lost():
            await self._look_at_the_tree("list")

    async def sync(self, snapshot: Snapshot, read: ContentReader) -> tuple[int, Delta]:
        """Bring the tree, as `refresh` saw it, to the snapshot. The generation it is at then, and what was done."""
        delta = difference(self._tree, snapshot.entries)
        if not delta and self._lost <= snapshot.entries.keys():
            return self.generation, delta
        with self._or_lost():
            old = {path: self._written[path] for path in self._tree}
            lost = frozenset(self._lost)
            # Files are read in a thread, so that a large tree does not hold up everything else.
            written, archive = await asyncio.to_thread(
                shell_tree.prepare, old, lost, delta, read, self._hash_tool, self._owner
            )
            with self.channel.uploading():
                await self._call(lambda: self._upload(archive), SYNC_LIMIT_S)
            self._written, self._lost = written, set()
            await self._look_at_the_tree("apply")
            for path in sorted(self._lost):
                if shell_tree.can_be_proved(path):
                    raise ChannelLost(f"{path} is not what was written there", hint=BY_ITSELF)
            self._tree, self._lost = dict(snapshot.entries), set()
        self.generation += 1
        return self.generation, delta

    async def fingerprints(self, python: str, paths: Collection[str]) -> Mapping[str, Any]:
        return {}  # for want of a Python

    async def _look_at_the_tree(self, action: str) -> None:
        answer = await self._call(lambda: self._execute(self._script(action)), SYNC_LIMIT_S)
        _checked(answer, "the tree cannot be brought to the source")
        right = shell_tree.still_right(self._written, answer.output)
        self._tree = {path: self._written[path].entry for path in self._written if path in right}
        self._lost = (self._lost | self._written.keys()) - right

    def _upload(self, archive: Any) -> None:
        with archive:
            self._tools.put(f"{self._root}/{shell_tree.STAGE}", archive)

    # -- jobs --------------------------------------------------------------------------------------

    async def run(
        self, job: JobSpec, on_results: OnResults, on_output: OnOutput, stop: asyncio.Queue[bool] | None = None
    ) -> JobResult:
        """Run a job to its end. Each item of `stop` is a wish to end it: True kills, False asks it politely first."""
        what = job.command
        if not isinstance(what, Command):
            raise no_python_error()
        with self._or_lost():
            if job.requires is not None and job.requires != self.generation:
                raise BoxError(f"the run requires generation {job.requires}, the box is at {self.generation}")
            report = f"{self._home}/plain/report"
            argv = [word.replace(REPORT, report) for word in what.argv]
            token = new_token()
            env = {**job.env, "WATCHTEST_JOB": self._home}
            script = self._script("run", token, what.folder, *argv)
            started = await self._call(lambda: self._tools.start(script, env, job.path_first))
            running = ShellJob(job, token, started, self._sweep, on_results, Output(on_output))
            try:
                end = await running.until_ended(stop, self.channel.closed)
                if end is None:
                    end = await self._unknown_end(running, started.exit_code)
            finally:
                started.close()  # whatever still runs in the box sees the end of its input, and ends
            if running.is_something_left:
                await self._restart()
            has_report = any(REPORT in word for word in what.argv)
            content = await self._call(lambda: self._tools.get(report, REPORT_LIMIT)) if has_report else None
            return replace(end, report=content)

    async def _unknown_end(self, running: ShellJob, exit_code: Callable[[], int | None]) -> JobResult:
        """The stream has ended without the last line. A verdict only if it is sure that the supervisor was killed."""
        if gone := await self._call(self._tools.why_gone):
            raise BoxGone(f"the box was lost during the run: {gone}", hint=BY_ITSELF)
        code = await self._call(exit_code)
        if not code:
            raise ChannelLost("the connection to the run has ended; how the run ended is not known", hint=BY_ITSELF)
        if not await self._sweep("ALL"):
            await self._restart()
        return running.unknown_end("the supervisor of the run was killed")

    async def _sweep(self, rung: str) -> bool:
        words = ("KILL", "all") if rung == "ALL" else (rung,)
        answer = await self._call(lambda: self._execute(self._script("sweep", *words)), SWEEP_LIMIT_S)
        return answer.code == 0

    async def _restart(self) -> None:
        """Something cannot be ended by a signal: all goes, and the next session finds the box as after any restart."""
        await self._call(self._tools.restart)
        self.channel.mark_lost("the box was started again, to end what a run had left in it")

    # -- the box -----------------------------------------------------------------------------------

    def _script(self, action: str, *words: str) -> list[str]:
        return ["/bin/sh", f"{self._home}/plain/box.sh", action, self._home, self._root, self._holder, *words]

    def _execute(self, argv: list[str]) -> _CommandResult:
        """A small command to its end, in a thread."""
        started = self._tools.start(argv, {})
        output, words = bytearray(), bytearray()
        try:
            while pieces := started.read():
                for stream, piece in pieces:
                    (output if stream == STDOUT else words).extend(piece)
                if len(output) > ANSWER_LIMIT:
                    raise ChannelLost(f"the box said more than {ANSWER_LIMIT} bytes")
            code = started.exit_code()
        finally:
            started.close()
        if code is None:
            raise ChannelLost("the connection to a command in the box has ended", hint=BY_ITSELF)
        return _CommandResult(code, bytes(output), words.decode("utf-8", "replace").strip()[-WORDS_LIMIT:])

    def _install(self) -> None:
        script = resources.files("watchtest.boxes.no_python").joinpath("box.sh").read_bytes()
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name, content in (("box.sh", script), ("holder", f"{self._holder}\n".encode())):
                member = tarfile.TarInfo(name)
                member.size, member.mode = len(content), 0o644
                member.uid, member.gid = self._owner.uid, self._owner.gid
                tar.addfile(member, io.BytesIO(content))
            end = tar.offset
        archive.truncate(end + 2 * tarfile.BLOCKSIZE)
        archive.seek(0)
        self._tools.put(f"{self._home}/plain", archive)

    def _read_memory(self) -> tuple[bytes | None, bytes | None, bytes | None]:
        names = ("plain/manifest", "owned", "remembered.json")
        manifest, ledger, remembered = (self._tools.get(f"{self._home}/{name}", FILE_LIMIT) for name in names)
        return manifest, ledger, remembered

    async def _call(self, call: Callable[[], T], limit_s: float = ANSWER_LIMIT_S) -> T:
        """A blocking call in a thread, given up when the box is lost meanwhile."""
        if self.channel.is_lost:
            raise self.channel.lost_error()
        try:
            return await in_daemon_thread(call, limit_s)
        except TimeoutError as error:
            raise ChannelLost(f"the box did not answer within {limit_s:g} s", hint=BY_ITSELF) from error

    @contextmanager
    def _or_lost(self) -> Iterator[None]:
        """A session that raised is over: nobody can say any more what the box is at. The next one looks anew."""
        try:
            yield
        except BaseException as error:
            self.channel.mark_lost(f"given up after: {error or type(error).__name__}")
            raise


def _look(looked: _CommandResult, root: str) -> tuple[int, int, str]:
    words = looked.output.decode("ascii", "replace").split()
    if looked.code != 0 or len(words) != 3 or not words[0].isdigit() or not words[1].isdigit():
        error = BoxError(
            f"the folder {shlex.quote(root)} in the box cannot be written: {looked.words or looked.code}",
            hint="set box.workdir to a folder the box's user may write, or box.user to one who may",
        )
        error.code = "workdir"
        raise error
    return int(words[0]), int(words[1]), words[2]


def _checked(answer: _CommandResult, what: str) -> None:
    if answer.code == 0:
        return
    if answer.code == TAKEN:
        raise ChannelLost("another watcher has taken this box", hint=BY_ITSELF)
    kind = DiskFull if "No space left" in answer.words else BoxError
    raise kind(f"{what}: {answer.words or f'exit code {answer.code}'}")


def _words(content: bytes | None) -> Mapping[str, Any]:
    try:
        what = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        return {}  # damaged: setup is then simply done again
    return what if isinstance(what, dict) else {}
