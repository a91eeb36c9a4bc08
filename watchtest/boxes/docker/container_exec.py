"""Run commands in a container, and read and write its files.

Commands are the agent, with its stream, and those of the user: attached, on a terminal or detached.
"""

from __future__ import annotations

import io
import math
import os
import secrets
import shutil
import socket
import ssl
import struct
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import PurePosixPath
from typing import Any, BinaryIO

import docker
from docker.errors import APIError, NotFound

from watchtest.boxes.exit_signals import exit_on_signals
from watchtest.errors import BoxError

HEADER = struct.Struct(">BxxxL")
STDOUT = 1
STDERR_LIMIT = 8 * 1024
EXIT_CODE_LIMIT_S = 10.0
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
ARCHIVE_SLACK = 64 * 1024
"""How much larger the archive of a file may be than the file itself."""
BROKEN_PIPE = 141
"""The exit code that a shell reports for a command killed by SIGPIPE."""


class ExecConnection:
    """A command that runs in a container, with the socket of its input and output."""

    def __init__(
        self,
        client: docker.APIClient,
        container: str,
        argv: list[str],
        *,
        user: str,
        workdir: str = "/",
        env: Mapping[str, str] | None = None,
        is_terminal: bool = False,
    ) -> None:
        created = client.exec_create(
            container, argv, stdin=True, tty=is_terminal, user=user, workdir=workdir, environment=dict(env or {})
        )
        self.id = str(created["Id"])
        self._file = client.exec_start(self.id, socket=True, tty=is_terminal)
        self.socket: Any = getattr(self._file, "_sock", self._file)
        self.buffer = self._early_output()
        # docker-py would close a silent connection after a minute; our callers have their own timeouts.
        self.socket.settimeout(None)
        self.has_ended = False

    def read(self) -> list[tuple[int, bytes]]:
        """Return the next pieces of stdout and stderr, which share the stream of a command without a terminal.

        Return an empty list at the end of the stream.
        """
        while not (found := list(self._complete_pieces())):
            piece = self.socket.recv(256 * 1024)
            if not piece:
                return []
            self.buffer += piece
        return found

    def _complete_pieces(self) -> Iterator[tuple[int, bytes]]:
        while len(self.buffer) >= HEADER.size:
            stream, size = HEADER.unpack_from(self.buffer)
            end = HEADER.size + size
            if len(self.buffer) < end:
                return
            piece, self.buffer = self.buffer[HEADER.size : end], self.buffer[end:]
            yield stream, piece

    def _early_output(self) -> bytes:
        """Return the output that arrived together with the HTTP headers.

        The reader of the headers has taken it from the socket into its buffer, and docker-py forgets it there.
        """
        self.socket.settimeout(0)
        with suppress(AttributeError, OSError):  # nothing has arrived yet, or there is no such reader
            return bytes(self._file._response.raw._fp.fp.peek())
        return b""

    def close(self) -> None:
        # shutdown wakes a blocked recv and ends the input of the command; closing alone does neither.
        with suppress(OSError):  # the other side has closed it already
            self.socket.shutdown(socket.SHUT_RDWR)
        # docker-py keeps several layers, and each of them must be closed.
        for layer in (getattr(self._file, "_response", None), self._file, self.socket):
            if layer is not None:
                layer.close()


