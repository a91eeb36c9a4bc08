"""The trees that the lanes ought to test, computed by plain git and by reading folders."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import stat
import subprocess
from collections.abc import Mapping
from pathlib import Path

from support.git_repo import Repo

LEFT_OUT = frozenset({".watchtest", "__pycache__", ".pytest_cache", ".git"})
EMPTY_FOLDER = "folder"

Entries = dict[str, tuple[str, str]]
"""Path to git's mode, and git's id of the content or of the target of a link."""

# The same as `entries_of`, for a folder in a container.
READ_FOLDER = r"""
import hashlib, json, os, stat, sys
LEFT_OUT = set(sys.argv[2:])
def entries_of(folder):
    found = {}
    def look(path, prefix):
        names = [name for name in os.listdir(path) if name not in LEFT_OUT]
        for name in names:
            at, key = path + "/" + name, prefix + name
            status = os.lstat(at)
            if stat.S_ISDIR(status.st_mode):
                if not look(at, key + "/"):
                    found[key] = ("folder", "")
                continue
            if stat.S_ISLNK(status.st_mode):
                mode, content = "120000", os.fsencode(os.readlink(at))
            else:
                mode = "100755" if status.st_mode & 0o100 else "100644"
                with open(at, "rb") as stream:
                    content = stream.read()
            found[key] = (mode, hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
        return names
    look(folder, "")
    return found
json.dump(entries_of(sys.argv[1]), sys.stdout)
"""


def entries_of(folder: Path) -> Entries:
    """Return what is in a folder, except what runs leave behind."""
    found: Entries = {}

    def look(folder: Path, prefix: str) -> bool:
        children = [child for child in folder.iterdir() if child.name not in LEFT_OUT]
        for child in children:
            status, key = child.lstat(), f"{prefix}{child.name}"
            if stat.S_ISDIR(status.st_mode):
                if not look(child, f"{key}/"):
                    found[key] = (EMPTY_FOLDER, "")
                continue
            if stat.S_ISLNK(status.st_mode):
                mode, content = "120000", os.fsencode(child.readlink())
            else:
                mode, content = "100755" if status.st_mode & 0o100 else "100644", child.read_bytes()
            found[key] = (mode, hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest())
        return bool(children)

    look(folder, "")
    return found


def parse_entries(text: str) -> Entries:
    return {path: (mode, digest) for path, (mode, digest) in json.loads(text).items()}


class Trees:
    """The trees of one repository. Nothing is written into it: new objects and indexes go to a folder of our own."""

    def __init__(self, repo: Repo, around: Path) -> None:
        self._repo = repo
        self._index = around / "oracle.index"
        self._objects = around / "oracle.objects"
        self._objects.mkdir(parents=True)
        self._entries: dict[str, Entries] = {}

    def _git(self, *arguments: str, stdin: bytes = b"", **environ: str) -> bytes:
        git_folder = self._repo.root / ".git"
        done = subprocess.run(
            ["git", *arguments],
            cwd=self._repo.root,
            env={
                "PATH": os.environ["PATH"],
                "GIT_CONFIG_GLOBAL": os.devnull,
                "GIT_CONFIG_SYSTEM": os.devnull,
                "GIT_OPTIONAL_LOCKS": "0",
                "GIT_OBJECT_DIRECTORY": str(self._objects),
                "GIT_ALTERNATE_OBJECT_DIRECTORIES": str(git_folder / "objects"),
                **environ,
            },
            input=stdin,
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0, (arguments, done.stderr)
        return done.stdout

    def working_tree(self) -> str:
        """Return the tree of all files that are not ignored, hashed from their content: no cached stat is trusted."""
        listed = self._git("ls-files", "-z", "--cached", "--others", "--exclude-standard").split(b"\0")
        paths = sorted({path for path in listed if path and self._is_file(path)})
        self._index.unlink(missing_ok=True)
        environ = {"GIT_INDEX_FILE": str(self._index)}
        self._git("update-index", "--add", "-z", "--stdin", stdin=b"".join(path + b"\0" for path in paths), **environ)
        return self._git("write-tree", **environ).decode().strip()

    def _is_file(self, path: bytes) -> bool:
        """Whether it is a file or a link that is really there, not seen through a link above it."""
        if path.startswith(b".watchtest/"):
            return False
        root = os.fsencode(self._repo.root)
        parts = path.split(b"/")
        above = [b"/".join([root, *parts[:end]]) for end in range(1, len(parts))]
        try:
            mode = os.lstat(root + b"/" + path).st_mode
        except OSError:
            return False
        is_behind_a_link = any(Path(os.fsdecode(folder)).is_symlink() for folder in above)
        return (stat.S_ISREG(mode) or stat.S_ISLNK(mode)) and not is_behind_a_link

    def index(self) -> str | None:
        """Return the tree of the index; None while it has conflicts."""
        if self._git("ls-files", "--unmerged"):
            return None
        shutil.copyfile(self._repo.root / ".git" / "index", self._index)
        return self._git("write-tree", GIT_INDEX_FILE=str(self._index)).decode().strip()

    def head(self) -> str:
        return self._git("rev-parse", "HEAD^{tree}").decode().strip()

    def entries(self, tree: str) -> Entries:
        """Return the files and links of a tree."""
        if tree not in self._entries:
            rows = self._git("ls-tree", "-r", "-z", tree).decode("utf-8", "surrogateescape").split("\0")
            found = {}
            for row in filter(None, rows):
                facts, _, path = row.partition("\t")
                mode, _, digest = facts.split()
                found[path] = (mode, digest)
            self._entries[tree] = found
        return self._entries[tree]

    def export(self, tree: str, to: Path) -> None:
        """Write a tree into an empty folder."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir()
        environ = {"GIT_INDEX_FILE": str(self._index)}
        self._index.unlink(missing_ok=True)
        self._git("read-tree", tree, **environ)
        self._git("checkout-index", "--all", f"--prefix={to}/", **environ)

    def empty_folders(self) -> frozenset[str]:
        """Return the folders of the working tree that are empty and not ignored."""
        root = os.fsencode(self._repo.root)
        empty = [
            os.path.relpath(path, root)
            for path, folders, files in os.walk(root)
            if not folders and not files and b".git" not in path[len(root) :].split(b"/")
        ]
        if not empty:
            return frozenset()
        # A pattern such as `build/` matches folders only, so the slash matters.
        asked = b"".join(path + b"/\0" for path in empty)
        done = subprocess.run(
            ["git", "check-ignore", "--no-index", "-z", "--stdin"],
            cwd=self._repo.root,
            input=asked,
            capture_output=True,
            timeout=30,
            check=False,
        )
        ignored = set(done.stdout.split(b"\0"))
        return frozenset(os.fsdecode(path) for path in empty if path + b"/" not in ignored)


def differences(expected: Mapping[str, object], found: Mapping[str, object]) -> list[str]:
    """Return one line per path that differs."""
    paths = sorted(path for path in expected.keys() | found.keys() if expected.get(path) != found.get(path))
    return [f"{path!r}: {expected.get(path)} expected, {found.get(path)} found" for path in paths]
