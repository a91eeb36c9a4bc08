"""Which Go packages a change can affect: what `go list` says of them, read. Starts nothing.

A file belongs to the package in whose folder or testdata it lies, and to those that embed it. What changed in a package
concerns its own tests and those of all packages that need it; a file of tests, or a text, its own alone.
"""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any

from watchtest.core.model import Only
from watchtest.core.reach import is_text
from watchtest.runners.base import Change
from watchtest.runners.narrowing import Untellable, folder_in, named, proof
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
    """Packages by their folders. Raises Untellable."""
    packages = _read(listing, change.root)
    folders = frozenset(one.folder for one in packages.values() if one.folder is not None)
    if not folders:
        raise Untellable("go list names no package in the workspace")
    needs = {one.folder: _needed(path, packages) for path, one in packages.items() if one.is_test_main and one.folder}
    chosen: set[str] = set()
    reasons: list[str] = []
    for path in change.paths:
        for owner, is_own in _owners(path, packages, folders):
            found = {folder for folder, needed in needs.items() if folder == owner or (not is_own and owner in needed)}
            chosen |= found
            if found:
                reasons.append(f"{path} belongs to the package {owner}")
    without_tests = change.known_files - needs.keys()
    if not without_tests <= folders:
        raise Untellable(f"there is no package {named(sorted(without_tests - folders))} any more")
    return proof(chosen | without_tests, reasons, change)


def _owners(path: str, packages: Mapping[str, _Package], folders: frozenset[str]) -> Iterator[tuple[str, bool]]:
    """The packages a file belongs to, and whether it concerns their own tests alone."""
    where = PurePosixPath(path)
    if where.name in SETTINGS or VENDOR in where.parts:
        raise Untellable(f"{path} decides what packages are made of")
    embedding = {one.folder for one in packages.values() if one.folder is not None and path in one.embeds}
    yield from ((folder, False) for folder in sorted(embedding))
    folder = str(where.parent)
    if folder in folders:
        yield folder, where.name.endswith("_test.go") or is_text(where)
    elif TESTDATA in where.parts[:-1] and (above := str(PurePosixPath(*_before(where.parts)))) in folders:
        yield above, False
    elif not embedding and where.suffix != ".py" and not is_text(where):
        raise Untellable(f"{path} belongs to no package, and may be read by any")


def _before(parts: tuple[str, ...]) -> tuple[str, ...]:
    return parts[: parts.index(TESTDATA)]


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
        raise Untellable("what go list says cannot be read") from error
    return packages


def _package(row: dict[str, Any], root: str) -> _Package:
    folder = folder_in(root, row["dir"])
    embeds = [*row["embeds"], *row["test_embeds"], *row["outer_embeds"]]
    return _Package(
        folder,
        tuple(map(str, row["imports"])),
        tuple(posixpath.normpath(posixpath.join(folder, str(file))) for file in embeds) if folder is not None else (),
        is_test_main=row["is_main"] is True and row["path"].endswith(TEST_MAIN),
    )
