"""Locks on files in `.watchtest`. The system releases a lock when its owner dies, so it is never stale."""

from __future__ import annotations

import json
import logging
import os
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import OwnFolder

log = logging.getLogger(__name__)
WAIT_S = 1.0
"""`watchtest status` takes the lock for a moment, to see whether it is free."""
POLL_S = 0.05
TAKEN = "is already watched"


class FolderLock:
    """An exclusive lock that is held while entered. Raises TimeoutError if another process does not release it."""

    def __init__(self, folder: Path, name: str, timeout_s: float) -> None:
        self._folder = OwnFolder(folder)
        self._name = name
        self._timeout_s = timeout_s
        self._descriptor = -1

    def __enter__(self) -> Self:
        deadline = time.monotonic() + self._timeout_s
        try:
            self._folder.make()
            while not self._try():
                if time.monotonic() >= deadline:
                    raise TimeoutError(f"another process holds {self._name}")
                time.sleep(POLL_S)
        except TimeoutError:
            raise
        except OSError as error:
            raise unwritable(self._folder.path, error) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)  # which releases the lock
        self._descriptor = -1

    def is_ours(self) -> bool:
        """Return whether the lock that we hold is the one that others would find."""
        try:
            # No other file can have the number of ours, because ours is still open.
            return self._descriptor >= 0 and self._folder.is_open_at(self._descriptor, self._name)
        except (OSError, WorkspaceError):
            return False

    def _try(self) -> bool:
        self._descriptor = self._folder.open(self._name, os.O_RDWR | os.O_CREAT)
        is_locked = False
        try:
            # The file may have been removed after it was opened: then the lock guards nothing.
            is_locked = _lock(self._descriptor) and self.is_ours()
        finally:
            if not is_locked:
                self.__exit__(None, None, None)
        return is_locked


def _lock(descriptor: int) -> bool:
    """Lock an open file, unless another process has."""
    try:
        import fcntl
    except ImportError:
        import msvcrt

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined,unused-ignore]
        except PermissionError:
            return False
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def unwritable(folder: str, error: OSError) -> WorkspaceError:
    """Return the error for a `.watchtest` folder, or a file in it, that cannot be written."""
    place = error.filename if isinstance(error.filename, str) else ""
    text = f"{os.path.join(folder, place)} cannot be written: {error.strerror or error}"  # noqa: PTH118
    return WorkspaceError(text, hint="watchtest keeps its state there; make it writable, or remove it")


class WatcherLock:
    """The lock that allows one watcher per workspace.

    `keep` takes it again if its file was removed (`git clean -xdf` does that).
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = FolderLock(folder, "lock", WAIT_S)

    def __enter__(self) -> Self:
        try:
            self._lock.__enter__()
        except TimeoutError as error:
            hint = "`watchtest attach` shows that watcher, `watchtest stop` ends it"
            raise WorkspaceError(f"{self._folder.parent} {TAKEN}{self._owner()}", hint=hint) from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.__exit__(kind, error, at)

    def is_ours(self) -> bool:
        return self._lock.is_ours()

    def keep(self) -> None:
        """Take the lock again if its file was removed. Raise WorkspaceError if another watcher has taken it."""
        if self.is_ours():
            return
        if not self._folder.parent.is_dir():
            return  # the whole workspace is gone; the file watch reports that and waits for it
        self.__exit__(None, None, None)
        self.__enter__()
        log.warning("%s was removed; took the lock again", self._folder / "lock")

    def _owner(self) -> str:
        try:
            writer = json.loads(OwnFolder(self._folder).read("status.json"))["writer"]
            return f" by process {int(writer['pid'])}"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return ""  # it has not written its status yet
