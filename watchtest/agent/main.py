"""The serving loop of the agent: one thread, one selector, frames in on stdin and out on a private copy of stdout.

It ends when its input ends, and takes the running job with it. Only one agent serves a box: a new one ends the old.
"""

from __future__ import annotations

import fcntl
import json
import os
import platform
import selectors
import shutil
import signal
import sys
import time
from typing import Any, Callable, Dict, List, Optional

from . import PROTOCOL, pytest_job
from .errors import MirrorError
from .frames import BadFrame, Decoder, Header, encode, in_pieces
from .job import Job
from .mirror import Mirror

TICK_S = 0.1
TAKEOVER_LIMIT_S = 15.0


def main(home: str, root: str) -> None:
    """Serve on stdin and stdout until stdin ends."""
    channel_out = os.dup(1)
    os.dup2(2, 1)  # no print of ours, or of what we import, can enter the stream
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    agent = Agent(home, root, channel_out)
    try:
        agent.open()
        agent.serve()
    except MirrorError as error:
        agent.send({"t": "refused", "code": error.code, "message": str(error)})
    except (BrokenPipeError, ConnectionError):
        pass  # the host is gone; what is left to do is below
    finally:
        agent.close()


class Agent:
    def __init__(self, home: str, root: str, channel_out: int) -> None:
        self._home = home
        self._root = root
        self._out = channel_out
        self._selector = selectors.DefaultSelector()
        self._job: Optional[Job] = None
        self._lock = -1
        self._is_serving = True
        self._shown_at = 0.0
        self._answers: Dict[str, Callable[[Header, bytes], None]] = {
            "ping": self._ping,
            "manifest": self._manifest,
            "check": self._check,
            "begin": self._begin,
            "claim": self._claim,
            "remove": self._remove,
            "write": self._write,
            "commit": self._commit,
            "job": self._start_job,
            "stop": self._stop_job,
            "remember": self._remember,
        }

    def open(self) -> None:
        os.makedirs(self._home, exist_ok=True)
        self._runs_lock = os.path.join(self._home, "runs.lock")
        self._lock = _take_over(os.path.join(self._home, "agent.lock"))
        _wait_for_old_runs(self._runs_lock, self._home)
        _remove_old_agents(self._home)
        self._mirror = Mirror(self._root, self._home, self._show_life)
        self.send(
            {
                "t": "hello",
                "protocol": PROTOCOL,
                "python": platform.python_version(),
                "executable": sys.executable,
                "platform": sys.platform,
                "pid": os.getpid(),
                "uid": os.getuid(),
                "remembered": _read_remembered(self._home),
            }
        )

    def serve(self) -> None:
        decoder = Decoder()
        self._selector.register(0, selectors.EVENT_READ)
        while self._is_serving:
            for key, _ in self._selector.select(TICK_S if self._job else None):
                fd = key.fd
                if fd == 0:
                    self._receive(decoder)
                elif self._job is not None:
                    self._read_job(self._job, fd)
            if self._job is not None:
                self._tend(self._job)

    def _receive(self, decoder: Decoder) -> None:
        piece = os.read(0, 1024 * 1024)
        if not piece:
            self._is_serving = False
            return
        try:
            for header, body in decoder.feed(piece):
                self._answer(header, body)
        except BadFrame as error:
            self.send({"t": "refused", "code": "protocol", "message": str(error)})
            self._is_serving = False

    def _answer(self, header: Header, body: bytes) -> None:
        try:
            answer = self._answers[header["t"]]
        except KeyError:
            self._fail(header, "protocol", "unknown frame {!r}".format(header["t"]))
            return
        try:
            answer(header, body)
        except MirrorError as error:
            self._mirror.fail()
            self._fail(header, error.code, str(error))
        except OSError as error:
            if isinstance(error, BrokenPipeError):
                raise
            self._mirror.fail()
            self._fail(header, "box", "{} failed in the box: {}".format(header["t"], error))

    def _fail(self, header: Header, code: str, message: str) -> None:
        self.send({"t": "failed", "id": header.get("id"), "code": code, "message": message})

    def send(self, header: Header, body: bytes = b"") -> None:
        data = memoryview(encode(header, body))
        while data:
            data = data[os.write(self._out, data) :]

    def close(self) -> None:
        """End the job and all it started. Should we be killed, its supervisor sees the pipe close."""
        if self._job is not None:
            self._job.stop(is_kill=True)
        os._exit(0)

    def _show_life(self) -> None:
        """Long work between two frames: a word now and then, so that nobody takes it for death."""
        now = time.monotonic()
        if now - self._shown_at > 1.0:
            self._shown_at = now
            self.send({"t": "pong", "id": 0})

    # -- frames ------------------------------------------------------------------------------------

    def _ping(self, header: Header, body: bytes) -> None:
        self.send({"t": "pong", "id": header["id"]})

    def _manifest(self, header: Header, body: bytes) -> None:
        rows: List[Any] = []
        for row in self._mirror.manifest():
            rows.append(row)
            if len(rows) == 2000:
                self._send_rows(header, rows, is_last=False)
                rows = []
        self._send_rows(header, rows, is_last=True)

    def _check(self, header: Header, body: bytes) -> None:
        for rows, is_last in in_pieces(self._mirror.drift()):
            self._send_rows(header, rows, is_last)

    def _send_rows(self, header: Header, rows: List[Any], is_last: bool) -> None:
        answer = {"t": "rows", "id": header["id"], "last": is_last, "generation": self._mirror.generation}
        self.send(answer, json.dumps(rows, separators=(",", ":")).encode("ascii"))

    def _begin(self, header: Header, body: bytes) -> None:
        if self._job is not None:
            raise MirrorError("busy", "a job is running; the tree cannot change under it")
        self._mirror.begin(header["base"])

    def _claim(self, header: Header, body: bytes) -> None:
        self._mirror.claim(json.loads(body.decode("ascii")))

    def _remove(self, header: Header, body: bytes) -> None:
        self._mirror.remove(json.loads(body.decode("ascii")))

    def _write(self, header: Header, body: bytes) -> None:
        self._mirror.write(header["row"], body, header["last"])

    def _commit(self, header: Header, body: bytes) -> None:
        self._mirror.commit(header["generation"])
        self.send({"t": "committed", "id": header["id"], "generation": self._mirror.generation})

    def _remember(self, header: Header, body: bytes) -> None:
        """Keep a few words beside the tree, for the next watcher: which setup this box has had."""
        file = os.path.join(self._home, "remembered.json")
        try:
            with open(file + ".new", "w") as stream:
                json.dump(header["what"], stream)
            os.replace(file + ".new", file)
        except OSError as error:
            raise MirrorError("sync", "cannot write {}: {}".format(file, error.strerror)) from error
        self.send({"t": "remembered", "id": header["id"]})

    # -- jobs --------------------------------------------------------------------------------------

    def _start_job(self, header: Header, body: bytes) -> None:
        if self._job is not None:
            raise MirrorError("busy", "a job is running already")
        requires = header.get("requires")
        if requires is not None and requires != self._mirror.generation:
            message = "the run requires generation {}, the box is at {}".format(requires, self._mirror.generation)
            raise MirrorError("generation", message)
        order = json.loads(body.decode("ascii"))
        env = dict(os.environ, WATCHTEST_JOB=self._home)
        env.update(order.get("env") or {})
        env["PATH"] = os.pathsep.join([*order.get("path_first", ()), env.get("PATH") or os.defpath])
        order["env"] = env
        order["cwd"] = os.path.join(self._root, order.get("cwd") or "")
        if "pytest" in order:
            pytest_job.complete(order, self._home)
        self._job = Job(header["id"], order, self.send, [self._out, self._lock], self._runs_lock)
        for fd in self._job.fds:
            self._selector.register(fd, selectors.EVENT_READ)
        self.send({"t": "started", "id": header["id"]})

    def _read_job(self, job: Job, fd: int) -> None:
        if job.on_readable(fd):
            return
        self._selector.unregister(fd)
        job.drop(fd)

    def _tend(self, job: Job) -> None:
        if not job.is_over:
            job.tick()
            for fd in job.forsaken():
                self._selector.unregister(fd)
                job.drop(fd)
            return
        self._job = None
        end = job.finish()
        if end.pop("is_orphaned"):
            for pid in _marked(self._home):
                _kill(pid)
        self.send(dict(end, t="ended", id=job.identity))

    def _stop_job(self, header: Header, body: bytes) -> None:
        # A stop that crosses the job's own end on the wire has nothing left to do.
        if self._job is not None and self._job.identity == header["id"]:
            self._job.stop(bool(header["kill"]))


