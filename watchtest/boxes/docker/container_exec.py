"""Commands in a container: one that stays and carries an agent, and one that runs to its end on our own terminal.

A command in a container on a terminal of its own, shown on ours: keys go in as they are typed, the size follows.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import socket
import ssl
import struct
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO

import docker
from docker.errors import APIError, NotFound

from watchtest.boxes.terminal import exit_on_signals, forward_size, raw_mode
from watchtest.errors import BoxError

HEADER = struct.Struct(">BxxxL")
STDOUT = 1
LAST_WORDS = 8 * 1024
EXIT_CODE_LIMIT_S = 10.0
READER_GONE = 141
"""What a shell says of a command whose reader had seen enough."""


class Connection:
    """What docker-py returns for `socket=True`, with all the layers that have to be closed."""

    def __init__(self, client: docker.APIClient, exec_id: str, *, is_terminal: bool = False) -> None:
        self._file = client.exec_start(exec_id, socket=True, tty=is_terminal)
        self.socket: Any = getattr(self._file, "_sock", self._file)
        # docker-py's default would cut a quiet connection after a minute; whoever reads has a clock of their own.
        self.socket.settimeout(None)

    def close(self) -> None:
        # shutdown wakes a blocked recv and sends the other side its end of input; closing alone does neither.
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the other side was quicker
        for layer in (getattr(self._file, "_response", None), self._file, self.socket):
            if layer is not None:
                layer.close()


class ExecStream:
    """The stdin and stdout of a command in a container, without a terminal between; its stderr is kept aside."""

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
                    self._stderr = (self._stderr + data)[-LAST_WORDS:]
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
    """Docker's framing of stdout and stderr on one connection."""

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


def run_attached(
    client: docker.APIClient, container: str, argv: list[str], env: Mapping[str, str], user: str, workdir: str
) -> int:
    """Run a command on this process's own stdin, stdout and stderr; its exit code."""
    with started_exec(client, container, argv, env, user=user, workdir=workdir) as command:
        # A daemon: a read of our terminal cannot be interrupted when the command ends first.
        threading.Thread(target=_pass_stdin, args=(command.socket,), daemon=True).start()
        frames = Demultiplexer()
        while piece := command.socket.recv(256 * 1024):
            for stream, data in frames.feed(piece):
                out: BinaryIO = sys.stdout.buffer if stream == STDOUT else sys.stderr.buffer
                try:
                    out.write(data)
                    out.flush()
                except BrokenPipeError:
                    os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # python flushes once more at its end
                    return READER_GONE
        return command.ended()


@contextmanager
def started_exec(
    client: docker.APIClient,
    container: str,
    argv: list[str],
    env: Mapping[str, str],
    *,
    user: str,
    workdir: str,
    is_terminal: bool = False,
) -> Iterator[RunningExec]:
    """A command of the user, with a connection. Left before its end, by whatever cause, it is ended: the engine itself
    lets a command run on whose terminal is gone."""
    pid_file = f"/tmp/.watchtest-exec-{secrets.token_hex(6)}"
    noted = ["/bin/sh", "-c", f'echo $$ > {pid_file}; exec "$@"', "sh", *argv]
    created = client.exec_create(
        container,
        noted if _has_shell(client, container) else argv,
        stdin=True,
        stdout=True,
        stderr=True,
        tty=is_terminal,
        user=user or "",
        workdir=workdir,
        environment=dict(env),
    )
    command = RunningExec(client, str(created["Id"]), Connection(client, str(created["Id"]), is_terminal=is_terminal))
    try:
        with exit_on_signals():
            yield command
    finally:
        command.connection.close()
        rungs = () if command.has_ended else ("INT", "HUP", "KILL")
        end = "".join(f"kill -{rung} $(cat {pid_file}); sleep 1; " for rung in rungs)
        _do(client, container, f"{end}rm -f {pid_file}", user)


@dataclass
class RunningExec:
    """One that runs, or has ended."""

    client: docker.APIClient
    id: str
    connection: Connection
    has_ended: bool = False

    @property
    def socket(self) -> Any:
        return self.connection.socket

    def ended(self) -> int:
        """Its stream has ended, and so has it; its exit code."""
        self.has_ended = True
        return exit_code(self.client, self.id)


def run_detached(
    client: docker.APIClient, container: str, argv: list[str], env: Mapping[str, str], user: str, workdir: str
) -> int:
    """Start a command that nobody waits for. Outside of every run's supervisor, so no run ends it."""
    created = client.exec_create(
        container, argv, stdout=False, stderr=False, user=user or "", workdir=workdir, environment=dict(env)
    )
    client.exec_start(created["Id"], detach=True)
    return 0


def _has_shell(client: docker.APIClient, container: str) -> bool:
    try:
        client.get_archive(container, "/bin/sh")[0].close()
    except NotFound:
        return False
    return True


def _do(client: docker.APIClient, container: str, script: str, user: str) -> None:
    """Something small on the side, not waited for."""
    if _has_shell(client, container):
        created = client.exec_create(container, ["/bin/sh", "-c", script], user=user or "")
        client.exec_start(created["Id"], detach=True)


def _pass_stdin(connection: Any) -> None:
    """Our own input to the command, then its end. Reading a terminal from the background would stop this process."""
    try:
        if not os.isatty(0) or os.tcgetpgrp(0) == os.getpgrp():
            while piece := os.read(0, 64 * 1024):
                connection.sendall(piece)
    except OSError:
        pass  # no input, or the command has ended
    if isinstance(connection, ssl.SSLSocket):
        return  # it cannot be closed on one side: what the command still says would be lost
    try:
        connection.shutdown(socket.SHUT_WR)
    except OSError:
        return  # the command has ended


def exit_code(client: docker.APIClient, exec_id: str) -> int:
    """The stream's end comes a moment before the engine knows the exit code."""
    deadline = time.monotonic() + EXIT_CODE_LIMIT_S
    while True:
        code = client.exec_inspect(exec_id)["ExitCode"]
        if code is not None:
            return int(code)
        if time.monotonic() > deadline:
            raise BoxError("the connection to the command has ended; how the command ended is not known")
        time.sleep(0.02)


def run_on_terminal(
    client: docker.APIClient, container: str, argv: list[str], env: Mapping[str, str], user: str, workdir: str
) -> int:
    """Until the command ends; its exit code. Our own terminal is as before, however it ended."""
    env = {"TERM": os.environ.get("TERM", "xterm"), **env}
    with (
        started_exec(client, container, argv, env, user=user, workdir=workdir, is_terminal=True) as command,
        raw_mode(sys.stdin.fileno()),
        forward_size(lambda: _pass_size(client, command.id)),
    ):
        _pass_both_ways(command.socket)
        return command.ended()


def _pass_both_ways(connection: Any) -> None:
    keyboard = sys.stdin.fileno()
    sources = [connection, keyboard]
    while True:
        ready, _, _ = select.select(sources, [], [])  # until the command ends, which the engine tells
        if connection in ready:
            piece = connection.recv(64 * 1024)
            if not piece:
                return
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        if keyboard in ready:
            typed = os.read(keyboard, 64 * 1024)
            if not typed:
                sources = [connection]
            connection.sendall(typed or b"\x04")  # no more input: what Ctrl-D says


def _pass_size(client: docker.APIClient, identity: str) -> None:
    size = shutil.get_terminal_size()
    try:
        client.exec_resize(identity, height=size.lines, width=size.columns)
    except (APIError, OSError):
        return  # it has just ended
