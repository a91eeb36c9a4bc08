"""What an engine must offer to a box without Python. Every call is blocking and bounded in time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Protocol

STDOUT, STDERR = 1, 2


class StartedCommand(Protocol):
    """A command that was started in the box, with its stdout and stderr. Its input ends when it is closed."""

    def read(self) -> list[tuple[int, bytes]]:
        """Some pieces, each of STDOUT or STDERR; none at the end of the stream, which is not yet its own."""

    def exit_code(self) -> int | None:
        """How it ended; None if it has not, or nobody knows."""

    def close(self) -> None:
        """A blocked `read` returns."""


class ShellTools(Protocol):
    """One container, without an agent in it. May be called from several threads."""

    def put(self, folder: str, archive: IO[bytes]) -> None:
        """Unpack a tar archive in a folder that is there."""

    def get(self, path: str, limit: int) -> bytes | None:
        """The content of a file; None if there is none, or it is larger than the limit."""

    def start(self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...] = ()) -> StartedCommand: ...

    def why_gone(self) -> str:
        """Why it is not the living container any more that was opened; "" while it is."""

    def restart(self) -> None:
        """End every process in it, and start it again."""

    def close(self) -> None: ...
