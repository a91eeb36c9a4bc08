"""Reads trees and blobs through an empty repository of our own, so no setting of the user's repository applies."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from watchtest.sources.git import BRANCHES, TIMEOUT_S, Git, GitError, UnmergedIndex
from watchtest.sources.scratch_folder import make_scratch_folder


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line of `git ls-tree -r -z`."""

    path: str
    mode: str
    object: str
    size: int
    """-1 without `-l`, and for an object that is not in the repository."""


def tree_rows(listing: bytes) -> Iterator[TreeRow]:
    for line in os.fsdecode(listing).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _kind, name, *size = facts.split()
            yield TreeRow(path, mode, name, int(size[0]) if size and size[0].isdecimal() else -1)


class ObjectStore:
    """Reads the objects of a repository through an empty one of our own, in a scratch folder, which shares them.

    Nothing that git writes, like a new tree, ends up in the user's repository, and no setting of it has any effect.
    """

    def __init__(self, in_folder: Git) -> None:
        self._git = in_folder
        self._folder = make_scratch_folder()
        self._cleanup = weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        self.packs = self._folder / "objects" / "pack"
        """The folder of the packs that were written through this store."""
        self._blobs: subprocess.Popen[bytes] | None = None

    def run(self, *arguments: str, stdin: bytes = b"") -> bytes:
        return self._git.run(*arguments, stdin=stdin, variables=self._variables())

    def import_commits(self, stream: bytes) -> dict[int, str]:
        """Write what this input of `git fast-import` describes and return the id of each mark.

        References of an earlier import are gone.
        """
        marks = self._folder / "marks"
        shutil.rmtree(self._folder / "refs", ignore_errors=True)
        (self._folder / "refs").mkdir(parents=True)
        self.run("fast-import", "--quiet", f"--export-marks={marks}", stdin=stream)
        rows = (line.split(" ") for line in marks.read_text("ascii").splitlines())
        return {int(mark.removeprefix(":")): name for mark, name in rows}

    def write_tree(self, index: Path, prefix: str) -> str:
        """Return the tree of a folder in this index, as `git write-tree` does. Changes neither index nor repository."""
        variables = self._variables()
        copy = self._folder / "index"
        copy.unlink(missing_ok=True)
        try:
            if index.exists():  # nothing was ever staged: to git, a missing index is an empty one
                shutil.copyfile(index, copy)
            for shared in self._git.directory().glob("sharedindex.*"):  # the larger part of a split index
                if not (self._folder / shared.name).exists():
                    shutil.copyfile(shared, self._folder / shared.name)
        except OSError as error:
            raise GitError(f"{index}: the index cannot be read: {error.strerror or error}") from error
        options = [f"--prefix={prefix}"] if prefix else []
        try:
            # Whether its objects are there is found out when they are needed.
            return self._git.run("write-tree", "--missing-ok", *options, variables=variables).decode("ascii").strip()
        except GitError:
            if unmerged := self._git.unmerged(copy):
                raise UnmergedIndex(unmerged) from None
            raise

    def read(self, name: str) -> bytes:
        """Return the content of a blob. One git process answers all calls."""
        if self._blobs is None:
            self._blobs = self._git.start("cat-file", "--batch", variables=self._variables())
        limit = threading.Timer(TIMEOUT_S, self._blobs.kill)
        limit.start()
        try:
            return self._ask(self._blobs, name)
        finally:
            limit.cancel()

    def _ask(self, blobs: subprocess.Popen[bytes], name: str) -> bytes:
        assert blobs.stdin is not None
        assert blobs.stdout is not None
        try:
            blobs.stdin.write(name.encode("ascii") + b"\n")
            blobs.stdin.flush()
            answer = blobs.stdout.readline().split()
            if len(answer) == 3 and answer[1] == b"blob":
                size = int(answer[2])
                content = blobs.stdout.read(size + 1)
                if len(content) == size + 1:
                    return content[:-1]
        except OSError:
            pass  # git has ended, or was stopped because it took too long
        self._end()
        raise GitError(
            f"{self._git.folder}: the object {name} cannot be read", hint="Run `git fsck` to find out what is wrong."
        )

    def _variables(self) -> dict[str, str]:
        """Create our repository at the first use. Return what makes git use it."""
        if not (self._folder / "HEAD").exists():
            form = self._git.run("rev-parse", "--show-object-format").decode("ascii", "replace").strip()
            (self._folder / "refs").mkdir(exist_ok=True)
            (self._folder / "objects" / "info").mkdir(parents=True, exist_ok=True)
            objects = os.fsencode(self._git.objects().absolute())
            (self._folder / "objects" / "info" / "alternates").write_bytes(objects + b"\n")
            version = f"[core]\nrepositoryformatversion = 1\nbare = false\n[extensions]\nobjectFormat = {form}\n"
            version += "[fastimport]\nunpackLimit = 0\n"
            (self._folder / "config").write_text(version)
            (self._folder / "HEAD").write_text(f"ref: {BRANCHES}main\n")
        return {"GIT_DIR": str(self._folder), "GIT_INDEX_FILE": str(self._folder / "index")}

    def _end(self) -> None:
        blobs, self._blobs = self._blobs, None
        if blobs is not None:
            with blobs:
                blobs.kill()

    def close(self) -> None:
        self._end()
        self._cleanup()
