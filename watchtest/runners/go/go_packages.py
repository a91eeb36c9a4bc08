"""Finds the Go packages that a change can affect, from the output of `go list`. Starts nothing.

A file belongs to the package whose folder or testdata contains it, and to those that embed it. A change affects the
tests of that package and of all packages that depend on it; a test file or a text affects its own package only. A file
that is not Go may also be read by the packages below.
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
from watchtest.core.text import names
from watchtest.runners.runner import Change, Undecidable, is_below, proof, workspace_folder_of
from watchtest.runners.untrusted import name

QUOTED = '{{range $index, $one := %s}}{{if $index}},{{end}}{{printf "%%q" $one}}{{end}}'
TEMPLATE = (
    '{{if not .Standard}}{{printf "{\\"path\\":%q,\\"dir\\":%q,\\"is_main\\":%t" .ImportPath .Dir (eq .Name "main")}}'
    + ",\"imports\":[" + QUOTED % ".Imports" + "]"
    + "".join(f',"{key}":[{QUOTED % field}]' for key, field in (
        ("embeds", ".EmbedFiles"), ("test_embeds", ".TestEmbedFiles"), ("outer_embeds", ".XTestEmbedFiles")))
    + "}{{end}}"
)  # fmt: skip
"""Prints one JSON object per line for each package outside the standard library; `-json=FIELDS` needs Go 1.19."""
LISTING = 'report=$1; shift; exec go list -deps -test "$@" ./... >"$report"'
FLAGS = ("tags", "mod", "modfile", "overlay", "race", "msan", "asan")
"""The flags of `go test` that decide which files belong to a package."""
WITHOUT_VALUE = ("race", "msan", "asan")
SETTINGS = frozenset({"go.mod", "go.sum", "go.work", "go.work.sum"})
VENDOR = "vendor"
TESTDATA = "testdata"
TEST_MAIN = ".test"


def listing_flags(args: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the user's arguments to `go test` that `go list` needs as well."""
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
    """None if it is outside the workspace."""
    imports: tuple[str, ...]
    embeds: tuple[str, ...]
    """Embedded files, relative to the workspace."""
    is_test_main: bool


def affected(listing: bytes, change: Change) -> Only:
    """Return the affected packages by their folders. Raises Undecidable."""
    packages = _read(listing, change.root)
    folders = frozenset(package.folder for package in packages.values() if package.folder is not None)
    if not folders:
        raise Undecidable("go list finds no package in the workspace")
    dependencies = {
        package.folder: _dependencies(path, packages)
        for path, package in packages.items()
        if package.is_test_main and package.folder
    }
    chosen: set[str] = set()
    reasons: list[str] = []
    for path in change.paths:
        owners = _owners(path, packages, folders)
        found = {
            folder
            for folder, used in dependencies.items()
            if folder in owners.alone or not owners.shared.isdisjoint(used)
        }
        chosen |= found
        if found:
            reasons.append(f"{path} belongs to the package {owners.home}")
    without_tests = change.known_files - dependencies.keys()
    if not without_tests <= folders:
        raise Undecidable(f"these packages no longer exist: {names(without_tests - folders)}")
    return proof(chosen | without_tests, reasons, change)


@dataclass(frozen=True, slots=True)
class _Owners:
    """The packages that a file belongs to, by their folders."""

    home: str = ""
    alone: frozenset[str] = frozenset()
    """It affects only their own tests."""
    shared: frozenset[str] = frozenset()
    """It affects their tests and those of all packages that depend on them."""


def _owners(path: str, packages: Mapping[str, _Package], folders: frozenset[str]) -> _Owners:
    where = PurePosixPath(path)
    if where.name in SETTINGS or VENDOR in where.parts:
        raise Undecidable(f"{path} configures the build")
    embedding = frozenset(
        package.folder for package in packages.values() if package.folder is not None and path in package.embeds
    )
    is_data = TESTDATA in where.parts[:-1]
    home = str(PurePosixPath(*where.parts[: where.parts.index(TESTDATA)]) if is_data else where.parent)
    if home in folders and (is_data or not (where.suffix == ".go" or is_text(where))):
        return _Owners(home, shared=embedding | {folder for folder in folders if is_below(folder, home)})
    if home in folders:
        is_own = is_text(where) or where.name.endswith("_test.go")
        return _Owners(home, frozenset({home}), embedding if is_own else embedding | {home})
    if not embedding and where.suffix != ".py" and not is_text(where):
        raise Undecidable(f"{path} belongs to no package, so any package may read it")
    return _Owners(min(embedding, default=""), shared=embedding)


def _dependencies(start: str, packages: Mapping[str, _Package]) -> frozenset[str]:
    """Return the folders of all packages that a test program consists of."""
    seen, waiting = {start}, [start]
    while waiting:
        for path in packages[waiting.pop()].imports:
            if path in packages and path not in seen:  # the standard library is not listed
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
        raise Undecidable("the output of go list cannot be read") from error
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
