"""Whether a change that came during a run reaches tests of it that have not finished. Pure.

A guess by names alone, and a safe one: a wrong "no" costs only time, because the change stays pending and is run next;
a wrong "yes" costs only a run that begins again.
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
    """Whether a change came so soon after the start of the run that it belongs to the save that started it."""
    match lane.activity, lane.pending.since:
        case Working(since=began), float(changed):
            return changed - began <= lane.settings.settle_s
        case _:
            return False


def is_superseded(lane: LaneState, paths: Collection[str]) -> bool:
    """Whether the run under way is to be given up for a change of these paths, which differ from its snapshot."""
    match lane.activity:
        case Working(phase=Executing() as phase, stop=None, run=run) if paths and not is_owed_an_end(lane):
            selected = frozenset(run.selection.tests) if isinstance(run.selection, Only) else frozenset[str]()
            if run.is_audit:
                return True
            # Of half a save nothing counts, not even what has finished.
            finished = frozenset[str]() if is_same_save(lane) else phase.results.keys()
            return lane.settings.on_change is OnChange.RESTART or (
                lane.settings.on_change is OnChange.SMART and reaches(paths, phase.promised or selected, finished)
            )
        case _:
            return False


def is_owed_an_end(lane: LaneState) -> bool:
    """What writes into the workspace all the time must not keep every run from its end."""
    return lane.runs.recent_states[-MOST_IN_A_ROW:] == (RunState.SUPERSEDED,) * MOST_IN_A_ROW


def reaches(paths: Collection[str], promised: Collection[str], finished: Collection[str]) -> bool:
    """Whether one of the paths can change the outcome of a promised test that has not finished.

    A file of tests reaches its own tests, a conftest.py those below its folder, a text nobody, anything else everybody.
    While nothing is promised yet, every test is still to come.
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
    """Written for people: no test is taken to depend on it."""
    return path.suffix.lower() in TEXTS or path.stem.upper() in TEXT_NAMES
