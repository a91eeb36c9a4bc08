"""Compares the verdicts that a stopped watcher has left with the code as it is now."""

from __future__ import annotations

from contextlib import closing
from typing import Any

from watchtest.client.status_file import load_status
from watchtest.config import Project
from watchtest.core.events import EVERYTHING
from watchtest.core.model import Lane, Snapshot, difference
from watchtest.core.text import count, names, one_line
from watchtest.errors import WatchtestError
from watchtest.selection.map_file import load
from watchtest.selection.map_keeper import map_file
from watchtest.views.mood import Colour
from watchtest.views.status.stop_record import LaneRecord, read_record, record_file, tree_digest
from watchtest.wiring import build_git_tree, build_worktree, maps_folder
from watchtest.workspace import manual_changes
from watchtest.workspace.folder import FOLDER

Document = dict[str, Any]
NOT_OURS = "this status was not written by the last watcher of this workspace"
COLOURS = {"passed": Colour.GREEN, "no_tests": Colour.AMBER}
"""By verdict, if the code is still the same."""


def compared_status(project: Project) -> Document:
    """Return the status with the colour and the doubt of each lane as they are now."""
    document = load_status(project.workspace / FOLDER / "status.json")
    record = read_record(record_file(project.dirs.state, project.workspace), document)
    lanes: Document = document["lanes"] if isinstance(document["lanes"], dict) else {}
    compared = {
        lane: {**lanes[lane], **_standing(project, Lane(lane), lanes[lane], record)}
        for lane in Lane
        if isinstance(lanes.get(lane), dict)
    }
    top = next(iter(compared.values()), {"colour": Colour.GREY, "doubt": NOT_OURS})
    return {**document, **top, "lanes": {**lanes, **compared}}


def _standing(project: Project, lane: Lane, document: Document, record: dict[Lane, LaneRecord] | None) -> Document:
    """Return the colour and the doubt of a lane."""
    verdict = document.get("verdict")
    if record is None:
        return {"colour": Colour.GREY, "doubt": NOT_OURS}
    known = record.get(lane)
    doubt = _changes(project, lane, known) or known.doubt if known is not None else ""
    if not doubt and lane is Lane.SAVE and (by_hand := manual_changes.changes(project.workspace)):
        doubt = f"the box was changed by hand since: {one_line(by_hand[-1])}"
    if verdict in ("failed", "error"):
        return {"colour": Colour.RED, "doubt": doubt or None}
    colour = Colour.GREY if doubt or known is None else COLOURS.get(str(verdict), Colour.GREY)
    return {"colour": colour, "doubt": doubt or None}


def _changes(project: Project, lane: Lane, known: LaneRecord) -> str:
    """Return how the code differs from what the verdict is about; empty if it does not."""
    try:
        now = _snapshot(project, lane)
    except WatchtestError as error:
        return f"cannot tell whether the code has changed: {one_line(error.message)}"
    if tree_digest(now.entries) == known.tree:
        return ""
    base = load(map_file(maps_folder(project.dirs.state, project.workspace), lane))
    if base is None or tree_digest(base.base.entries) != known.tree:
        return "the code has changed since"
    paths = difference(base.base.entries, now.entries).paths
    return f"the code has changed since ({count(len(paths), 'file')}: {names(paths)})"


def _snapshot(project: Project, lane: Lane) -> Snapshot:
    if lane is Lane.SAVE:
        return build_worktree(project).snapshot()
    with closing(build_git_tree(project, "index" if lane is Lane.STAGE else "head")) as tree:
        return tree.snapshot(frozenset({EVERYTHING}))
