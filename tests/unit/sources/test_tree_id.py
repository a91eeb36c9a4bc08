"""The tree id compared with git itself."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tree_ids import tree_id

from watchtest.core.model import Entry, EntryKind
from watchtest.sources.tree_id import EMPTY_TREE, blob_id, file_id, folder_id

NASTY = [
    b"a",
    b"a.",
    b"a-",
    b"a0",
    b"ab",
    b"A",
    b" ",
    b"\n",
    b"\t",
    b'"',
    b"\\",
    b"\xff",
    b"\xc3\xa9",
    b"*",
    b":x",
    b"-",
]
names = st.one_of(
    st.sampled_from(NASTY),
    st.binary(min_size=1, max_size=8).filter(
        lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..") and name.lower() != b".git"
    ),
)
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)
kinds = st.sampled_from(
    [(EntryKind.FILE, 0o644), (EntryKind.FILE, 0o755), (EntryKind.FILE, 0o600), (EntryKind.SYMLINK, 0o777)]
)
contents = st.binary(min_size=1, max_size=20).filter(lambda content: b"\0" not in content)
trees = st.dictionaries(paths, st.tuples(kinds, contents), max_size=12)


def git(folder: str, *arguments: str) -> str:
    quiet = [
        *("-c", "core.protectNTFS=false", "-c", "core.protectHFS=false", "-c", "core.precomposeUnicode=false"),
        *("-c", "core.autocrlf=false", "-c", "core.excludesFile=/dev/null", "-c", "core.safecrlf=false"),
    ]
    return subprocess.run(
        ["git", *quiet, *arguments], cwd=folder, check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


def without_clashes(
    tree: dict[bytes, tuple[tuple[EntryKind, int], bytes]],
) -> dict[bytes, tuple[tuple[EntryKind, int], bytes]]:
    """Drop conflicting paths: one path cannot be a file and a folder at once."""
    folders = {path[:at] for path in tree for at in range(len(path)) if path[at : at + 1] == b"/"}
    return {path: what for path, what in tree.items() if path not in folders}


@settings(max_examples=60, deadline=None)
@given(trees)
def test_the_tree_id_is_the_one_git_writes(tree: dict[bytes, tuple[tuple[EntryKind, int], bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        git(folder, "init", "-q", ".")
        entries = {}
        for path, ((kind, mode), content) in without_clashes(tree).items():
            place = Path(folder, os.fsdecode(path))
            place.parent.mkdir(parents=True, exist_ok=True)
            if kind is EntryKind.SYMLINK:
                place.symlink_to(os.fsdecode(content))
            else:
                place.write_bytes(content)
                place.chmod(mode)
            entries[os.fsdecode(path)] = Entry(kind, mode, len(content), blob_id(content))
        git(folder, "add", "-A", "-f")
        assert tree_id(entries) == git(folder, "write-tree")


def test_no_entries_are_the_empty_tree_and_empty_folders_do_not_count() -> None:
    assert tree_id({}) == EMPTY_TREE == folder_id([])
    assert tree_id({"a/b": Entry(EntryKind.FOLDER, 0o755, 0, "")}) == EMPTY_TREE


def test_a_folder_is_sorted_as_if_its_name_ended_in_a_slash(tmp_path: Path) -> None:
    entries = {}
    for name in ("a/x", "a.b", "a-b", "a0", "a"[:0] + "ab/y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(name)
        entries[name] = Entry(EntryKind.FILE, 0o644, len(name), blob_id(name.encode()))
    git(str(tmp_path), "init", "-q", ".")
    git(str(tmp_path), "add", "-A")
    assert tree_id(entries) == git(str(tmp_path), "write-tree")


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 3_000_000])
def test_a_file_is_hashed_in_pieces_as_if_in_one(tmp_path: Path, size: int) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"x" * size)
    with place.open("rb") as file:
        assert file_id(file.fileno(), size) == (blob_id(b"x" * size), size)
    assert blob_id(b"x" * size) == git(str(tmp_path), "hash-object", "--no-filters", "file")


def test_a_file_that_has_grown_or_shrunk_is_told_by_its_count(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"12345")
    for promised, there in ((4, 5), (5, 5), (6, 5)):
        with place.open("rb") as file:
            assert file_id(file.fileno(), promised)[1] == there
