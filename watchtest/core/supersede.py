"""Whether a change during a run affects tests of the run that have not finished. Pure.

This is a guess based on file names. It is safe: a wrong "no" only costs time, because the change stays pending and is
tested next; a wrong "yes" only restarts the run.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import PurePosixPath

from watchtest.core.events import EVERYTHING
from watchtest.core.model import OnChange, Only, RunState
from watchtest.core.state import Executing, LaneState, Working
from watchtest.core.verdict import file_of

TEXTS = frozenset({".md", ".rst", ".adoc"})
TEXT_NAMES = frozenset({"LICENSE", "LICENCE", "COPYING", "NOTICE", "AUTHORS", "CHANGELOG", "CHANGES"})
CONFTEST = "conftest.py"
MOST_IN_A_ROW = 5


def is_same_save(lane: LaneState) -> bool:
    """Return whether a change came so soon after the start of the run that it is part of the same save."""
    match lane.activity, lane.pending.since:
        case Working(since=began), float(changed):
            return changed - began <= lane.settings.settle_s
        case _:
            return False


def is_superseded(lane: LaneState, paths: Collection[str]) -> bool:
    """Return whether the active run must end because these paths differ from its snapshot."""
    match lane.activity:
        case Working(phase=Executing() as phase, stop=None, run=run) if paths and not is_owed_an_end(lane):
            selected = frozenset(run.selection.tests) if isinstance(run.selection, Only) else frozenset[str]()
            if run.is_audit:
                return True
            # If the run tested half a save, not even its finished tests count.
            finished = frozenset[str]() if is_same_save(lane) else phase.results.keys()
            return lane.settings.on_change is OnChange.RESTART or (
                lane.settings.on_change is OnChange.SMART and reaches(paths, phase.promised or selected, finished)
            )
        case _:
            return False


def is_owed_an_end(lane: LaneState) -> bool:
    """Return whether so many runs were superseded in a row that the next one must finish, despite constant writes."""
    return lane.runs.recent_states[-MOST_IN_A_ROW:] == (RunState.SUPERSEDED,) * MOST_IN_A_ROW


def reaches(paths: Collection[str], promised: Collection[str], finished: Collection[str]) -> bool:
    """Return whether one of the paths can change the outcome of a promised test that has not finished.

    A test file affects its own tests, a conftest.py the tests in its folder, documentation no tests, any other file
    all tests. Before the first test is promised, every test is unfinished.
    """
    unfinished = [test for test in promised if test not in finished]
    if promised and not unfinished:
        return False
    files = {file_of(test) for test in promised}
    waiting = {file_of(test) for test in unfinished}
    return any(_reaches(path, files, waiting) for path in paths)


def _reaches(path: str, files: Collection[str], waiting: Collection[str]) -> bool:
    if path == EVERYTHING:
        return True
    if path in files:
        return path in waiting
    where = PurePosixPath(path)
    if where.name == CONFTEST and files:
        return any(where.parent in PurePosixPath(file).parents for file in waiting)
    return not is_text(where)


def is_text(path: PurePosixPath) -> bool:
    """Return whether a file is documentation: tests are assumed not to depend on it."""
    return path.suffix.lower() in TEXTS or path.stem.upper() in TEXT_NAMES
