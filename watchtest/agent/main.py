"""The serving loop of the agent: one thread, one selector, frames in on stdin and out on a private copy of stdout.

It ends when its input ends, and takes the running job with it. Only one agent serves a box: a new one ends the old.
"""

from __future__ import annotations

import json
import os
import platform
import selectors
import shutil
import signal
import sys
import time
from contextlib import contextmanager
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import PROTOCOL, holding, launch, pytest_job, unittest_job
from .errors import MirrorError, code_of, full_disk
from .frames import BODY_PIECE, BadFrame, Decoder, Header, encode, in_pieces
from .job import HARD_SLACK_S, Job, complete
from .mirror import Mirror
from .printing import Printing
from .stewardlink import StewardLink
from .zygotelink import ZygoteLink

TICK_S = 0.1
REPORT_LIMIT = 64 * 1024 * 1024


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
        self._steward = StewardLink(home, root, self._show_life)
        self._shown_at = 0.0
        self._last_warm: Optional[Dict[str, Any]] = None
        self._runs_lock = os.path.join(home, "runs.lock")
        self._zygote = ZygoteLink(home, root, self._runs_lock)
        self._printing = Printing(root, self._send_prints)
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
            "services": self._order_services,
            "prints": self._prints,
        }

    def open(self) -> None:
        os.makedirs(self._home, exist_ok=True)
        self._lock = holding.take_over(os.path.join(self._home, "agent.lock"), "agent")
        holding.wait_until_free(self._runs_lock, "a run of an earlier watcher")
        holding.end_marked(holding.JOB, self._home)  # of a run that lost its supervisor
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
                "has_services": self._steward.is_there,
            }
        )

    def serve(self) -> None:
        decoder = Decoder()
        self._selector.register(0, selectors.EVENT_READ)
        while self._is_serving:
            for fd in ready_fds(self._selector, TICK_S if self._job else None):
                if fd == 0:
                    self._receive(decoder)
                elif fd == self._steward.fd:
                    self._relay_services()
                elif fd in self._zygote.fds:
                    self._hear_zygote(fd)
                elif self._job is not None and fd in self._job.fds:
                    self._read_job(self._job, fd)
                elif fd in self._printing.fds and not self._printing.on_readable(fd):
                    self._selector.unregister(fd)
                    self._printing.drop(fd)
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
            self._fail(header, code_of(error, "box"), "{} failed in the box: {}".format(header["t"], error))

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
        self._steward.close()
        self._zygote.close()
        self._printing.close()
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
        self._zygote.forget_guesses()
        self._mirror.claim(json.loads(body.decode("ascii")))

    def _remove(self, header: Header, body: bytes) -> None:
        self._zygote.forget_guesses()
        self._mirror.remove(json.loads(body.decode("ascii")))

    def _write(self, header: Header, body: bytes) -> None:
        if not str(header["row"][0]).endswith(".py") or str(header["row"][0]).endswith("conftest.py"):
            self._zygote.forget_guesses()  # nobody sees who asked for a file's size or date
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

    def _prints(self, header: Header, body: bytes) -> None:
        fd = self._printing.ask(header["id"], str(header["python"]), json.loads(body.decode("ascii")))
        if fd is not None:
            self._selector.register(fd, selectors.EVENT_READ)

    def _send_prints(self, identity: int, rows: List[Any], is_last: bool) -> None:
        body = json.dumps(rows, separators=(",", ":")).encode("ascii")
        self.send({"t": "prints", "id": identity, "last": is_last}, body)

    # -- jobs --------------------------------------------------------------------------------------

    def _start_job(self, header: Header, body: bytes) -> None:
        if self._job is not None:
            raise MirrorError("busy", "a job is running already")
        requires = header.get("requires")
        if requires is not None and requires != self._mirror.generation:
            message = "the run requires generation {}, the box is at {}".format(requires, self._mirror.generation)
            raise MirrorError("generation", message)
        order = complete(json.loads(body.decode("ascii")), holding.JOB, self._home, self._root)
        if "pytest" in order:
            pytest_job.complete(order, self._home)
        if "unittest" in order:
            unittest_job.complete(order, self._home)
        if order.get("report"):
            self._give_report_file(order)
        self._launch(header["id"], order, is_warm="pytest" in order and bool(order["pytest"]["is_warm"]))
        self.send({"t": "started", "id": header["id"]})

    def _give_report_file(self, order: Dict[str, Any]) -> None:
        file = os.path.join(self._home, "report")
        if os.path.lexists(file):
            os.unlink(file)
        order["argv"] = [word.replace(order["report"], file) for word in order["argv"]]
        order["report"] = file

    def _launch(self, identity: int, order: Dict[str, Any], is_warm: bool, cold_because: str = "") -> None:
        limit_s = _hard_limit_s(order)
        own: Optional[launch.Ends] = None
        supervisor: Optional[int] = None
        if is_warm:
            with self._zygote_heard():
                forked = self._zygote.fork(order, limit_s)
            if isinstance(forked, str):
                cold_because = forked
            else:
                own = forked
        if own is None:
            pipes = launch.Pipes()
            own_fds = [*self._own_fds(), *self._zygote.fds]
            supervisor = launch.cold(order, pipes, own_fds, self._runs_lock, limit_s)
            pipes.given.close()
            own = pipes.own
        self._job = Job(identity, order, self.send, own, supervisor, cold_because)
        for fd in self._job.fds:
            self._selector.register(fd, selectors.EVENT_READ)

    def _own_fds(self) -> List[int]:
        """Files of ours that must not outlive us in somebody else."""
        return [fd for fd in (self._out, self._lock, self._steward.fd) if fd is not None]

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
            holding.end_marked(holding.JOB, self._home)
        if job.wants_cold:
            self._zygote.doubt(job.order, job.wants_cold, job.avoid)
        if job.wants_cold and not job.has_been_stopped:
            self.send({"t": "results", "id": job.identity}, b'{"k":"restart"}\n')
            self._launch(job.identity, job.order, is_warm=False, cold_because=job.wants_cold)
            return
        end["full_disk"] = full_disk(self._root, self._home, "/tmp")
        end["has_report"] = self._send_report(job)
        self.send(dict(end, t="ended", id=job.identity))
        if "pytest" in job.order and job.order["pytest"]["is_warm"]:
            self._zygote.learn(job.order, job.modules)
            self._warm_up(job.order)

    def _send_report(self, job: Job) -> bool:
        """What the command wrote for us; nothing if there is no such file, or far too much in it."""
        try:
            with open(job.order.get("report") or "", "rb") as stream:
                if os.fstat(stream.fileno()).st_size > REPORT_LIMIT:
                    return False
                for piece in iter(lambda: stream.read(BODY_PIECE), b""):
                    self.send({"t": "report", "id": job.identity}, piece)
        except OSError:
            return False
        return True

    def _stop_job(self, header: Header, body: bytes) -> None:
        # A stop that crosses the job's own end on the wire has nothing left to do.
        if self._job is not None and self._job.identity == header["id"]:
            self._job.stop(bool(header["kill"]))

    # -- warm runs ---------------------------------------------------------------------------------

    def _warm_up(self, order: Dict[str, Any]) -> None:
        """For the next run, while nobody waits."""
        self._last_warm = order
        with self._zygote_heard():
            self._zygote.prepare(order, self._own_fds())
            self._zygote.park(order, _hard_limit_s(order))

    def _hear_zygote(self, fd: int) -> None:
        with self._zygote_heard():
            self._zygote.on_readable(fd)
        if self._job is None and self._last_warm is not None:
            self._warm_up(self._last_warm)  # begin the next runs; or, if it was unfit, with less in it

    @contextmanager
    def _zygote_heard(self) -> Iterator[None]:
        """Whatever is done about it, the selector listens to the one that is there afterwards."""
        for fd in self._zygote.fds:
            self._selector.unregister(fd)
        try:
            yield
        finally:
            for fd in self._zygote.fds:
                self._selector.register(fd, selectors.EVENT_READ)

    # -- services ----------------------------------------------------------------------------------

    def _order_services(self, header: Header, body: bytes) -> None:
        order = json.loads(body.decode("ascii"))
        before = self._steward.fd
        try:
            self._steward.order(dict(order, t="order", id=header["id"]))
        finally:
            self._listen_to_steward(before)

    def _listen_to_steward(self, before: Optional[int]) -> None:
        if before is not None:
            self._selector.unregister(before)
        if self._steward.fd is not None:
            self._selector.register(self._steward.fd, selectors.EVENT_READ)

    def _relay_services(self) -> None:
        messages = self._steward.receive()
        for message in messages or ():
            frame = {"t": "services", "id": message.pop("id", None)}
            self.send(frame, json.dumps(message, separators=(",", ":")).encode("ascii"))
        if messages is None:
            self._lose_steward()

    def _lose_steward(self) -> None:
        """It has ended: because there is nothing left to do, or because somebody killed it and all services with it."""
        before = self._steward.fd
        was_killed = self._steward.lose()
        self._listen_to_steward(before)
        if not was_killed and self._steward.unanswered is None:
            return
        # Whoever waits for an answer orders again; else it is on us to bring the services back.
        if self._steward.unanswered is None and self._revive_steward():
            return
        self.send({"t": "services", "id": self._steward.unanswered}, b'{"lost":true,"services":[]}')
        self._steward.unanswered = None

    def _revive_steward(self) -> bool:
        try:
            return self._steward.revive()
        except (MirrorError, OSError):
            return False
        finally:
            self._listen_to_steward(None)


def ready_fds(selector: selectors.BaseSelector, limit_s: Optional[float]) -> Iterator[int]:
    """What can be read without waiting, even if the one before has closed some and others have their numbers now."""
    for key, _ in selector.select(limit_s):
        if selector.get_map().get(key.fd) is key:
            yield key.fd


def _hard_limit_s(order: Dict[str, Any]) -> float:
    return float(order["limit_s"]) + 3 * float(order["grace_s"]) + HARD_SLACK_S


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
