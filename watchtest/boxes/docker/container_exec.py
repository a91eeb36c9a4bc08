"""Run commands in a container: the agent's stream, and commands of the user, attached, on a terminal or detached."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO

import docker
from docker.errors import APIError, NotFound

from watchtest.boxes.exit_signals import exit_on_signals
from watchtest.errors import BoxError

HEADER = struct.Struct(">BxxxL")
STDOUT = 1
STDERR_LIMIT = 8 * 1024
EXIT_CODE_LIMIT_S = 10.0
BROKEN_PIPE = 141
"""The exit code that a shell reports for a command killed by SIGPIPE."""


class Connection:
    """The socket of a command in a container, with all the layers of docker-py that must be closed."""

    def __init__(self, client: docker.APIClient, exec_id: str, *, is_terminal: bool = False) -> None:
        self._file = client.exec_start(exec_id, socket=True, tty=is_terminal)
        self.socket: Any = getattr(self._file, "_sock", self._file)
        # docker-py would close a silent connection after a minute; our callers have their own timeouts.
        self.socket.settimeout(None)

    def close(self) -> None:
        # shutdown wakes a blocked recv and ends the input of the command; closing alone does neither.
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side has closed it already
        for layer in (getattr(self._file, "_response", None), self._file, self.socket):
            if layer is not None:
                layer.close()


class ExecStream:
    """The stdin and stdout of a command in a container. The end of its stderr is kept for error messages."""

    def __init__(self, client: docker.APIClient, container: str, command: list[str], *, user: str) -> None:
        created = client.exec_create(
            container, command, stdin=True, stdout=True, stderr=True, user=user or "", workdir="/"
        )
        self._connection = Connection(client, created["Id"])
        self._frames = Demultiplexer()
        self._stderr = b""

    def read(self) -> bytes:
        while piece := self._connection.socket.recv(256 * 1024):
            out = b""
            for stream, data in self._frames.feed(piece):
                if stream == STDOUT:
                    out += data
                else:
                    self._stderr = (self._stderr + data)[-STDERR_LIMIT:]
            if out:
                return out
        return b""

    def write(self, data: bytes) -> None:
        self._connection.socket.sendall(data)

    def close(self) -> None:
        self._connection.close()

    def stderr_tail(self) -> str:
        return self._stderr.decode("utf-8", "replace")


class Demultiplexer:
    """Splits Docker's combined stream into pieces of stdout and stderr."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, piece: bytes) -> list[tuple[int, bytes]]:
        self._buffer += piece
        found = []
        while len(self._buffer) >= HEADER.size:
            stream, size = HEADER.unpack_from(self._buffer)
            end = HEADER.size + size
            if len(self._buffer) < end:
                break
            found.append((stream, self._buffer[HEADER.size : end]))
            self._buffer = self._buffer[end:]
        return found


