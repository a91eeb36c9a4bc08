"""A proxy between a client and an engine's socket that can freeze, refuse or cut connections."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

PIECE = 256 * 1024
JOIN_LIMIT_S = 5.0


class StallingProxy:
    """Listens while entered. While frozen, it accepts connections and bytes, passes nothing on, and loses nothing."""

    def __init__(self, path: Path, behind: Path) -> None:
        self._path = path
        self._behind = behind
        self._flowing = threading.Event()
        self._flowing.set()
        self._lock = threading.Lock()
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener: socket.socket | None = None

    @property
    def host(self) -> str:
        """Its address in the format of DOCKER_HOST."""
        return f"unix://{self._path}"

    def __enter__(self) -> Self:
        self._listen()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._flowing.set()
        self._unlisten()
        self.cut()
        for thread in self._threads:
            thread.join(JOIN_LIMIT_S)
            assert not thread.is_alive(), f"{thread.name} does not end"

    # -- faults ------------------------------------------------------------------------------------

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Pass nothing on and close nothing: the worst an engine can do."""
        self._flowing.clear()
        try:
            yield
        finally:
            self._flowing.set()

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Refuse new connections; existing ones continue."""
        self._unlisten()
        try:
            yield
        finally:
            self._listen()

    def cut(self) -> None:
        """Close every existing connection at both ends."""
        with self._lock:
            ends = tuple(self._ends)
        for end in ends:
            _shut(end, socket.SHUT_RDWR)

    # -- carrying ----------------------------------------------------------------------------------

    def _listen(self) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self._path))
        self._listener.listen(64)
        self._spawn(self._accept, self._listener)

    def _unlisten(self) -> None:
        if self._listener is not None:
            self._path.unlink()
            _shut(self._listener, socket.SHUT_RDWR)  # wakes `accept`, which closing alone does not
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        with listener:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return  # the proxy no longer listens
                self._spawn(self._carry, client)

    def _carry(self, client: socket.socket) -> None:
        engine = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with client, engine:
            with self._lock:
                self._ends |= {client, engine}
            try:
                self._flowing.wait()
                engine.connect(str(self._behind))
                answering = self._spawn(self._pump, engine, client)
                self._pump(client, engine)
                answering.join()
            except OSError:
                pass  # there is no engine: the client sees its connection end
            finally:
                with self._lock:
                    self._ends -= {client, engine}

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        try:
            while piece := source.recv(PIECE):
                self._flowing.wait()
                target.sendall(piece)
        except OSError:
            _shut(source, socket.SHUT_RDWR)  # the connection was cut, or the other side is gone
        self._flowing.wait()
        _shut(target, socket.SHUT_WR)

    def _spawn(self, work: Callable[..., None], *arguments: object) -> threading.Thread:
        thread = threading.Thread(target=work, args=arguments, name=f"proxy {self._path.name}", daemon=True)
        with self._lock:
            self._threads = [old for old in self._threads if old.is_alive()]
            thread.start()
            self._threads.append(thread)
        return thread


def _shut(end: socket.socket, how: int) -> None:
    try:
        end.shutdown(how)
    except OSError:
        return  # it is already shut down
