"""Snapshots of real folders: what they contain, what is left out and why, and the effect of changes between two
reads."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.tree_ids import tree_id

from watchtest.core.events import EVERYTHING
from watchtest.core.model import Entry, EntryKind
from watchtest.errors import SourceMoved, WorkspaceError
from watchtest.sources.entry import RACY_NS, examine
from watchtest.sources.tree_id import EMPTY_TREE, blob_id
from watchtest.sources.worktree import Worktree

IS_ROOT = hasattr(os, "geteuid") and os.geteuid() == 0


@pytest.fixture
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    home = tmp_path_factory.mktemp("home")
    who = {f"GIT_{role}_{what}": "x@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **who}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.fixture
def worktree(root: Path, environ: Mapping[str, str]) -> Worktree:
    return Worktree(root, ignore=(), include=(), environ=environ)


def git(folder: Path, environ: Mapping[str, str], *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=dict(environ), check=True, capture_output=True, text=True, timeout=60
    ).stdout.strip()


@contextmanager
def unprivileged(*places: Path) -> Iterator[None]:
    """Act as a user without special permissions, even if the tests run as root."""
    if not IS_ROOT:
        yield
        return
    for place in places:
        os.chown(place, 65534, 65534)
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_files_modes_links_and_empty_folders_are_entries(root: Path, worktree: Worktree) -> None:
    (root / "sub").mkdir()
    (root / "sub" / "program").write_bytes(b"#!/bin/sh\n")
    (root / "sub" / "program").chmod(0o750)
    (root / "empty" / "deeper").mkdir(parents=True)
    (root / "link").symlink_to("nowhere/ü")
    (root / "to-folder").symlink_to("sub", target_is_directory=True)
    (root / "out").symlink_to("/")
    (root / "nothing").write_bytes(b"")
    (root / "nothing").chmod(0o600)
    snapshot = worktree.snapshot()
    assert snapshot.entries == {
        "sub/program": Entry(EntryKind.FILE, 0o750, 10, blob_id(b"#!/bin/sh\n")),
        "empty/deeper": Entry(EntryKind.FOLDER, 0o755, 0, ""),
        "link": Entry(EntryKind.SYMLINK, 0o777, 10, blob_id("nowhere/ü".encode())),
        "to-folder": Entry(EntryKind.SYMLINK, 0o777, 3, blob_id(b"sub")),
        "out": Entry(EntryKind.SYMLINK, 0o777, 1, blob_id(b"/")),
        "nothing": Entry(EntryKind.FILE, 0o600, 0, blob_id(b"")),
    }
    assert snapshot.id == tree_id(snapshot.entries)
    assert snapshot.excluded == ()
    assert (snapshot.head, snapshot.branch, snapshot.dirty) == (None, None, None)


def test_an_empty_workspace_is_the_empty_tree(worktree: Worktree) -> None:
    assert worktree.snapshot().id == EMPTY_TREE
    assert worktree.snapshot().entries == {}


def test_many_edits_of_one_size_one_after_the_other_are_all_seen(root: Path, worktree: Worktree) -> None:
    file = root / "file"
    for number in range(300):
        content = b"%04d" % number
        with file.open("r+b" if number else "wb") as opened:
            opened.write(content)
        assert worktree.snapshot().entries["file"].digest == blob_id(content)


def test_what_was_read_just_after_a_change_is_read_again_though_it_looks_the_same(
    root: Path, worktree: Worktree
) -> None:
    """A test cannot stop the clock of the file system, so it puts a wrong value into the cache that only a read can
    find."""
    file = root / "file"
    file.write_bytes(b"true")
    worktree.snapshot()
    for is_racy in (True, False):
        wait_until_settled(worktree)
        assert worktree._top is not None
        seen = worktree._top.files["file"]
        assert not seen.is_racy
        lie = Entry(EntryKind.FILE, 0o644, 4, blob_id(b"lied"))
        worktree._top.files["file"] = seen._replace(entry=lie, is_racy=is_racy)
        worktree._top.invalidate()
        worktree._top.is_racy = is_racy
        assert worktree.snapshot(frozenset()).entries["file"].digest == blob_id(b"true" if is_racy else b"lied")
    assert worktree.snapshot(frozenset({EVERYTHING})).entries["file"].digest == blob_id(b"lied")
    file.touch()
    assert worktree.snapshot().entries["file"].digest == blob_id(b"true")


def test_a_file_is_young_for_a_while_after_its_change(root: Path) -> None:
    file = root / "file"
    file.write_bytes(b"x")
    seen = examine(str(file), file.lstat(), 10)
    assert seen is not None
    assert seen.is_racy
    deadline = time.monotonic() + 10
    while seen is not None and seen.is_racy and time.monotonic() < deadline:
        seen = examine(str(file), file.lstat(), 10)
    assert seen is not None
    assert not seen.is_racy
    assert time.time_ns() - file.stat().st_ctime_ns >= RACY_NS


def test_an_edit_that_hides_behind_a_restored_modification_time_is_seen(root: Path, worktree: Worktree) -> None:
    file = root / "file"
    file.write_bytes(b"old")
    os.utime(file, ns=(1, 1))
    worktree.snapshot()
    file.write_bytes(b"new")
    os.utime(file, ns=(1, 1))
    assert worktree.snapshot().entries["file"].digest == blob_id(b"new")


def test_a_file_replaced_by_a_folder_and_back_and_by_a_link(root: Path, worktree: Worktree) -> None:
    place = root / "it"
    place.write_bytes(b"1")
    assert set(worktree.snapshot().entries) == {"it"}
    place.unlink()
    place.mkdir()
    (place / "inner").write_bytes(b"2")
    assert set(worktree.snapshot(frozenset({"it"})).entries) == {"it/inner"}
    (place / "inner").unlink()
    place.rmdir()
    place.symlink_to("inner")
    assert worktree.snapshot(frozenset({"it"})).entries["it"].kind is EntryKind.SYMLINK
    place.unlink()
    place.write_bytes(b"1")
    assert worktree.snapshot(frozenset({"it"})).entries["it"].digest == blob_id(b"1")


def test_a_folder_created_again_in_the_same_place_is_read_again(root: Path, worktree: Worktree) -> None:
    for number in range(20):  # inode numbers are soon reused
        (root / "a" / "b").mkdir(parents=True)
        (root / "a" / "b" / f"file{number}").write_bytes(b"x")
        assert set(worktree.snapshot(frozenset({"a"})).entries) == {f"a/b/file{number}"}
        (root / "a" / "b" / f"file{number}").unlink()
        (root / "a" / "b").rmdir()
        (root / "a").rmdir()


def test_with_a_hint_only_the_named_paths_are_looked_at(root: Path, worktree: Worktree) -> None:
    for name in ("a/x", "b/x"):
        (root / name).parent.mkdir()
        (root / name).write_bytes(b"old")
        os.utime(root / name, ns=(1, 1))
    wait_until_settled(worktree)
    for name in ("a/x", "b/x"):
        (root / name).write_bytes(b"new!")
    hinted = worktree.snapshot(frozenset({"a/x"}))
    assert (hinted.entries["a/x"].size, hinted.entries["b/x"].size) == (4, 3)
    assert hinted.id == tree_id(hinted.entries)
    assert worktree.snapshot(frozenset({"a/x", EVERYTHING})).entries["b/x"].size == 4


def wait_until_settled(worktree: Worktree) -> None:
    """Wait until no file is so new that it would be read again anyway."""
    top = worktree._top
    for _ in range(200):
        if top is not None and not any(folder.is_racy for folder in top.all()):
            return
        threading.Event().wait(0.01)
        worktree.snapshot()
        top = worktree._top
    raise AssertionError("a file is young for ever")


def test_names_that_are_not_utf_8_survive(root: Path, worktree: Worktree) -> None:
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9")).write_bytes(b"x")
    Path(os.fsdecode(os.fsencode(root) + b"/f\xff")).mkdir()
    Path(os.fsdecode(os.fsencode(root) + b"/f\xff/\xc3(")).write_bytes(b"y")
    entries = worktree.snapshot().entries
    assert {os.fsencode(path) for path in entries} == {b"caf\xe9", b"f\xff/\xc3("}
    assert worktree.read("caf\udce9", entries["caf\udce9"]) == b"x"


def test_what_cannot_be_in_is_named_with_a_reason(root: Path, environ: Mapping[str, str]) -> None:
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        old = Path.cwd()
        os.chdir(root)  # a socket's path must be short
        try:
            server.bind("socket")
        finally:
            os.chdir(old)
        (root / "big").write_bytes(b"123456")
        (root / "fits").write_bytes(b"12345")
        snapshot = Worktree(root, ignore=(), include=(), max_file_bytes=5, environ=environ).snapshot()
    assert {item.path: item.reason for item in snapshot.excluded} == {
        "big": "larger than 5 bytes (6 bytes)",
        "pipe": "is a named pipe",
        "socket": "is a socket",
    }
    assert set(snapshot.entries) == {"fits"}


def test_unreadable_files_and_folders_are_left_out_until_they_can_be_read(
    tmp_path_factory: pytest.TempPathFactory, environ: Mapping[str, str]
) -> None:
    base = tmp_path_factory.getbasetemp()
    root = tmp_path_factory.mktemp("open")
    closed_folder, closed_file = root / "folder", root / "file"
    closed_folder.mkdir()
    (closed_folder / "inner").write_bytes(b"x")
    closed_file.write_bytes(b"y")
    # Up to the system's temporary folder: xdist adds one folder per worker in between.
    own = [place for place in (base, *base.parents) if place.stat().st_uid == os.getuid() and len(place.parts) > 2]
    opened = [(place, place.stat().st_mode) for place in own]
    try:
        for place, _ in opened:
            place.chmod(0o755)
        with unprivileged(root, closed_folder, closed_file):
            root.chmod(0o755)
            closed_folder.chmod(0)
            closed_file.chmod(0)
            worktree = Worktree(root, ignore=(), include=(), environ=environ)
            snapshot = worktree.snapshot()
            assert snapshot.entries == {}
            assert [(item.path, item.reason) for item in snapshot.excluded] == [
                ("file", "cannot be read (Permission denied)"),
                ("folder", "cannot be read (Permission denied)"),
            ]
            assert worktree.folders() == ("",)
            closed_folder.chmod(0o755)
            closed_file.chmod(0o644)
            again = worktree.snapshot(frozenset())
            assert set(again.entries) == {"file", "folder/inner"}
            assert again.excluded == ()
            root.chmod(0)
            with pytest.raises(WorkspaceError, match="cannot be read"):
                worktree.snapshot()
            root.chmod(0o755)
            assert set(worktree.snapshot().entries) == {"file", "folder/inner"}
    finally:
        for place, mode in opened:
            place.chmod(mode)


def test_a_workspace_that_is_gone_or_no_folder_is_said_so(root: Path, worktree: Worktree) -> None:
    (root / "file").write_bytes(b"")
    with pytest.raises(WorkspaceError, match="not a folder"):
        Worktree(root / "file", ignore=(), include=())
    with pytest.raises(WorkspaceError, match="gone"):
        Worktree(root / "missing", ignore=(), include=())
    worktree.snapshot()
    root.rename(root.with_name("moved"))
    with pytest.raises(WorkspaceError, match="gone"):
        worktree.snapshot()
    root.mkdir()
    (root / "other").write_bytes(b"")
    assert set(worktree.snapshot(frozenset()).entries) == {"other"}


def test_reading_gives_the_content_of_the_snapshot_or_nothing(root: Path, worktree: Worktree) -> None:
    (root / "file").write_bytes(b"one")
    (root / "link").symlink_to("file")
    entries = worktree.snapshot().entries
    assert worktree.read("file", entries["file"]) == b"one"
    assert worktree.read("link", entries["link"]) == b"file"
    (root / "file").write_bytes(b"two")
    (root / "link").unlink()
    (root / "link").symlink_to("elsewhere")
    for path in ("file", "link"):
        with pytest.raises(SourceMoved, match=path):
            worktree.read(path, entries[path])
    (root / "file").unlink()
    with pytest.raises(SourceMoved, match="file"):
        worktree.read("file", entries["file"])
    (root / "other").write_bytes(b"one")
    (root / "file").symlink_to("other")  # the same content, but behind a link
    with pytest.raises(SourceMoved, match="file"):
        worktree.read("file", entries["file"])


def test_a_snapshot_never_holds_a_file_that_never_was(root: Path, worktree: Worktree) -> None:
    """A writer repeatedly overwrites a file in place, piece by piece, with one letter and then with another."""
    page, pages = 4096, 600
    size = page * pages
    # The kernel writes page by page, so these are all the states that can exist.
    true = {
        blob_id(new * page * done + old * page * (pages - done))
        for old, new in ((b"a", b"b"), (b"b", b"a"))
        for done in range(pages)
    }
    place = root / "file"
    place.write_bytes(b"a" * size)
    is_over = threading.Event()

    def write() -> None:
        with place.open("r+b", buffering=0) as file:
            while not is_over.wait(0.01):
                for letter in (b"b", b"a"):
                    file.seek(0)
                    file.write(letter * size)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        found = [worktree.snapshot() for _ in range(150)]
    finally:
        is_over.set()
        writer.join(timeout=30)
    digests = [entry.digest for snapshot in found if (entry := snapshot.entries.get("file"))]
    assert digests, "it is not always in the middle of a change"
    assert set(digests) <= true
    for snapshot in found:
        assert [(item.path, item.reason) for item in snapshot.excluded] in (
            [],
            [("file", "keeps changing while it is read")],
        )
        assert len(snapshot.entries) + len(snapshot.excluded) == 1
    assert "file" in worktree.snapshot().entries


def test_a_file_on_the_move_is_never_missed(root: Path, worktree: Worktree) -> None:
    """A file is renamed from folder to folder while snapshots are taken: each snapshot must contain it somewhere."""
    for number in range(40):
        (root / f"f{number:02}").mkdir()
        (root / f"f{number:02}" / "other").write_bytes(b"x")
    place = root / "f00" / "it"
    place.write_bytes(b"it")
    is_over = threading.Event()

    def move() -> None:
        here, number = place, 0
        while not is_over.wait(0.003):
            number = (number + 23) % 40
            here = here.rename(root / f"f{number:02}" / "it")

    mover = threading.Thread(target=move)
    mover.start()
    try:
        found = [sum(path.endswith("/it") for path in worktree.snapshot().entries) for _ in range(60)]
    finally:
        is_over.set()
        mover.join(timeout=30)
    # If moves are faster than a clock tick, a listing may rarely be off by one; the next event corrects it.
    assert found.count(1) >= 57


def test_folders_that_come_and_go_while_it_looks_harm_nothing(root: Path, worktree: Worktree) -> None:
    (root / "stays").write_bytes(b"x")
    is_over = threading.Event()

    def churn() -> None:
        while not is_over.is_set():
            (root / "a" / "b").mkdir(parents=True)
            (root / "a" / "b" / "c").write_bytes(b"y")
            (root / "a" / "b" / "c").unlink()
            (root / "a" / "b").rmdir()
            (root / "a").rmdir()

    churner = threading.Thread(target=churn)
    churner.start()
    try:
        for _ in range(100):
            snapshot = worktree.snapshot()
            assert "stays" in snapshot.entries
            assert snapshot.id == tree_id(snapshot.entries)
    finally:
        is_over.set()
        churner.join(timeout=30)
    assert set(worktree.snapshot().entries) == {"stays"}


def test_head_branch_and_dirty_follow_git(root: Path, environ: Mapping[str, str]) -> None:
    git(root, environ, "init", "-q", "-b", "trunk", ".")
    worktree = Worktree(root, ignore=(), include=["*.log"], environ=environ)
    (root / "a").write_bytes(b"1")
    (root / ".gitignore").write_bytes(b"*.log\n")
    snapshot = worktree.snapshot()
    assert (snapshot.head, snapshot.branch, snapshot.dirty) == (None, "trunk", None)
    git(root, environ, "add", "-A")
    git(root, environ, "commit", "-qm", "x")
    snapshot = worktree.snapshot()
    assert (snapshot.head, snapshot.branch, snapshot.dirty) == (git(root, environ, "rev-parse", "HEAD"), "trunk", False)
    assert snapshot.id == git(root, environ, "rev-parse", "HEAD^{tree}")
    (root / "a.log").write_bytes(b"brought in by include")
    assert worktree.snapshot().dirty is False
    (root / "new").write_bytes(b"")
    assert worktree.snapshot().dirty is True
    (root / "new").unlink()
    (root / "a").chmod(0o755)
    assert worktree.snapshot().dirty is True
    (root / "a").unlink()
    assert worktree.snapshot().dirty is True
    git(root, environ, "checkout", "-q", "--detach")
    git(root, environ, "checkout", "-q", "--", "a")
    snapshot = worktree.snapshot()
    assert (snapshot.branch, snapshot.dirty) == (None, False)
    git(root, environ, "checkout", "-q", "-b", "feature/é")
    assert worktree.snapshot().branch == "feature/é"


def test_a_workspace_below_the_top_level_is_compared_with_its_own_part_of_head(
    root: Path, environ: Mapping[str, str]
) -> None:
    git(root, environ, "init", "-q", ".")
    (root / "part").mkdir()
    (root / "part" / "a").write_bytes(b"1")
    (root / "b").write_bytes(b"2")
    git(root, environ, "add", "-A")
    git(root, environ, "commit", "-qm", "x")
    (root / "b").write_bytes(b"changed outside")
    snapshot = Worktree(root / "part", ignore=(), include=(), environ=environ).snapshot()
    assert snapshot.dirty is False
    assert snapshot.id == git(root, environ, "rev-parse", "HEAD:part")
    (root / "new").mkdir()
    (root / "new" / "x").write_bytes(b"")
    assert Worktree(root / "new", ignore=(), include=(), environ=environ).snapshot().dirty is True


def test_a_linked_worktree_whose_git_is_a_file_is_a_repository_too(root: Path, environ: Mapping[str, str]) -> None:
    git(root, environ, "init", "-q", ".")
    (root / ".gitignore").write_bytes(b"*.log\n")
    git(root, environ, "add", "-A")
    git(root, environ, "commit", "-qm", "x")
    linked = root.parent / "linked"
    git(root, environ, "worktree", "add", "-q", "-b", "other", str(linked))
    (linked / "a.log").write_bytes(b"")
    snapshot = Worktree(linked, ignore=(), include=(), environ=environ).snapshot()
    assert set(snapshot.entries) == {".gitignore"}
    assert (snapshot.branch, snapshot.dirty) == ("other", False)


def test_very_deep_folders_do_not_exhaust_the_stack(root: Path, worktree: Worktree) -> None:
    deep = [f"{root}{'/d' * depth}" for depth in range(1, 1501)]
    for place in deep:
        os.mkdir(place)  # noqa: PTH102  pathlib is slow with so many parts
    Path(deep[-1], "file").write_bytes(b"x")
    try:
        snapshot = worktree.snapshot()
        assert set(snapshot.entries) == {"d/" * 1500 + "file"}
        assert snapshot.id == tree_id(snapshot.entries)
    finally:
        Path(deep[-1], "file").unlink()
        for place in reversed(deep):  # temporary folders are removed recursively after the tests
            os.rmdir(place)  # noqa: PTH106
