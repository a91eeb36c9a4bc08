"""Allow one watcher per workspace. The system releases the lock when its owner dies, so it is never stale."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from types import TracebackType
from typing import Self

from filelock import FileLock, Timeout

from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import make_folder

log = logging.getLogger(__name__)
WAIT_S = 1.0
"""`watchtest status` takes the lock for a moment, to see whether it is free."""


TAKEN = "is already watched"


class WatcherLock:
    """A lock that is held while entered. `keep` takes it again if its file was removed (`git clean -xdf` does that)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file = folder / "lock"
        self._lock = FileLock(self._file)
        self._inode = 0

    def __enter__(self) -> Self:
        try:
            make_folder(self._folder)
            self._lock.acquire(timeout=WAIT_S)
            self._inode = self._file.stat().st_ino
        except Timeout as error:
            hint = "`watchtest attach` shows that watcher, `watchtest stop` ends it"
            raise WorkspaceError(f"{self._folder.parent} {TAKEN}{self._owner()}", hint=hint) from error
        except OSError as error:
            text = f"{self._folder} cannot be written: {error.strerror}"
            raise WorkspaceError(text, hint="watchtest keeps its status there; make it writable") from error
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._lock.release()

    def is_ours(self) -> bool:
        """Return whether the lock that we hold is the one that others would find."""
        try:
            # No other file can have this number, because ours is still open.
            return self._lock.is_locked and self._file.stat().st_ino == self._inode
        except OSError:
            return False

    def keep(self) -> None:
        """Take the lock again if its file was removed. Raise WorkspaceError if another watcher has taken it."""
        if self.is_ours():
            return
        if not self._folder.parent.is_dir():
            return  # the whole workspace is gone; the file watch reports that and waits for it
        self._lock.release()
        self._lock = FileLock(self._file)
        self.__enter__()
        log.warning("%s was removed; took the lock again", self._file)

    def _owner(self) -> str:
        try:
            writer = json.loads((self._folder / "status.json").read_text(encoding="utf-8"))["writer"]
            return f" by process {writer['pid']}"
        except (OSError, ValueError, KeyError, TypeError):
            return ""  # it has not written its status yet
