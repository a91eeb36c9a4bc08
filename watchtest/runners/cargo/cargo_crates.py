"""Finds the crates that a change can affect, from the output of `cargo metadata`. Starts nothing.

A file belongs to the innermost crate whose folder contains it. A change affects that crate and all crates that depend
on it in any way: optionally, for tests or for build scripts. A file that is not Rust may also be read by crates below.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from watchtest.core.model import Only
from watchtest.core.supersede import is_text
from watchtest.runners.runner import TOP, Change, Undecidable, is_below, proof, workspace_folder_of
from watchtest.runners.untrusted import name, tables, text

METADATA = (
    'report=$1; host=$(rustc -vV | sed -n "s/^host: //p"); '
    'exec cargo metadata --format-version 1 --offline ${host:+--filter-platform "$host"} >"$report"'
)
"""Filtered by platform: dependencies of other platforms were never downloaded, so without network they would fail."""
LIBRARIES = frozenset({"lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"})
BUILD_SCRIPT = "custom-build"
SETTINGS = frozenset({"Cargo.toml", "Cargo.lock", "rust-toolchain", "rust-toolchain.toml"})
SETTINGS_FOLDER = ".cargo"


@dataclass(frozen=True, slots=True)
class _Crate:
    name: str
    folder: str | None
    """None if it is outside the workspace."""
    dependencies: frozenset[str]
    targets: tuple[str, ...]
    """The targets that may contain tests, as in test ids."""


def affected(metadata: bytes, folder: str, change: Change) -> Only:
    """Return the affected targets, with which test ids begin. cargo runs in `folder`. Raises Undecidable."""
    crates, members = _read(metadata, change.root)
    dependents = _dependents(crates)
    homes = {crate.folder: crate.name for crate in crates if crate.folder is not None}
    chosen: set[str] = set()
    reasons: list[str] = []
    for path in change.paths:
        owners = _owners(path, folder, homes)
        chosen.update(*(dependents[owner] for owner in owners))
        reasons += [f"{path} belongs to the crate {owner}" for owner in owners[:1]]
    prefix = f"{folder}/" if folder else ""
    ids = {prefix + target for crate in crates if crate.name in chosen & members for target in crate.targets}
    known = {file for file in change.known_files if _crate_of(file, prefix) in chosen}
    missing = {_crate_of(file, prefix) for file in change.known_files} - members
    if missing:
        raise Undecidable(f"the crate {min(missing)} no longer exists")
    return proof(ids | known, reasons, change)


def _crate_of(file: str, prefix: str) -> str:
    return file.removeprefix(prefix).partition("/")[0]


def _owners(path: str, folder: str, homes: Mapping[str, str]) -> list[str]:
    """Return the crate of a file, and the crates below it if they may read the file; none for unrelated text."""
    where = PurePosixPath(path)
    if where.name in SETTINGS or SETTINGS_FOLDER in where.parts:
        raise Undecidable(f"{path} configures the build")
    around = [home for home in homes if is_below(path, home)]
    if around:
        home = max(around, key=lambda home: (home != TOP, len(home)))
        is_for_all_below = where.suffix != ".rs" and not is_text(where)
        return [homes[home], *(crate for other, crate in homes.items() if is_for_all_below and is_below(other, home))]
    if is_text(where) and not is_below(path, folder):
        return []
    raise Undecidable(f"{path} belongs to no crate, so any crate may read it")


def _dependents(crates: Iterable[_Crate]) -> dict[str, set[str]]:
    """Return for each crate its own name and those of all crates that depend on it, directly or indirectly."""
    direct: dict[str, set[str]] = {}
    for crate in crates:
        for dependency in crate.dependencies:
            direct.setdefault(dependency, set()).add(crate.name)
    found: dict[str, set[str]] = {}
    for crate in crates:
        seen, waiting = {crate.name}, [crate.name]
        while waiting:
            more = direct.get(waiting.pop(), set()) - seen
            seen |= more
            waiting += more
        found[crate.name] = seen
    return found


def _read(metadata: bytes, root: str) -> tuple[list[_Crate], frozenset[str]]:
    """Return all crates, and the names of those that are tested."""
    try:
        document = json.loads(metadata)
        rows = tables(document["packages"])
        members = frozenset(name(row["name"]) for row in rows if row["id"] in document["workspace_members"])
        crates = [_crate(row, root) for row in rows]
        folders = {crate.folder for crate in crates}
        paths = [text(dependency.get("path")) for row in rows for dependency in tables(row["dependencies"])]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Undecidable("the output of cargo metadata cannot be read") from error
    unlisted = [path for path in paths if path and workspace_folder_of(root, path) not in folders]
    if unlisted or not members:
        raise Undecidable(f"cargo metadata does not list {unlisted[0] if unlisted else 'the workspace'}")
    return crates, members


def _crate(row: dict[str, Any], root: str) -> _Crate:
    crate = name(row["name"])
    is_local = row.get("source") is None
    return _Crate(
        crate,
        workspace_folder_of(root, text(row["manifest_path"]).rpartition("/")[0]) if is_local else None,
        frozenset(name(dependency["name"]) for dependency in tables(row["dependencies"])),
        tuple(f"{crate}/{target}" for raw in tables(row["targets"]) for target in _targets(raw)),
    )


def _targets(target: dict[str, Any]) -> Iterable[str]:
    kind = target["kind"][0]
    if kind == BUILD_SCRIPT:
        return
    if target.get("test") is not False:
        yield "lib" if kind in LIBRARIES else f"{kind}/{name(target['name'])}"
    if target.get("doctest") is True:
        yield "doc"
