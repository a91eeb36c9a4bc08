"""Ends the runs of watchers that died, before anybody is told that they run. Living ones hold a lock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watchtest.errors import WatchtestError

BY_LOCK = (("lock", False), ("gate.lock", True))
"""Whose lock stands for which runs: the watcher's for its own, that of gates and probes for theirs."""


def mend_what_died(path: Path) -> None:
    """In every workspace of the history. Whoever may not write there is told what it says."""
    from watchtest.history.opening import reading
    from watchtest.history.queries import open_workspaces
    from watchtest.history.store import Store

    with reading(path) as connection:
        workspaces = open_workspaces(connection)
    for workspace in workspaces:
        for name, is_beside in BY_LOCK:
            with _nobody_at_work(Path(workspace), name) as is_dead:
                if not is_dead:
                    continue
                try:
                    with Store.open(path) as store:
                        store.mend(workspace, time.time(), is_beside=is_beside)
                except WatchtestError:
                    return


@contextmanager
def _nobody_at_work(workspace: Path, name: str) -> Iterator[bool]:
    """Whether that is so; nobody can begin meanwhile."""
    from filelock import FileLock, Timeout

    from watchtest.workspace import FOLDER

    folder = workspace / FOLDER
    if not folder.is_dir():
        # A worktree that was removed: nobody will ever start there again. Where only our folder was, that is not known.
        yield not workspace.exists()
        return
    lock = FileLock(folder / name)
    try:
        lock.acquire(timeout=0)
    except (Timeout, OSError):
        yield False
        return
    try:
        yield True
    finally:
        lock.release()
