"""Which Go packages a change can affect: what `go list` says of them, read. Starts nothing.

A file belongs to the package in whose folder or testdata it lies, and to those that embed it. What changed in a package
concerns its own tests and those of all packages that need it; a file of tests, or a text, its own alone. What is no Go
may also be read by the packages below it.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from watchtest.core.model import Only
from watchtest.core.supersede import is_text
from watchtest.runners.runner import Change, Undecidable, is_below, proof, some_of, workspace_folder_of
from watchtest.runners.untrusted import name

QUOTED = '{{range $index, $one := %s}}{{if $index}},{{end}}{{printf "%%q" $one}}{{end}}'
TEMPLATE = (
    '{{if not .Standard}}{{printf "{\\"path\\":%q,\\"dir\\":%q,\\"is_main\\":%t" .ImportPath .Dir (eq .Name "main")}}'
    + ",\"imports\":[" + QUOTED % ".Imports" + "]"
    + "".join(f',"{key}":[{QUOTED % field}]' for key, field in (
        ("embeds", ".EmbedFiles"), ("test_embeds", ".TestEmbedFiles"), ("outer_embeds", ".XTestEmbedFiles")))
    + "}{{end}}"
)  # fmt: skip
"""A JSON object a line for each package that is not Go's own. `go list -json=FIELDS` is not there before Go 1.19."""
LISTING = 'report=$1; shift; exec go list -deps -test "$@" ./... >"$report"'
FLAGS = ("tags", "mod", "modfile", "overlay", "race", "msan", "asan")
"""Of the flags of `go test`, those that decide which files there are to a package."""
WITHOUT_VALUE = ("race", "msan", "asan")
SETTINGS = frozenset({"go.mod", "go.sum", "go.work", "go.work.sum"})
VENDOR = "vendor"
TESTDATA = "testdata"
TEST_MAIN = ".test"


def listing_flags(args: tuple[str, ...]) -> tuple[str, ...]:
    """Of the user's arguments to `go test`, those that `go list` must be given, too."""
    flags: list[str] = []
    words = iter(args)
    for word in words:
        flag, equals, _ = word.lstrip("-").partition("=")
        if word.startswith("-") and flag in FLAGS:
            flags.append(word)
            if not equals and flag not in WITHOUT_VALUE:
                flags += [value for value in [next(words, None)] if value is not None]
    return tuple(flags)


@dataclass(frozen=True, slots=True)
class _Package:
    folder: str | None
    """None: not in the workspace."""
    imports: tuple[str, ...]
    embeds: tuple[str, ...]
    """Files, relative to the workspace."""
    is_test_main: bool


def affected(listing: bytes, change: Change) -> Only:
    """Packages by their folders. Raises Undecidable."""
    packages = _read(listing, change.root)
    folders = frozenset(one.folder for one in packages.values() if one.folder is not None)
    if not folders:
        raise Undecidable("go list names no package in the workspace")
    needs = {one.folder: _needed(path, packages) for path, one in packages.items() if one.is_test_main and one.folder}
    chosen: set[str] = set()
    reasons: list[str] = []
    for path in change.paths:
        owned = _owned(path, packages, folders)
        found = {
            folder for folder, needed in needs.items() if folder in owned.alone or not owned.shared.isdisjoint(needed)
        }
        chosen |= found
        if found:
            reasons.append(f"{path} belongs to the package {owned.home}")
    without_tests = change.known_files - needs.keys()
    if not without_tests <= folders:
        raise Undecidable(f"there is no package {some_of(sorted(without_tests - folders))} any more")
    return proof(chosen | without_tests, reasons, change)


@dataclass(frozen=True, slots=True)
class _Owned:
    """Whose a file is, by folders of packages."""

    home: str = ""
    alone: frozenset[str] = frozenset()
    """It concerns their own tests."""
    shared: frozenset[str] = frozenset()
    """It concerns also all that need them."""


def _owned(path: str, packages: Mapping[str, _Package], folders: frozenset[str]) -> _Owned:
    where = PurePosixPath(path)
    if where.name in SETTINGS or VENDOR in where.parts:
        raise Undecidable(f"{path} decides what packages are made of")
    embedding = frozenset(one.folder for one in packages.values() if one.folder is not None and path in one.embeds)
    is_data = TESTDATA in where.parts[:-1]
    home = str(PurePosixPath(*where.parts[: where.parts.index(TESTDATA)]) if is_data else where.parent)
    if home in folders and (is_data or not (where.suffix == ".go" or is_text(where))):
        return _Owned(home, shared=embedding | {folder for folder in folders if is_below(folder, home)})
    if home in folders:
        is_own = is_text(where) or where.name.endswith("_test.go")
        return _Owned(home, frozenset({home}), embedding if is_own else embedding | {home})
    if not embedding and where.suffix != ".py" and not is_text(where):
        raise Undecidable(f"{path} belongs to no package, and may be read by any")
    return _Owned(min(embedding, default=""), shared=embedding)


def _needed(start: str, packages: Mapping[str, _Package]) -> frozenset[str]:
    """The folders of all that a test program is made of."""
    seen, waiting = {start}, [start]
    while waiting:
        for path in packages[waiting.pop()].imports:
            if path in packages and path not in seen:  # Go's own are not listed
                seen.add(path)
                waiting.append(path)
    return frozenset(folder for path in seen if (folder := packages[path].folder) is not None)


def _read(listing: bytes, root: str) -> dict[str, _Package]:
    packages: dict[str, _Package] = {}
    try:
        for line in listing.decode().splitlines():
            row = json.loads(line)
            packages[name(row["path"])] = _package(row, root)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise Undecidable("what go list says cannot be read") from error
    return packages


def _package(row: dict[str, Any], root: str) -> _Package:
    folder = workspace_folder_of(root, row["dir"])
    embeds = [*row["embeds"], *row["test_embeds"], *row["outer_embeds"]]
    return _Package(
        folder,
        tuple(map(str, row["imports"])),
        tuple(posixpath.normpath(posixpath.join(folder, str(file))) for file in embeds) if folder is not None else (),
        is_test_main=row["is_main"] is True and row["path"].endswith(TEST_MAIN),
    )