class ExecStream:
    """The stdin and stdout of a command in a container. The end of its stderr is kept for error messages."""

    def __init__(self, connection: ExecConnection) -> None:
        self._connection = connection
        self._stderr = b""
        self.close = connection.close

    def read(self) -> bytes:
        while pieces := self._connection.read():
            self._stderr += b"".join(data for stream, data in pieces if stream != STDOUT)
            self._stderr = self._stderr[-STDERR_LIMIT:]
            if out := b"".join(data for stream, data in pieces if stream == STDOUT):
                return out
        return b""

    def write(self, data: bytes) -> None:
        self._connection.socket.sendall(data)

    def stderr_tail(self) -> str:
        return self._stderr.decode("utf-8", "replace")


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
        with self._started() as connection:
            # A daemon thread, because a read from our terminal cannot be interrupted when the command ends.
            threading.Thread(target=_forward_stdin, args=(connection.socket,), daemon=True).start()
            while pieces := connection.read():
                for stream, data in pieces:
                    out: BinaryIO = sys.stdout.buffer if stream == STDOUT else sys.stderr.buffer
                    try:
                        out.write(data)
                        out.flush()
                    except BrokenPipeError:
                        os.dup2(os.open(os.devnull, os.O_WRONLY), out.fileno())  # Python flushes again at exit
                        return BROKEN_PIPE
            return self._finish(connection)

    def run_on_terminal(self) -> int:
        """Run on a terminal of its own, shown on ours, and return the exit code. Our terminal is restored."""
        from watchtest.boxes import terminal  # needs Unix; the other modes do not

        with (
            self._started(is_terminal=True) as connection,
            terminal.raw_mode(sys.stdin.fileno()),
            terminal.forward_size(lambda: _resize(self.client, connection.id)),
        ):
            stream = connection.socket
            sys.stdout.buffer.write(connection.buffer)
            sys.stdout.buffer.flush()
            terminal.forward_both_ways(
                stream, lambda: stream.recv(terminal.READ_SIZE), stream.sendall, has_ended=lambda: False
            )
            return self._finish(connection)

    def run_detached(self) -> int:
        """Start in the background and return 0. No run supervises the command, so no run ends it."""
        options = {"user": self.user, "workdir": self.workdir, "environment": dict(self.env)}
        created = self.client.exec_create(self.container, self.argv, stdout=False, stderr=False, **options)
        self.client.exec_start(created["Id"], detach=True)
        return 0

    def _finish(self, connection: ExecConnection) -> int:
        """Return the exit code; call this at the end of the stream."""
        connection.has_ended = True
        code = wait_for_exit_code(lambda: self.client.exec_inspect(connection.id), EXIT_CODE_LIMIT_S)
        if code is None:
            raise BoxError("the connection to the command has ended, and its exit code is unknown")
        return code

    @contextmanager
    def _started(self, *, is_terminal: bool = False) -> Iterator[ExecConnection]:
        """Start the command and connect to it. Leaving the context ends the command if it still runs.

        The engine itself would let a command run on after its terminal is gone.
        """
        pid_file = f"/tmp/.watchtest-exec-{secrets.token_hex(6)}"
        with_pid_file = ["/bin/sh", "-c", f'echo $$ > {pid_file}; exec "$@"', "sh", *self.argv]
        has_shell = ContainerFiles(self.client, self.container).has("/bin/sh")
        terminal = {"TERM": os.environ.get("TERM", "xterm")} if is_terminal else {}
        connection = ExecConnection(
            self.client,
            self.container,
            with_pid_file if has_shell else self.argv,
            user=self.user,
            workdir=self.workdir,
            env={**terminal, **self.env},
            is_terminal=is_terminal,
        )
        try:
            with exit_on_signals():
                yield connection
        finally:
            connection.close()
            signals = () if connection.has_ended else ("INT", "HUP", "KILL")
            kill = "".join(f"kill -{name} $(cat {pid_file}); sleep 1; " for name in signals)
            if has_shell:
                replace(self, argv=["/bin/sh", "-c", f"{kill}rm -f {pid_file}"], env={}, workdir="/").run_detached()


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
    with suppress(OSError):  # the command has ended
        connection.shutdown(socket.SHUT_WR)


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
    with suppress(APIError, OSError):  # the command has just ended
        client.exec_resize(exec_id, height=size.lines, width=size.columns)


def path_variable(container: Mapping[str, Any]) -> str:
    """Return the PATH of an inspected container."""
    variables: Mapping[str, str] = dict(setting.split("=", 1) for setting in container["Config"].get("Env") or ())
    return variables.get("PATH", DEFAULT_PATH)


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    """Small files of a container, read and written through the engine's archive calls. The container need not run."""

    client: docker.APIClient
    container: str

    def has(self, path: str) -> bool:
        # A HEAD request, which docker-py does not offer; fetching the content takes five to ten times as long.
        url = self.client._url("/containers/{0}/archive", self.container)
        answer = self.client.head(url, params={"path": path}, timeout=self.client.timeout)
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return False
        self.client._raise_for_status(answer)
        return True

    def read(self, path: str, limit: float = math.inf) -> bytes | None:
        """Return the content of a file; None if it is missing or larger than the limit."""
        try:
            stream, status = self.client.get_archive(self.container, path)
        except NotFound:
            return None
        with closing(stream):
            if int(status.get("size", 0)) > limit:
                return None
            archive = io.BytesIO()
            for piece in stream:
                archive.write(piece)
                if archive.tell() > limit + ARCHIVE_SLACK:
                    return None
        archive.seek(0)
        with tarfile.open(fileobj=archive) as tar:
            first = tar.next()
            member = tar.extractfile(first) if first is not None and first.isfile() else None
            return member.read() if member is not None else None

    def write(self, path: str, content: bytes) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
            end = tar.offset
        self._put(archive, end)

    def make_folders(self, folders: tuple[str, ...], uid: int, gid: int) -> None:
        """Create folders that this user owns. Missing parents belong to root; existing parents stay unchanged."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for folder in folders:
                for parent in [*list(PurePosixPath(folder).parents)[-2::-1], PurePosixPath(folder)]:
                    member = tarfile.TarInfo(str(parent).lstrip("/"))
                    member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
                    if str(parent) in folders:
                        member.uid, member.gid = uid, gid
                        tar.addfile(member)
                    elif not self.has(str(parent)):
                        tar.addfile(member)
            end = tar.offset
        self._put(archive, end)

    def _put(self, archive: io.BytesIO, end: int) -> None:
        """Unpack an archive, without the padding that Python adds: podman stops reading before it and then fails."""
        self.client.put_archive(self.container, "/", archive.getvalue()[: end + 2 * tarfile.BLOCKSIZE])