def _take_over(file: str) -> int:
    """The lock of this box, taken from a living agent if need be: its host is gone, or has lost it."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + TAKEOVER_LIMIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            holder = os.pread(fd, 32, 0).strip()
            if holder.isdigit():
                _kill(int(holder))
        if time.monotonic() > deadline:
            raise MirrorError("taken", "another agent holds this box and does not end")
        time.sleep(0.01)
    os.ftruncate(fd, 0)
    os.pwrite(fd, str(os.getpid()).encode("ascii"), 0)
    return fd


def _wait_for_old_runs(file: str, home: str) -> None:
    """Until no supervisor of an earlier agent is left, and no process of a run that lost its supervisor."""
    fd = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    deadline = time.monotonic() + TAKEOVER_LIMIT_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError as error:
            if time.monotonic() > deadline:
                raise MirrorError("taken", "a run of an earlier watcher does not end") from error
            time.sleep(0.01)
    os.close(fd)
    for pid in _marked(home):
        _kill(pid)


def _marked(home: str) -> List[int]:
    """Processes of jobs of this box, known by their environment. Only Linux tells."""
    marker = "WATCHTEST_JOB={}".format(home).encode("utf-8", "surrogateescape")
    found = []
    try:
        names = [name for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []
    for name in names:
        try:
            with open("/proc/{}/environ".format(name), "rb") as stream:
                if marker in stream.read().split(b"\0"):
                    found.append(int(name))
        except OSError:
            continue  # ended, or not ours to read
    return [pid for pid in found if pid != os.getpid()]


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass  # gone already; a lock that stays taken is reported by its deadline


def _remove_old_agents(home: str) -> None:
    own = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    for name in os.listdir(home):
        folder = os.path.join(home, name)
        if name.startswith("agent-") and folder != own:
            shutil.rmtree(folder, ignore_errors=True)


def _read_remembered(home: str) -> Dict[str, Any]:
    try:
        with open(os.path.join(home, "remembered.json")) as stream:
            what = json.load(stream)
        return what if isinstance(what, dict) else {}
    except (OSError, ValueError):
        return {}  # nothing yet, or damaged: setup is then simply done again