@dataclass(frozen=True, slots=True)
class ContainerCommand:
    """A command of the user in a container."""

    client: docker.APIClient
    container: str
    argv: list[str]
    env: Mapping[str, str]
    user: str
    workdir: str

    def run_attached(self) -> int:
        """Run on this process's own stdin, stdout and stderr and return the exit code."""
        with self._started() as running:
            # A daemon thread, because a read from our terminal cannot be interrupted when the command ends.
            threading.Thread(target=_forward_stdin, args=(running.socket,), daemon=True).start()
            frames = Demultiplexer()
            while piece := running.socket.recv(256 * 1024):
                for stream, data in frames.feed(piece):
                    out: BinaryIO = sys.stdout.buffer if stream == STDOUT else sys.stderr.buffer
                    try:
                        out.write(data)
                        out.flush()
                    except BrokenPipeError:
                        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # Python flushes again at exit
                        return BROKEN_PIPE
            return running.finish()

    def run_on_terminal(self) -> int:
        """Run on a terminal of its own, shown on ours, and return the exit code. Our terminal is restored."""
        from watchtest.boxes import terminal  # needs Unix; the other modes do not

        with (
            self._started(is_terminal=True) as running,
            terminal.raw_mode(sys.stdin.fileno()),
            terminal.forward_size(lambda: _resize(self.client, running.id)),
        ):
            connection = running.socket
            terminal.forward_both_ways(
                connection, lambda: connection.recv(terminal.READ_SIZE), connection.sendall, has_ended=lambda: False
            )
            return running.finish()

    def run_detached(self) -> int:
        """Start in the background and return 0. No run supervises the command, so no run ends it."""
        options = {"user": self.user, "workdir": self.workdir, "environment": dict(self.env)}
        created = self.client.exec_create(self.container, self.argv, stdout=False, stderr=False, **options)
        self.client.exec_start(created["Id"], detach=True)
        return 0

    @contextmanager
    def _started(self, *, is_terminal: bool = False) -> Iterator[RunningExec]:
        """Start the command and connect to it. Leaving the context ends the command if it still runs.

        The engine itself would let a command run on after its terminal is gone.
        """
        pid_file = f"/tmp/.watchtest-exec-{secrets.token_hex(6)}"
        with_pid_file = ["/bin/sh", "-c", f'echo $$ > {pid_file}; exec "$@"', "sh", *self.argv]
        has_shell = self._has_shell()
        created = self.client.exec_create(
            self.container,
            with_pid_file if has_shell else self.argv,
            stdin=True,
            stdout=True,
            stderr=True,
            tty=is_terminal,
            user=self.user,
            workdir=self.workdir,
            environment={**({"TERM": os.environ.get("TERM", "xterm")} if is_terminal else {}), **self.env},
        )
        exec_id = str(created["Id"])
        running = RunningExec(self.client, exec_id, Connection(self.client, exec_id, is_terminal=is_terminal))
        try:
            with exit_on_signals():
                yield running
        finally:
            running.connection.close()
            signals = () if running.has_ended else ("INT", "HUP", "KILL")
            kill = "".join(f"kill -{name} $(cat {pid_file}); sleep 1; " for name in signals)
            if has_shell:
                replace(self, argv=["/bin/sh", "-c", f"{kill}rm -f {pid_file}"], env={}, workdir="/").run_detached()

    def _has_shell(self) -> bool:
        try:
            self.client.get_archive(self.container, "/bin/sh")[0].close()
        except NotFound:
            return False
        return True


@dataclass
class RunningExec:
    """A command that runs in a container, with its connection."""

    client: docker.APIClient
    id: str
    connection: Connection
    has_ended: bool = False

    @property
    def socket(self) -> Any:
        return self.connection.socket

    def finish(self) -> int:
        """Return the exit code; call this at the end of the stream."""
        self.has_ended = True
        code = wait_for_exit_code(lambda: self.client.exec_inspect(self.id), EXIT_CODE_LIMIT_S)
        if code is None:
            raise BoxError("the connection to the command has ended, and its exit code is unknown")
        return code


def _forward_stdin(connection: Any) -> None:
    """Send our own input to the command, then close it."""
    try:
        # Reading from a terminal in the background would stop this process.
        if not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp():
            while piece := os.read(0, 64 * 1024):
                connection.sendall(piece)
    except OSError:
        pass  # no input, or the command has ended
    if isinstance(connection, ssl.SSLSocket):
        return  # TLS cannot be closed in one direction: the rest of the output would be lost
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the command has ended


def wait_for_exit_code(inspect: Callable[[], Mapping[str, Any]], limit_s: float) -> int | None:
    """Poll for the exit code, which the engine knows a moment after the end of the stream. None after the limit."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = inspect()
        if not found["Running"] and found["ExitCode"] is not None:
            return int(found["ExitCode"])
        time.sleep(0.02)
    return None


def _resize(client: docker.APIClient, exec_id: str) -> None:
    size = shutil.get_terminal_size()
    try:
        client.exec_resize(exec_id, height=size.lines, width=size.columns)
    except (APIError, OSError):
        return  # the command has just ended
