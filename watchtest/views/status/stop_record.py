"""Remembers what a watcher knew when it stopped, in the user's state folder, where no repository can write.

A status file without a live watcher may have come from anywhere: from the repository, from another machine, from a
backup. It counts only if it is the very document that this record names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from watchtest.core.model import Entry, Lane
from watchtest.core.state import Idle, LaneState, PendingChanges, State
from watchtest.views.mood import mood
from watchtest.workspace.folder import replace_file
from watchtest.workspace.machine import workspace_digest


@dataclass(frozen=True, slots=True)
class LaneRecord:
    """What the verdict of a lane is about. `doubt` is why it would not hold even if the code has not changed."""

    tree: str
    doubt: str = ""


def record_file(state_folder: Path, workspace: Path) -> Path:
    """Return where the record of a workspace is kept; other workspaces and other machines have other files."""
    return state_folder / "stopped" / f"{workspace_digest(workspace)[:16]}.json"


def write_record(file: Path, status: Mapping[str, Any], state: State) -> None:
    """Record that `status` is what the watcher wrote last."""
    lanes = {lane.lane.value: asdict(found) for lane in state.ranked if (found := _lane_record(lane)) is not None}
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, json.dumps({"status": _status_digest(status), "lanes": lanes}).encode(), 0o600)


def read_record(file: Path, status: Mapping[str, Any]) -> dict[Lane, LaneRecord] | None:
    """Return what the verdicts of `status` are about; None if that is not what our watcher wrote last."""
    try:
        document = json.loads(file.read_bytes())
        if document["status"] != _status_digest(status):
            return None
        return {Lane(name): LaneRecord(**fields) for name, fields in document["lanes"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return None


def tree_digest(entries: Mapping[str, Entry]) -> str:
    """Return a digest of exactly these entries. Unlike git's tree id it covers empty folders and all modes."""
    digest = hashlib.sha256()
    for path, entry in sorted(entries.items()):
        line = f"{entry.kind} {entry.mode:o} {entry.digest} {path}\0"
        digest.update(line.encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _lane_record(lane: LaneState) -> LaneRecord | None:
    if lane.knowledge.snapshot is None:
        return None
    at_rest = replace(lane, activity=Idle(), pending=PendingChanges())
    return LaneRecord(tree_digest(lane.knowledge.snapshot.entries), mood(at_rest).doubt)


def _status_digest(status: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(status, sort_keys=True).encode()).hexdigest()
