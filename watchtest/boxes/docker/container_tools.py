"""Work with a container without an agent, over a pool of connections to its engine."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

import docker

from watchtest.boxes.docker.container_exec import ContainerFiles, ExecConnection, path_variable, wait_for_exit_code
from watchtest.boxes.docker.engine_errors import explained_api
from watchtest.boxes.docker.engines import Engine
from watchtest.errors import BoxError, BoxGone, DiskFull

EXIT_CODE_LIMIT_S = 5.0


class DockerTools:
    """What a box without Python needs from its container; thread-safe. A restarted container counts as lost.

    Every call blocks, for a bounded time.
    """

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
        """Unpack a tar archive into an existing folder."""
        try:
            with self._client() as client:
                client.put_archive(self._container, folder, archive)
        except (BoxError, BoxGone) as error:
            if "no space left" in error.message:
                raise DiskFull(f"the tree cannot be written in the box: {error.message}") from error
            raise

    def get(self, path: str, limit: int) -> bytes | None:
        """Return the content of a file; None if it is missing or larger than the limit."""
        with self._client() as client:
            return ContainerFiles(client, self._container).read(path, limit)

    def start(self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...] = ()) -> StartedCommand:
        with self._client() as client:
            full_env = {**env, "PATH": ":".join([*path_first, self._path])}
            connection = ExecConnection(client, self._container, argv, user=self._user, env=full_env)
        return StartedCommand(connection, lambda: self._exit_code(connection.id))

    def why_gone(self) -> str:
        """Return why the container that was opened no longer runs; "" while it does."""
        try:
            with self._client() as client:
                state = client.inspect_container(self._container)["State"]
        except BoxGone as error:
            return error.message
        if state["Status"] != "running":
            return f"its container is {state['Status']}"
        return "" if state["StartedAt"] == self._started_at else "its container was restarted"

    def restart(self) -> None:
        """Kill every process in the container and start it again."""
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
    """A command that was started in a container, with its output. Its stdin ends when it is closed.

    `exit_code` returns None while it is running, and if the code is unknown.
    """

    def __init__(self, connection: ExecConnection, exit_code: Callable[[], int | None]) -> None:
        self.read = connection.read
        self.close = connection.close
        self.exit_code = exit_code


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
