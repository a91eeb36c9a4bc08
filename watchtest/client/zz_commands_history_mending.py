"""Ends the runs of watchers that died, before anybody is told that they run. Living ones hold a lock."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watchtest.errors import WatchtestError

LOCKS = {False: "lock", True: "gate.lock"}
"""Who is at work holds the watcher's lock; or, beside it, that of gates and probes."""


def mend_what_died(path: Path) -> None:
    """In every workspace of the history. Whoever may not write there is told what it says."""
    from watchtest.client.status_file import is_locked
    from watchtest.history.queries.run_queries import at_work
    from watchtest.history.store.opening import reading
    from watchtest.history.store.store import Store
    from watchtest.workspace.folder import FOLDER

    with reading(path) as connection:
        found = at_work(connection)
    dead = [each for each in found if not is_locked(Path(each[0], FOLDER, LOCKS[each[1]]))]
    if not dead:
        return
    try:
        # Opened before a lock is taken: a watcher that starts meanwhile waits for that lock, and not for long.
        with Store.open(path) as store:
            for workspace, is_beside in dead:
                with _nobody_at_work(Path(workspace), LOCKS[is_beside]) as is_so:
                    if is_so:
                        store.mend(workspace, time.time(), is_beside=is_beside)
    except WatchtestError:
        return


@contextmanager
def _nobody_at_work(workspace: Path, name: str) -> Iterator[bool]:
    """Whether that is so; nobody can begin meanwhile."""
    from filelock import FileLock, Timeout

    from watchtest.workspace.folder import FOLDER

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
