"""A container without an agent: archives, commands and its state, for boxes without Python. Safe in several threads.

Files of a container that has no agent yet, by the engine's archive calls: small ones, before anything runs in it.
"""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO

import docker
from docker.errors import NotFound

from watchtest.boxes.docker.container_exec import Connection, Demultiplexer
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine
from watchtest.errors import BoxError, BoxGone, DiskFull

EXIT_CODE_LIMIT_S = 5.0
READ_SIZE = 256 * 1024
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class DockerTools:
    """The container as it was when this was made: started again, it counts as another."""

    def __init__(self, dial: Callable[[], Engine], container: str, *, user: str, name: str) -> None:
        self._engines = _Engines(dial)
        self._container = container
        self._user = user
        self._name = name
        with self._client() as client:
            found = client.inspect_container(container)
        self._started_at = found["State"]["StartedAt"]
        settings = dict(setting.split("=", 1) for setting in found["Config"].get("Env") or ())
        self._path = settings.get("PATH", DEFAULT_PATH)

    def put(self, folder: str, archive: IO[bytes]) -> None:
        try:
            with self._client() as client:
                client.put_archive(self._container, folder, archive)
        except (BoxError, BoxGone) as error:
            if "no space left" in error.message:
                raise DiskFull(f"the tree cannot be written in the box: {error.message}") from error
            raise

    def get(self, path: str, limit: int) -> bytes | None:
        with self._client() as client:
            try:
                stream, status = client.get_archive(self._container, path)
            except NotFound:
                return None
            try:
                if int(status.get("size", 0)) > limit:
                    return None
                content = bytearray()
                for piece in stream:
                    content += piece
                    if len(content) > limit + 64 * 1024:
                        return None
            finally:
                stream.close()
        with tarfile.open(fileobj=io.BytesIO(content)) as tar:
            first = tar.next()
            member = tar.extractfile(first) if first is not None and first.isfile() else None
            return member.read() if member is not None else None

    def start(self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...] = ()) -> StartedCommand:
        with self._client() as client:
            created = client.exec_create(
                self._container,
                argv,
                stdin=True,
                stdout=True,
                stderr=True,
                user=self._user,
                workdir="/",
                environment={**env, "PATH": ":".join([*path_first, self._path])},
            )
            identity = str(created["Id"])
            return StartedCommand(Connection(client, identity), lambda: self._exit_code(identity))

    def why_gone(self) -> str:
        try:
            with self._client() as client:
                state = client.inspect_container(self._container)["State"]
        except BoxGone as error:
            return error.message
        if state["Status"] != "running":
            return f"its container is {state['Status']}"
        return "" if state["StartedAt"] == self._started_at else "its container was started again"

    def restart(self) -> None:
        with self._client() as client:
            client.restart(self._container, timeout=0)

    def close(self) -> None:
        self._engines.close()

    def _exit_code(self, identity: str) -> int | None:
        """The stream's end comes a moment before the engine knows the exit code."""
        deadline = time.monotonic() + EXIT_CODE_LIMIT_S
        while True:
            with self._client() as client:
                found = client.exec_inspect(identity)
            if not found["Running"] and found["ExitCode"] is not None:
                return int(found["ExitCode"])
            if time.monotonic() > deadline:
                return None
            time.sleep(0.02)

    @contextlib.contextmanager
    def _client(self) -> Iterator[docker.APIClient]:
        with explained_api(self._name), self._engines.borrowed() as engine:
            yield engine.client


class StartedCommand:
    def __init__(self, connection: Connection, exit_code: Callable[[], int | None]) -> None:
        self._connection = connection
        self._frames = Demultiplexer()
        self.exit_code = exit_code

    def read(self) -> list[tuple[int, bytes]]:
        while piece := self._connection.socket.recv(READ_SIZE):
            if found := self._frames.feed(piece):
                return found
        return []

    def close(self) -> None:
        self._connection.close()


class _Engines:
    """Connections to one engine: a client is for one thread at a time, so each call has its own."""

    def __init__(self, dial: Callable[[], Engine]) -> None:
        self._dial = dial
        self._lock = threading.Lock()
        self._free: list[Engine] = []
        self._is_closed = False

    @contextlib.contextmanager
    def borrowed(self) -> Iterator[Engine]:
        with self._lock:
            engine = self._free.pop() if self._free else None
        engine = engine or self._dial()
        try:
            yield engine
        except docker.errors.APIError:
            self._give_back(engine)  # the engine has refused something; the connection is as good as before
            raise
        except BaseException:
            engine.close()
            raise
        else:
            self._give_back(engine)

    def _give_back(self, engine: Engine) -> None:
        with self._lock:
            is_wanted = not self._is_closed
            if is_wanted:
                self._free.append(engine)
        if not is_wanted:
            engine.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for engine in free:
            engine.close()


NOT_FOUND = 404


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    client: docker.APIClient
    container: str

    def has(self, path: str) -> bool:
        # By HEAD, which docker-py does not offer: fetching what lies there takes five to ten times as long.
        url = self.client._url("/containers/{0}/archive", self.container)
        answer = self.client.head(url, params={"path": path}, timeout=self.client.timeout)
        if answer.status_code == NOT_FOUND:
            return False
        self.client._raise_for_status(answer)
        return True

    def read(self, path: str) -> bytes:
        """The content of a file; b"" if there is none."""
        try:
            stream, _ = self.client.get_archive(self.container, path)
        except NotFound:
            return b""
        with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
            member = tar.extractfile(tar.getmembers()[0])
            return member.read() if member is not None else b""

    def write(self, path: str, content: bytes) -> None:
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            member = tarfile.TarInfo(path.lstrip("/"))
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
            end = tar.offset
        self._put(archive, end)

    def make_folders(self, folders: tuple[str, ...], uid: int, gid: int) -> None:
        """Each owned by that user; parents that are missing belong to root, those that are there stay as they are."""
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w") as tar:
            for folder in folders:
                for parent in [*list(PurePosixPath(folder).parents)[-2::-1], PurePosixPath(folder)]:
                    member = tarfile.TarInfo(str(parent).lstrip("/"))
                    member.type, member.mode, member.mtime = tarfile.DIRTYPE, 0o755, int(time.time())
                    is_wanted = str(parent) in folders
                    if is_wanted:
                        member.uid, member.gid = uid, gid
                    if is_wanted or not self.has(str(parent)):
                        tar.addfile(member)
            end = tar.offset
        self._put(archive, end)

    def _put(self, archive: io.BytesIO, end: int) -> None:
        """Without the padding that Python adds: podman has stopped reading by then, and calls that a failure."""
        self.client.put_archive(self.container, "/", archive.getvalue()[: end + 2 * tarfile.BLOCKSIZE])
