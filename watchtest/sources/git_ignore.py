"""Asks git which paths of a repository it ignores, and notices when earlier answers have become stale."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from watchtest.sources.entry import Signature, signature_of
from watchtest.sources.git import GITLINK, Git, GitError, GitTimeout
from watchtest.sources.secret_files import GIT_PATTERNS

IGNORE_FILE = ".gitignore"


class GitIgnoreRules:
    """The ignore rules of one repository, as git evaluates them. Any method may raise GitError."""

    def __init__(self, git: Git) -> None:
        self._git = git
        output = git.run("rev-parse", "--show-prefix", "--git-path", "index", "--git-path", "info/exclude")
        prefix, index, exclude = os.fsdecode(output).split("\n")[:3]
        if prefix and self._check(["."]):
            raise GitError(f"{git.folder}: the surrounding repository ignores this folder")
        self._index = git.folder / index
        self._outside = [git.folder / exclude, *self._user_excludes(), *self._ignore_files_above(prefix)]
        self._signatures = self._read_signatures()
        self._tracked = frozenset[str]()
        self._tracked_folders = frozenset[str]()
        self._is_tracked_loaded = False
        self._load_tracked()

    def is_stale(self) -> bool:
        """Tell whether earlier answers may be wrong by now."""
        before, self._signatures = self._signatures, self._read_signatures()
        if before == self._signatures:
            return False
        # `git status` rewrites the index every time; it only matters which ignored or secret files are tracked.
        tracked = self._tracked
        self._load_tracked()
        return tracked != self._tracked or before[1:] != self._signatures[1:]

    def set_ignore_file(self, folder: str, content: bytes | None) -> None:
        """Note that a .gitignore changed: git reads it itself, but tracked files may match its patterns now."""
        self._is_tracked_loaded = False

    def ignored(self, paths: Iterable[str]) -> set[str]:
        if not self._is_tracked_loaded:
            self._load_tracked()
        candidates = list(paths)
        ignored = self._check([path.rstrip("/") for path in candidates])
        return {path for path in candidates if path.rstrip("/") in ignored and path not in self._tracked}

    def has_tracked_files(self, folder: str) -> bool:
        """Tell whether an ignored folder contains a tracked file."""
        return folder in self._tracked_folders

    def is_tracked(self, path: str) -> bool:
        """Tell whether git tracks a file. Only valid for files that are ignored or may hold secrets."""
        return path in self._tracked

    def _check(self, paths: list[str]) -> set[str]:
        if not paths:
            return set()
        # "./" keeps a name that starts with a colon from being read as pathspec magic.
        stdin = b"".join(b"./%s\0" % os.fsencode(path) for path in paths)
        try:
            # With the index, git takes a file for tracked if a folder of the same name was.
            output = self._git.run("check-ignore", "--no-index", "-z", "--stdin", stdin=stdin, ok_codes=(0, 1))
        except GitTimeout:
            raise
        except GitError:
            return self._check_halves(paths)
        return {os.fsdecode(path).removeprefix("./") for path in output.split(b"\0") if path}

    def _check_halves(self, paths: list[str]) -> set[str]:
        """Isolate the path that git rejects (behind a new link, in a broken submodule) from the others."""
        if len(paths) == 1:
            self._git.run("rev-parse", "--git-dir")  # raises if git fails for any path
            return set()
        middle = len(paths) // 2
        return self._check(paths[:middle]) | self._check(paths[middle:])

    def _load_tracked(self) -> None:
        """Load the tracked paths that match an ignore pattern or a secret's name; submodules count as folders."""
        options = ("--cached", "--ignored", "--exclude-standard", *(f"--exclude={pattern}" for pattern in GIT_PATTERNS))
        output = os.fsdecode(self._git.run("ls-files", "-z", "--stage", *options))
        facts_and_paths = [line.partition("\t") for line in output.split("\0") if line]
        tracked = {f"{path}/" if facts.startswith(GITLINK) else path for facts, _, path in facts_and_paths}
        self._tracked = frozenset(tracked)
        self._tracked_folders = frozenset(folder for path in tracked for folder in folders_above(path.rstrip("/")))
        self._is_tracked_loaded = True

    def _user_excludes(self) -> list[Path]:
        if path := self._git.setting("core.excludesFile", "--type=path"):
            return [self._git.folder / path]
        environ = self._git.environ
        home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
        return [Path(home) / "git" / "ignore"] if home else []

    def _ignore_files_above(self, prefix: str) -> list[Path]:
        return [self._git.folder / ("../" * up) / IGNORE_FILE for up in range(1, prefix.count("/") + 1)]

    def _read_signatures(self) -> tuple[Signature | None, ...]:
        return tuple(_signature(path) for path in (self._index, *self._outside))


def folders_above(path: str) -> list[str]:
    """Return each folder on the way to a path, outermost first, with a trailing slash."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) + "/" for count in range(len(parts))]


def _signature(path: Path) -> Signature | None:
    try:
        return signature_of(path.stat())
    except OSError:
        return None
