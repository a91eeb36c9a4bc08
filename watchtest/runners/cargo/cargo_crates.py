"""Which crates a change can affect: what `cargo metadata` says of them, read. Starts nothing.

A file belongs to the crate in whose folder it lies, the innermost; what changed in a crate concerns it and all crates
that name it among their dependencies, be they optional, of tests or of build scripts. What is no Rust may also be read
by the crates below it.
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
"""Of this platform: what only others need was never downloaded, and without a network that would be an error."""
LIBRARIES = frozenset({"lib", "rlib", "dylib", "cdylib", "staticlib", "proc-macro"})
BUILD_SCRIPT = "custom-build"
SETTINGS = frozenset({"Cargo.toml", "Cargo.lock", "rust-toolchain", "rust-toolchain.toml"})
SETTINGS_FOLDER = ".cargo"


@dataclass(frozen=True, slots=True)
class _Crate:
    name: str
    folder: str | None
    """None: not in the workspace."""
    needs: frozenset[str]
    targets: tuple[str, ...]
    """Those that may hold tests, as ids have them."""


def affected(metadata: bytes, folder: str, change: Change) -> Only:
    """Targets of crates, as ids begin with them. `folder`: where cargo runs. Raises Undecidable."""
    crates, members = _read(metadata, change.root)
    needing = _needing(crates)
    homes = {crate.folder: crate.name for crate in crates if crate.folder is not None}
    chosen: set[str] = set()
    reasons: list[str] = []
    for path in change.paths:
        owners = _owners(path, folder, homes)
        chosen.update(*(needing[owner] for owner in owners))
        reasons += [f"{path} belongs to the crate {owner}" for owner in owners[:1]]
    prefix = f"{folder}/" if folder else ""
    ids = {prefix + target for crate in crates if crate.name in chosen & members for target in crate.targets}
    known = {file for file in change.known_files if _crate_of(file, prefix) in chosen}
    strangers = {_crate_of(file, prefix) for file in change.known_files} - members
    if strangers:
        raise Undecidable(f"there is no crate {sorted(strangers)[0]} any more")
    return proof(ids | known, reasons, change)


def _crate_of(file: str, prefix: str) -> str:
    return file.removeprefix(prefix).partition("/")[0]


def _owners(path: str, folder: str, homes: Mapping[str, str]) -> list[str]:
    """The crate of a file, and those that may read it all the same; none if it is nobody's."""
    where = PurePosixPath(path)
    if where.name in SETTINGS or SETTINGS_FOLDER in where.parts:
        raise Undecidable(f"{path} decides what crates are made of")
    around = [home for home in homes if is_below(path, home)]
    if around:
        home = max(around, key=lambda home: (home != TOP, len(home)))
        is_for_all_below = where.suffix != ".rs" and not is_text(where)
        return [homes[home], *(crate for one, crate in homes.items() if is_for_all_below and is_below(one, home))]
    if is_text(where) and not is_below(path, folder):
        return []
    raise Undecidable(f"{path} belongs to no crate, and may be read by any")


def _needing(crates: Iterable[_Crate]) -> dict[str, set[str]]:
    """By name: the crate itself and all that need it, be it by others."""
    direct: dict[str, set[str]] = {}
    for crate in crates:
        for needed in crate.needs:
            direct.setdefault(needed, set()).add(crate.name)
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
    """All crates, and the names of those that are tested."""
    try:
        said = json.loads(metadata)
        rows = tables(said["packages"])
        members = frozenset(name(row["name"]) for row in rows if row["id"] in said["workspace_members"])
        crates = [_crate(row, root) for row in rows]
        places = {crate.folder for crate in crates}
        paths = [text(need.get("path")) for row in rows for need in tables(row["dependencies"])]
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Undecidable("what cargo metadata says cannot be read") from error
    unlisted = [path for path in paths if path and workspace_folder_of(root, path) not in places]
    if unlisted or not members:
        raise Undecidable(f"cargo metadata does not say what {unlisted[0] if unlisted else 'the workspace'} needs")
    return crates, members


def _crate(row: dict[str, Any], root: str) -> _Crate:
    crate = name(row["name"])
    is_local = row.get("source") is None
    return _Crate(
        crate,
        workspace_folder_of(root, text(row["manifest_path"]).rpartition("/")[0]) if is_local else None,
        frozenset(name(need["name"]) for need in tables(row["dependencies"])),
        tuple(f"{crate}/{word}" for target in tables(row["targets"]) for word in _words(target)),
    )


def _words(target: dict[str, Any]) -> Iterable[str]:
    kind = target["kind"][0]
    if kind == BUILD_SCRIPT:
        return
    if target.get("test") is not False:
        yield "lib" if kind in LIBRARIES else f"{kind}/{name(target['name'])}"
    if target.get("doctest") is True:
        yield "doc"
