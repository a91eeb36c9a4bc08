"""What tells of changed paths: inotify on Linux, a whole tree elsewhere, or a look every second."""

from __future__ import annotations

from typing import Protocol


class WatcherFailed(Exception):
    """This source tells nothing any more; another may."""


class Source(Protocol):
    """Relative paths that changed, EVERYTHING for the workspace itself or for what nobody can tell."""

    def wait(self) -> frozenset[str]:
        """Blocks until there are some; none once it was ended. OSError and WatcherFailed: it is of no more use."""

    def end(self) -> None:
        """Lets a call of `wait` in another thread return soon."""

    def close(self) -> None:
        """When nobody waits any more."""
