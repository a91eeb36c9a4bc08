"""Reach an engine on another machine through the user's own `ssh`: a local socket, and one `ssh` per connection to it.

docker-py supports ssh:// itself, but it needs a second ssh implementation and cannot carry a stream in both directions.
Here it talks to an ordinary socket in a folder that only this user can enter. Each `ssh` has the connection as its
stdin and stdout, so no data passes through this process, and every `ssh` ends with it, even if it is killed.
"""

from __future__ import annotations

import shlex
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from watchtest.errors import EngineError

CONNECT_LIMIT_S = 20.0
END_LIMIT_S = 2.0
STDERR_LIMIT = 2000
PREFIX = "watchtest-ssh-"
LEFTOVER_S = 60.0
OPTIONS = (
    *("-o", "BatchMode=yes"),  # never ask a question
    *("-o", "ConnectTimeout=10"),
    *("-o", "ServerAliveInterval=5"),
    *("-o", "ServerAliveCountMax=3"),
    *("-o", "ClearAllForwardings=yes"),
    "-T",
)


@dataclass(frozen=True, slots=True)
class Remote:
    """The parts of an ssh:// address."""

    host: str
    user: str
    port: int | None
    path: str
    """The engine's socket on that machine; "" leaves the choice to its own client."""

    @classmethod
    def of(cls, url: str) -> Remote:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise EngineError(f"{url}: not an address ({error})", hint="write ssh://user@host:port") from error
        netloc = parts.netloc.rpartition("@")[2]
        # Not `parts.hostname`, which is in lower case.
        host = netloc[1:].partition("]")[0] if netloc.startswith("[") else netloc.partition(":")[0]
        if not host or host.startswith("-") or (parts.username or "").startswith("-") or parts.password:
            raise EngineError(
                f"{url}: not an address that ssh can use", hint="write ssh://user@host:port, without a password"
            )
        return cls(host, unquote(parts.username or ""), port, unquote(parts.path.rstrip("/")))

    def arguments(self) -> list[str]:
        user = ["-l", self.user] if self.user else []
        return [*user, *(["-p", str(self.port)] if self.port else []), "--", self.host]

    def remote_command(self) -> str:
        """Return the command that connects its stdin and stdout to the engine; Docker's own client does the same."""
        socket_url = shlex.quote(f"unix://{self.path}")
        docker, podman = (f"--host {socket_url}", f"--url {socket_url}") if self.path else ("", "")
        script = (
            f"if command -v docker >/dev/null 2>&1; then exec docker {docker} system dial-stdio; "
            f"else exec podman {podman} system dial-stdio; fi"
        )
        return f"sh -c {shlex.quote(script)}"


class SshRelay:
    """A local socket (`url`) that leads to a remote engine. Close it after the client that uses it."""

    def __init__(self, url: str, identity: str = "") -> None:
        self._remote = Remote.of(url)
        program = shutil.which("ssh")
        if program is None or not hasattr(socket, "AF_UNIX"):
            raise EngineError(
                f"{url}: no usable `ssh` on this machine",
                hint="install OpenSSH's client, or forward the engine's socket and set DOCKER_HOST to it",
            )
        _remove_leftovers()
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._stderr = (self._folder / "stderr").open("w+b")
        self._ssh = [program, *OPTIONS, "-S", str(self._folder / "master"), *(["-i", identity] if identity else [])]
        self._children: list[subprocess.Popen[bytes]] = []
        self._is_closing = False
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        path = self._folder / "engine.sock"
        self._listener.bind(str(path))
        self._listener.listen()
        self.url = f"unix://{path}"
        self._thread = threading.Thread(target=self._accept, name="watchtest-ssh", daemon=True)
        # The master connection carries the others. It ends at the end of its input, so also when we are killed.
        self._master = self._start(["-M", *self._remote.arguments(), "cat"], subprocess.PIPE, subprocess.DEVNULL)
        try:
            self._wait_for_master(url)
            self._thread.start()
        except BaseException:
            self.close()
            raise

    def stderr_tail(self) -> str:
        """Return the end of what ssh wrote to stderr."""
        text = (self._folder / "stderr").read_text(encoding="utf-8", errors="replace")
        return " ".join(text.split())[-STDERR_LIMIT:]

    def close(self) -> None:
        self._is_closing = True
        if self._thread.ident is not None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as wake_up:
                wake_up.connect(str(self._folder / "engine.sock"))
            self._thread.join(END_LIMIT_S)
        self._listener.close()
        if self._master.stdin is not None:
            self._master.stdin.close()
        deadline = time.monotonic() + END_LIMIT_S
        # Their connections are closed, so they end by themselves.
        for child in [*self._children, self._master]:
            try:
                child.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait(END_LIMIT_S)
        self._stderr.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _accept(self) -> None:
        while True:
            connection, _ = self._listener.accept()
            with connection:
                if self._is_closing:
                    return
                self._children = [child for child in self._children if child.poll() is None]
                arguments = [*self._remote.arguments(), self._remote.remote_command()]
                self._children.append(self._start(arguments, connection.fileno(), connection.fileno()))

    def _start(self, arguments: list[str], stdin: int, stdout: int) -> subprocess.Popen[bytes]:
        # In a session of its own: Ctrl-C on our terminal must not reach ssh.
        return subprocess.Popen(
            [*self._ssh, *arguments], stdin=stdin, stdout=stdout, stderr=self._stderr, start_new_session=True
        )

    def _wait_for_master(self, url: str) -> None:
        deadline = time.monotonic() + CONNECT_LIMIT_S
        while not (self._folder / "master").exists():
            if self._master.poll() is None and time.monotonic() < deadline:
                time.sleep(0.01)
                continue
            why = self.stderr_tail() or f"no connection within {CONNECT_LIMIT_S:g} s"
            raise EngineError(
                f"ssh does not reach the engine at {url}: {why}",
                hint=f"`{shlex.join(['ssh', *self._remote.arguments(), 'docker', 'version'])}` must work without a "
                "prompt: use a key and an agent, and connect once by hand to accept the host's key",
            )


def _remove_leftovers() -> None:
    """Remove the folders of relays that were killed: no process listens there."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                if time.time() - folder.stat().st_mtime > LEFTOVER_S:  # a newer relay may be about to listen
                    probe.connect(str(folder / "engine.sock"))
            except ConnectionRefusedError:
                shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                continue  # another user's, or being removed by its owner
