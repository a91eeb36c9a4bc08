"""The serving loop of the agent: one thread and one selector; frames come in on stdin, go out on a copy of stdout.

It ends when its input ends, and ends the running job with it. Only one agent serves a box: a new one kills the old one.
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

from . import PROTOCOL, box_lock, running_test
from .agent_error import AgentError, error_code
from .code.fingerprint_job import FingerprintJobs
from .frames import BadFrame, Decoder, Header, encode, in_pieces
from .jobs import supervisor
from .jobs.job_control import JobControl
from .mirror import Mirror
from .owned_paths import LEDGER
from .services.service_manager_link import ServiceManagerLink

TICK_S = 0.1


def main(home: str, root: str) -> None:
    """Serve on stdin and stdout until stdin ends."""
    channel_out = os.dup(1)
    os.dup2(2, 1)  # so that no print, ours or of a module we import, can enter the stream
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    supervisor.set_dumpable(False)  # a test could write to our channel or read our memory
    agent = Agent(home, root, channel_out)
    try:
        agent.open()
        agent.serve()
    except AgentError as error:
        agent.send({"t": "refused", "code": error.code, "message": str(error)})
    except (BrokenPipeError, ConnectionError):
        pass  # the host is gone
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
        self._decoder = Decoder()
        self._last_keepalive = 0.0
        self._services = ServiceManagerLink(home, root, self._selector, self.send, self._keep_alive)
        self._jobs = JobControl(home, root, self._selector, self.send, self._own_fds)
        self._fingerprint_jobs = FingerprintJobs(root, self._send_fingerprints)
        self._handlers: Dict[str, Callable[[Header, bytes], None]] = {
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
            "prints": self._start_fingerprints,
        }

    def open(self) -> None:
        os.makedirs(self._home, exist_ok=True)
        is_empty = not os.path.exists(os.path.join(self._home, LEDGER))
        self._lock = box_lock.take_over(os.path.join(self._home, "agent.lock"), "agent")
        box_lock.wait_until_free(self._jobs.lock_file, "a run of an earlier watcher")
        box_lock.kill_marked(box_lock.JOB_VARIABLE, self._home)  # the processes of a run that lost its supervisor
        _remove_old_agents(self._home)
        self._mirror = Mirror(self._root, self._home, self._keep_alive)
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
                "has_services": self._services.is_running,
                "lost_in": running_test.read(self._jobs.running_test_file),
                "is_empty": is_empty,
            }
        )

    def serve(self) -> None:
        self._selector.register(0, selectors.EVENT_READ, self._receive)
        while self._is_serving:
            for key in ready_keys(self._selector, TICK_S if self._jobs.is_busy else None):
                key.data(key.fd)  # the callback that the file was registered with
            self._jobs.tick()

    def _read_fingerprints(self, fd: int) -> None:
        if not self._fingerprint_jobs.on_readable(fd):
            self._selector.unregister(fd)
            self._fingerprint_jobs.drop(fd)

    def _receive(self, fd: int) -> None:
        piece = os.read(fd, 1024 * 1024)
        if not piece:
            self._is_serving = False
            return
        try:
            for header, body in self._decoder.feed(piece):
                self._handle(header, body)
        except BadFrame as error:
            self.send({"t": "refused", "code": "protocol", "message": str(error)})
            self._is_serving = False

    def _handle(self, header: Header, body: bytes) -> None:
        handler = self._handlers.get(header["t"])
        if handler is None:
            self._fail(header, "protocol", "unknown frame {!r}".format(header["t"]))
            return
        try:
            handler(header, body)
        except AgentError as error:
            self._mirror.fail()
            self._fail(header, error.code, str(error))
        except BrokenPipeError:
            raise
        except OSError as error:
            self._mirror.fail()
            code = error_code(error, "box") if os.path.isdir(self._home) else "damaged"
            self._fail(header, code, "{} failed in the box: {}".format(header["t"], error))

    def _fail(self, header: Header, code: str, message: str) -> None:
        self.send({"t": "failed", "id": header.get("id"), "code": code, "message": message})

    def send(self, header: Header, body: bytes = b"") -> None:
        data = memoryview(encode(header, body))
        while data:
            data = data[os.write(self._out, data) :]

    def close(self) -> None:
        """End the job and all it started. If the agent is killed instead, the job's supervisor sees its pipe close."""
        self._jobs.close()
        self._services.close()
        self._fingerprint_jobs.close()
        os._exit(0)

    def _own_fds(self) -> List[int]:
        """Return the agent's files that no child process may inherit."""
        return [fd for fd in (self._out, self._lock, self._services.fd) if fd is not None]

    def _keep_alive(self) -> None:
        """Send a sign of life at most once per second, so that the host does not give up on long work."""
        now = time.monotonic()
        if now - self._last_keepalive > 1.0:
            self._last_keepalive = now
            self.send({"t": "pong", "id": 0})

    def _ping(self, header: Header, body: bytes) -> None:
        self.send({"t": "pong", "id": header["id"]})

    def _manifest(self, header: Header, body: bytes) -> None:
        self._send_rows(header, self._mirror.manifest())

    def _check(self, header: Header, body: bytes) -> None:
        self._send_rows(header, self._mirror.drift())

    def _send_rows(self, header: Header, all_rows: List[Any]) -> None:
        for rows, is_last in in_pieces(all_rows):
            answer = {"t": "rows", "id": header["id"], "last": is_last, "generation": self._mirror.generation}
            self.send(answer, json.dumps(rows, separators=(",", ":")).encode("ascii"))

    def _begin(self, header: Header, body: bytes) -> None:
        if self._jobs.is_busy:
            raise AgentError("busy", "a job is running; the tree cannot change under it")
        self._mirror.begin(header["base"])

    def _claim(self, header: Header, body: bytes) -> None:
        self._jobs.discard_guesses()
        self._mirror.claim(json.loads(body.decode("ascii")))

    def _remove(self, header: Header, body: bytes) -> None:
        self._jobs.discard_guesses()
        self._mirror.remove(json.loads(body.decode("ascii")))

    def _write(self, header: Header, body: bytes) -> None:
        self._jobs.note_change(str(header["row"][0]))
        self._mirror.write(header["row"], body, header["last"])

    def _commit(self, header: Header, body: bytes) -> None:
        self._mirror.commit(header["generation"])
        self.send({"t": "committed", "id": header["id"], "generation": self._mirror.generation})

    def _remember(self, header: Header, body: bytes) -> None:
        """Store a small document beside the tree for the next watcher: which setup this box has had."""
        file = os.path.join(self._home, "remembered.json")
        try:
            with open(file + ".new", "w") as stream:
                json.dump(header["what"], stream)
            os.replace(file + ".new", file)
        except OSError as error:
            raise AgentError("sync", "cannot write {}: {}".format(file, error.strerror)) from error
        self.send({"t": "remembered", "id": header["id"]})

    def _start_job(self, header: Header, body: bytes) -> None:
        requires = header.get("requires")
        if requires is not None and requires != self._mirror.generation:
            message = "the run requires generation {}, the box is at {}".format(requires, self._mirror.generation)
            raise AgentError("generation", message)
        self._jobs.start(header["id"], json.loads(body.decode("ascii")))

    def _start_fingerprints(self, header: Header, body: bytes) -> None:
        fd = self._fingerprint_jobs.start(header["id"], str(header["python"]), json.loads(body.decode("ascii")))
        if fd is not None:
            self._selector.register(fd, selectors.EVENT_READ, self._read_fingerprints)

    def _send_fingerprints(self, request_id: int, rows: List[Any], is_last: bool) -> None:
        body = json.dumps(rows, separators=(",", ":")).encode("ascii")
        self.send({"t": "prints", "id": request_id, "last": is_last}, body)


def ready_keys(selector: selectors.BaseSelector, limit_s: Optional[float]) -> Iterator[selectors.SelectorKey]:
    """Yield what can be read without blocking. Handling one file may close others and reuse their numbers."""
    for key, _ in selector.select(limit_s):
        if selector.get_map().get(key.fd) is key:
            yield key


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
        return {}  # missing or damaged: setup is simply repeated
