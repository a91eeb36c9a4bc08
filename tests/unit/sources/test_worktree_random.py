"""Snapshots after each of many random operations, compared with a naive walk and git's own write-tree."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from watchtest.core.model import Entry, EntryKind
from watchtest.sources.worktree import Worktree

OPERATIONS = 200
SECRETS = [".env", "k.PEM"]
NAMES = ["a", "b", "c.py", "d.log", "e e", "ü", "\udcff", "*", "build", ".hidden", "-n", "g\nh", *SECRETS]
SURE = ["-c", "core.autocrlf=false", "-c", "core.precomposeUnicode=false", "-c", "advice.addEmbeddedRepo=false"]


@pytest.fixture
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    home = tmp_path_factory.mktemp("home")
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


class Scratch:
    """Asks git, with a separate index and object folder."""

    def __init__(self, root: Path, aside: Path, environ: Mapping[str, str]) -> None:
        self.root, self.aside = root, aside
        aside.mkdir()
        self.plain = dict(environ)
        self.environ = {**environ, "GIT_INDEX_FILE": str(aside / "index"), "GIT_OBJECT_DIRECTORY": str(aside)}
        self.environ["GIT_ALTERNATE_OBJECT_DIRECTORIES"] = str(root / ".git" / "objects")

    def git(self, *arguments: str, environ: Mapping[str, str] | None = None) -> bytes:
        command = ["git", *SURE, *arguments]
        environ = self.environ if environ is None else environ
        return subprocess.run(
            command, cwd=self.root, env=dict(environ), check=True, capture_output=True, timeout=60
        ).stdout

    def tree(self) -> tuple[str, set[str]]:
        index = self.root / ".git" / "index"
        (self.aside / "index").unlink(missing_ok=True)
        if index.exists():  # tracked files stay included although they are ignored
            shutil.copy2(index, self.aside / "index")  # with its time, by which git recognises racy files
        self.git("add", "-A")
        for path in self.untracked_secrets():
            environ = {**self.environ, "GIT_LITERAL_PATHSPECS": "1"}
            self.git("rm", "-q", "--cached", "-f", "--", path, environ=environ)
        listed = {os.fsdecode(path) for path in self.git("ls-files", "-z").split(b"\0") if path}
        return self.git("write-tree").decode().strip(), listed

    def untracked_secrets(self) -> set[str]:
        found = []
        for environ in (self.environ, self.plain):
            listed = self.git("ls-files", "-z", environ=environ).split(b"\0")
            found.append({name for path in listed if Path(name := os.fsdecode(path)).name in SECRETS})
        return found[0] - found[1]


def naive(root: Path, kept: set[str]) -> dict[str, Entry]:
    """Read the entries of these paths in the simplest way."""
    entries = {}
    for path in kept:
        status = (root / path).lstat()
        if stat.S_ISLNK(status.st_mode):
            content, kind, mode = os.fsencode(os.readlink(root / path)), EntryKind.SYMLINK, 0o777  # noqa: PTH115
        else:
            content, kind, mode = (root / path).read_bytes(), EntryKind.FILE, status.st_mode & 0o777
        digest = hashlib.sha1(b"blob %d\0%s" % (len(content), content)).hexdigest()
        entries[path] = Entry(kind, mode, len(content), digest)
    return entries


class Hand:
    """Makes one random change to the workspace at a time and names the paths it touched, as a watcher would."""

    def __init__(self, root: Path, seed: int, scratch: Scratch) -> None:
        self.root, self.random, self.scratch = root, random.Random(seed), scratch

    def act(self) -> set[str]:
        return self.random.choice(
            [
                *(self.write, self.write, self.write, self.same_size, self.same_size, self.append, self.mkdir),
                *(self.remove, self.rename, self.rename, self.chmod, self.link, self.ignore, self.swap, self.track),
            ]
        )()

    def places(self) -> list[str]:
        found = []
        for folder, folders, files in os.walk(self.root):
            if ".git" in folders:
                folders.remove(".git")
            found += [os.path.relpath(f"{folder}/{name}", self.root) for name in folders + files]
        return sorted(found)

    def somewhere(self) -> str:
        folders = ["", *(place for place in self.places() if self.is_folder(place))]
        folder = self.random.choice(folders)
        return f"{folder}/{self.random.choice(NAMES)}".lstrip("/") if folder.count("/") < 4 else "a"

    def is_folder(self, place: str) -> bool:
        return (self.root / place).is_dir() and not (self.root / place).is_symlink()

    def a_file(self) -> str | None:
        files = [place for place in self.places() if (self.root / place).is_file() and not self.is_link(place)]
        return self.random.choice(files) if files else None

    def is_link(self, place: str) -> bool:
        return (self.root / place).is_symlink()

    def content(self) -> bytes:
        return self.random.randbytes(self.random.choice([0, 1, 4, 4, 5000]))

    def clear(self, place: str) -> None:
        if self.is_folder(place):
            shutil.rmtree(self.root / place)
        else:
            (self.root / place).unlink(missing_ok=True)

    def write(self) -> set[str]:
        place = self.somewhere()
        if self.is_folder(place) or self.is_link(place):
            return set()
        (self.root / place).write_bytes(self.content())
        return {place}

    def same_size(self) -> set[str]:
        place = self.a_file()
        if place is None or place.endswith(".gitignore"):
            return set()
        with (self.root / place).open("r+b") as file:
            file.write(self.random.randbytes((self.root / place).stat().st_size))
        return {place}

    def append(self) -> set[str]:
        place = self.a_file()
        if place is None:
            return set()
        with (self.root / place).open("ab") as file:
            file.write(b"\n")
        return {place}

    def mkdir(self) -> set[str]:
        place = self.somewhere()
        if (self.root / place).exists() or self.is_link(place):
            return set()
        (self.root / place).mkdir()
        return {place}

    def remove(self) -> set[str]:
        places = self.places()
        if len(places) < 10:
            return set()
        place = self.random.choice(places)
        self.clear(place)
        return {place}

    def rename(self) -> set[str]:
        places = self.places()
        if not places:
            return set()
        place, target = self.random.choice(places), self.somewhere()
        if f"{target}/".startswith(f"{place}/") or f"{place}/".startswith(f"{target}/"):
            return set()
        self.clear(target)
        (self.root / place).rename(self.root / target)
        return {place, target}

    def chmod(self) -> set[str]:
        place = self.a_file()
        if place is None:
            return set()
        (self.root / place).chmod(self.random.choice([0o644, 0o755, 0o600, 0o700]))
        return {place}

    def link(self) -> set[str]:
        place = self.somewhere()
        if (self.root / place).exists() or self.is_link(place):
            return set()
        (self.root / place).symlink_to(self.random.choice(["a", "..", "nowhere", "/", "\udcff"]))
        return {place}

    def ignore(self) -> set[str]:
        place = f"{Path(self.somewhere()).parent}/.gitignore".removeprefix("./")
        if self.is_folder(place):
            return set()
        lines = self.random.sample(["*.log", "build/", "build", "!d.log", "/a", "!build", "*.py", "ü", "b/*"], 2)
        (self.root / place).write_text("\n".join(lines) + "\n")
        return {place}

    def swap(self) -> set[str]:
        """Turn a file into a folder, or a folder into a file."""
        places = self.places()
        if not places:
            return set()
        place = self.random.choice(places)
        was_folder = self.is_folder(place)
        self.clear(place)
        if was_folder:
            (self.root / place).write_bytes(self.content())
        else:
            (self.root / place).mkdir()
            (self.root / place / "inner").write_bytes(self.content())
        return {place}

    def track(self) -> set[str]:
        """Add to or remove from the user's index, by force; no file changes."""
        place = self.a_file()
        if place is not None:
            forced = self.random.choice([["add", "-f"], ["rm", "-q", "-r", "--cached", "-f", "--ignore-unmatch"]])
            environ = {**self.scratch.plain, "GIT_LITERAL_PATHSPECS": "1"}
            self.scratch.git(*forced, "--", place, environ=environ)
        return set()


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.thorough
def test_after_every_operation_both_kinds_of_snapshot_equal_what_git_would_commit(
    tmp_path: Path, environ: Mapping[str, str], seed: int
) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    scratch = Scratch(root, tmp_path / "objects", environ)
    scratch.git("init", "-q", ".", environ=environ)
    hand = Hand(root, seed, scratch)
    whole, hinted = (Worktree(root, ignore=(), include=(), environ=environ) for _ in range(2))
    hinted.snapshot()
    for number in range(OPERATIONS):
        touched = frozenset(hand.act())
        tree, kept = scratch.tree()
        expected = naive(root, kept)
        for worktree, hint in ((whole, None), (hinted, touched)):
            snapshot = worktree.snapshot(hint)
            found = {path: entry for path, entry in snapshot.entries.items() if entry.kind is not EntryKind.FOLDER}
            assert found == expected, f"operation {number}, {touched}"
            assert snapshot.id == tree, f"operation {number}, {touched}"
        assert whole.snapshot() == hinted.snapshot(frozenset()), f"operation {number}, {touched}"
    assert expected, "the operations left something to compare"
