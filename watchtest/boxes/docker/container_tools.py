"""Work with a container without an agent: read and write files through archives, run commands, check its state."""

from __future__ import annotations

import contextlib
import io
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any

import docker
from docker.errors import NotFound

from watchtest.boxes.docker.container_exec import Connection, Demultiplexer, wait_for_exit_code
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine
from watchtest.errors import BoxError, BoxGone, DiskFull

EXIT_CODE_LIMIT_S = 5.0
READ_SIZE = 256 * 1024
NOT_FOUND = 404
DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


def path_variable(container: Mapping[str, Any]) -> str:
    """Return the PATH of an inspected container."""
    variables: Mapping[str, str] = dict(setting.split("=", 1) for setting in container["Config"].get("Env") or ())
    return variables.get("PATH", DEFAULT_PATH)


class DockerTools:
    """What a box without Python needs from its container; thread-safe. A restarted container counts as lost."""

    def __init__(self, connect: Callable[[], Engine], container: str, *, user: str, name: str) -> None:
        self._pool = _EnginePool(connect)
        self._container = container
        self._user = user
        self._name = name
        with self._client() as client:
            found = client.inspect_container(container)
        self._started_at = found["State"]["StartedAt"]
        self._path = path_variable(found)

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
        return _first_file(bytes(content))

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
            exec_id = str(created["Id"])
            return StartedCommand(Connection(client, exec_id), lambda: self._exit_code(exec_id))

    def why_gone(self) -> str:
        try:
            with self._client() as client:
                state = client.inspect_container(self._container)["State"]
        except BoxGone as error:
            return error.message
        if state["Status"] != "running":
            return f"its container is {state['Status']}"
        return "" if state["StartedAt"] == self._started_at else "its container was restarted"

    def restart(self) -> None:
        with self._client() as client:
            client.restart(self._container, timeout=0)

    def close(self) -> None:
        self._pool.close()

    def _exit_code(self, exec_id: str) -> int | None:
        def inspect() -> Mapping[str, Any]:
            with self._client() as client:
                found: Mapping[str, Any] = client.exec_inspect(exec_id)
                return found

        return wait_for_exit_code(inspect, EXIT_CODE_LIMIT_S)

    @contextlib.contextmanager
    def _client(self) -> Iterator[docker.APIClient]:
        with explained_api(self._name), self._pool.borrow() as engine:
            yield engine.client


class StartedCommand:
    """A command that was started in a container, with its output."""

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


class _EnginePool:
    """A pool of connections to one engine: only one thread at a time may use a client."""

    def __init__(self, connect: Callable[[], Engine]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._free: list[Engine] = []
        self._is_closed = False

    @contextlib.contextmanager
    def borrow(self) -> Iterator[Engine]:
        with self._lock:
            engine = self._free.pop() if self._free else None
        engine = engine or self._connect()
        try:
            yield engine
        except docker.errors.APIError:
            self._give_back(engine)  # the engine refused the request, but the connection still works
            raise
        except BaseException:
            engine.close()
            raise
        else:
            self._give_back(engine)

    def _give_back(self, engine: Engine) -> None:
        with self._lock:
            if not self._is_closed:
                self._free.append(engine)
                return
        engine.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            free, self._free = self._free, []
        for engine in free:
            engine.close()


@dataclass(frozen=True, slots=True)
class ContainerFiles:
    """Small files of a container, read and written through the engine's archive calls. The container need not run."""

    client: docker.APIClient
    container: str

    def has(self, path: str) -> bool:
        # A HEAD request, which docker-py does not offer; fetching the content takes five to ten times as long.
        url = self.client._url("/containers/{0}/archive", self.container)
        answer = self.client.head(url, params={"path": path}, timeout=self.client.timeout)
        if answer.status_code == NOT_FOUND:
            return False
        self.client._raise_for_status(answer)
        return True

    def read(self, path: str) -> bytes:
        """Return the content of a file, or b"" if there is no such file."""
        try:
            stream, _ = self.client.get_archive(self.container, path)
        except NotFound:
            return b""
        return _first_file(b"".join(stream)) or b""

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


def _first_file(archive: bytes) -> bytes | None:
    """Return the content of the first entry of a tar archive, if that is a file."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        first = tar.next()
        member = tar.extractfile(first) if first is not None and first.isfile() else None
        return member.read() if member is not None else None
