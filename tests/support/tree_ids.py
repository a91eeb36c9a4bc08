"""Computes the id of a whole tree from its entries; a snapshot computes its id folder by folder instead."""

from __future__ import annotations

from collections.abc import Mapping

from watchtest.core.model import Entry, EntryKind
from watchtest.sources.tree_id import FOLDER_MODE, folder_id, git_mode, name_bytes


def tree_id(entries: Mapping[str, Entry]) -> str:
    """Return the id that `git write-tree` computes for these entries. Skips folders: git has no empty ones."""
    folders: dict[str, list[tuple[bytes, bytes, str]]] = {"": []}
    for path, entry in entries.items():
        if entry.kind is not EntryKind.FOLDER:
            folder, _, name = path.rpartition("/")
            folders.setdefault(folder, []).append((name_bytes(name), git_mode(entry), entry.digest))
    for folder in list(folders):
        while folder := folder.rpartition("/")[0]:
            folders.setdefault(folder, [])
    # Deepest first, so that each folder's id is known when its parent needs it.
    for folder in sorted(folders, key=lambda path: path.count("/"), reverse=True):
        if folder:
            parent, _, name = folder.rpartition("/")
            folders[parent].append((name_bytes(name), FOLDER_MODE, folder_id(folders[folder])))
    return folder_id(folders[""])
