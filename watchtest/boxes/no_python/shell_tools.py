"""What an engine must offer for a box without Python. Every call blocks, for a bounded time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import IO, Protocol

STDOUT, STDERR = 1, 2


class RunningCommand(Protocol):
    """A command in the box, with its stdout and stderr. Its stdin ends when it is closed."""

    def read(self) -> list[tuple[int, bytes]]:
        """Return some output as pairs of STDOUT or STDERR and bytes; an empty list at the end of the stream.

        The command itself may still be running then.
        """

    def exit_code(self) -> int | None:
        """Return its exit code; None if it is still running, or unknown."""

    def close(self) -> None:
        """Close the connection; a blocked `read` returns."""


class ShellTools(Protocol):
    """A container without an agent. May be called from several threads."""

    def put(self, folder: str, archive: IO[bytes]) -> None:
        """Unpack a tar archive into an existing folder."""

    def get(self, path: str, limit: int) -> bytes | None:
        """Return the content of a file; None if it is missing or larger than the limit."""

    def start(self, argv: list[str], env: Mapping[str, str], path_first: tuple[str, ...] = ()) -> RunningCommand: ...

    def why_gone(self) -> str:
        """Return why the container that was opened no longer runs; "" while it does."""

    def restart(self) -> None:
        """Kill every process in the container and start it again."""

    def close(self) -> None: ...
