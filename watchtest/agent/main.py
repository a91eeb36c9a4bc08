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
from typing import Any, Callable, Dict, Iterator, List, Optional

from . import PROTOCOL, box_lock
from .code.fingerprint_job import Printing
from .frames import BadFrame, Decoder, Header, MirrorError, code_of, encode, in_pieces
from .jobs.job_control import Jobs
from .mirror import Mirror
from .services.service_manager_link import ServiceRelay

TICK_S = 0.1


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
        self._lock = -1
        self._is_serving = True
        self._shown_at = 0.0
        self._services = ServiceRelay(home, root, self._selector, self.send, self._show_life)
        self._jobs = Jobs(home, root, self._selector, self.send, self._own_fds)
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
            "stop": self._jobs.stop,
            "remember": self._remember,
            "services": self._services.order,
            "prints": self._prints,
        }

    def open(self) -> None:
        os.makedirs(self._home, exist_ok=True)
        self._lock = box_lock.take_over(os.path.join(self._home, "agent.lock"), "agent")
        box_lock.wait_until_free(self._jobs.lock_file, "a run of an earlier watcher")
        box_lock.end_marked(box_lock.JOB, self._home)  # of a run that lost its supervisor
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
                "has_services": self._services.are_there,
            }
        )

    def serve(self) -> None:
        decoder = Decoder()
        self._selector.register(0, selectors.EVENT_READ)
        while self._is_serving:
            for fd in ready_fds(self._selector, TICK_S if self._jobs.is_busy else None):
                if fd == 0:
                    self._receive(decoder)
                elif not (self._services.heard(fd) or self._jobs.heard(fd)) and fd in self._printing.fds:
                    self._read_prints(fd)
            self._jobs.tend()

    def _read_prints(self, fd: int) -> None:
        if not self._printing.on_readable(fd):
            self._selector.unregister(fd)
            self._printing.drop(fd)

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
        self._jobs.close()
        self._services.close()
        self._printing.close()
        os._exit(0)

    def _own_fds(self) -> List[int]:
        """Files of ours that must not outlive us in somebody else."""
        return [fd for fd in (self._out, self._lock, self._services.fd) if fd is not None]

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
        if self._jobs.is_busy:
            raise MirrorError("busy", "a job is running; the tree cannot change under it")
        self._mirror.begin(header["base"])

    def _claim(self, header: Header, body: bytes) -> None:
        self._jobs.forget_guesses()
        self._mirror.claim(json.loads(body.decode("ascii")))

    def _remove(self, header: Header, body: bytes) -> None:
        self._jobs.forget_guesses()
        self._mirror.remove(json.loads(body.decode("ascii")))

    def _write(self, header: Header, body: bytes) -> None:
        self._jobs.note_change(str(header["row"][0]))
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

    def _start_job(self, header: Header, body: bytes) -> None:
        requires = header.get("requires")
        if requires is not None and requires != self._mirror.generation:
            message = "the run requires generation {}, the box is at {}".format(requires, self._mirror.generation)
            raise MirrorError("generation", message)
        self._jobs.start(header["id"], json.loads(body.decode("ascii")))

    def _prints(self, header: Header, body: bytes) -> None:
        fd = self._printing.ask(header["id"], str(header["python"]), json.loads(body.decode("ascii")))
        if fd is not None:
            self._selector.register(fd, selectors.EVENT_READ)

    def _send_prints(self, identity: int, rows: List[Any], is_last: bool) -> None:
        body = json.dumps(rows, separators=(",", ":")).encode("ascii")
        self.send({"t": "prints", "id": identity, "last": is_last}, body)


def ready_fds(selector: selectors.BaseSelector, limit_s: Optional[float]) -> Iterator[int]:
    """What can be read without waiting, even if the one before has closed some and others have their numbers now."""
    for key, _ in selector.select(limit_s):
        if selector.get_map().get(key.fd) is key:
            yield key.fd


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
