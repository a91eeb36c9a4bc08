"""What git says of ignored paths in one repository. Asks; remembers only what tells when earlier answers are stale."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from watchtest.sources.entry import Signature, signature_of
from watchtest.sources.git import GITLINK, Git, GitError
from watchtest.sources.secret_files import GIT_PATTERNS

IGNORE_FILE = ".gitignore"


class GitRules:
    """Git's own word. Raises GitError when it will not give it."""

    def __init__(self, git: Git) -> None:
        self._git = git
        said = git.ask("rev-parse", "--show-prefix", "--git-path", "index", "--git-path", "info/exclude")
        prefix, index, exclude = os.fsdecode(said).split("\n")[:3]
        if prefix and self._check(["."]):
            raise GitError(f"{git.folder}: the repository around it ignores this folder")
        self._index = git.folder / index
        self._outside = [git.folder / exclude, *self._user_excludes(), *self._ignore_files_above(prefix)]
        self._signatures = self._look()
        self._tracked = frozenset[str]()
        self._tracked_folders = frozenset[str]()
        self._is_tracked_known = False
        self._learn_tracked()

    def is_stale(self) -> bool:
        """Whether earlier answers may be wrong now."""
        before, self._signatures = self._signatures, self._look()
        if before == self._signatures:
            return False
        # The index changes with every `git status`; only files like these that became tracked, or ceased to be, matter.
        tracked = self._tracked
        self._learn_tracked()
        return tracked != self._tracked or before[1:] != self._signatures[1:]

    def read(self, folder: str, content: bytes | None) -> None:
        """Git reads them itself, but a tracked file may be among the ignored ones now."""
        self._is_tracked_known = False

    def ignored(self, paths: Iterable[str]) -> set[str]:
        if not self._is_tracked_known:
            self._learn_tracked()
        asked = list(paths)
        out = self._check([path.rstrip("/") for path in asked])
        return {path for path in asked if path.rstrip("/") in out and path not in self._tracked}

    def holds_tracked(self, folder: str) -> bool:
        """An ignored folder with a tracked file in it."""
        return folder in self._tracked_folders

    def is_tracked(self, path: str) -> bool:
        """Of a file that is ignored, or that may hold secrets by its name."""
        return path in self._tracked

    def _check(self, paths: list[str]) -> set[str]:
        if not paths:
            return set()
        # "./" keeps a name that starts with a colon from being read as pathspec magic.
        stdin = b"".join(b"./%s\0" % os.fsencode(path) for path in paths)
        try:
            # With the index it would take a file for tracked when there once was a folder of that name.
            said = self._git.ask("check-ignore", "--no-index", "-z", "--stdin", stdin=stdin, answers=(0, 1))
        except GitError:
            return self._check_halves(paths)
        return {os.fsdecode(path).removeprefix("./") for path in said.split(b"\0") if path}

    def _check_halves(self, paths: list[str]) -> set[str]:
        """One path that git will not judge (behind a new link, in a broken submodule) must not silence the others."""
        if len(paths) == 1:
            self._git.ask("rev-parse", "--git-dir")  # raises when the trouble is git's, not the path's
            return set()
        middle = len(paths) // 2
        return self._check(paths[:middle]) | self._check(paths[middle:])

    def _learn_tracked(self) -> None:
        """What is tracked and yet matches an ignore pattern, or one of secrets: files, and submodules as folders."""
        asked = ("--cached", "--ignored", "--exclude-standard", *(f"--exclude={pattern}" for pattern in GIT_PATTERNS))
        said = os.fsdecode(self._git.ask("ls-files", "-z", "--stage", *asked))
        facts_and_paths = [line.partition("\t") for line in said.split("\0") if line]
        tracked = {f"{path}/" if facts.startswith(GITLINK) else path for facts, _, path in facts_and_paths}
        self._tracked = frozenset(tracked)
        self._tracked_folders = frozenset(folder for path in tracked for folder in folders_above(path.rstrip("/")))
        self._is_tracked_known = True

    def _user_excludes(self) -> list[Path]:
        said = self._git.ask("config", "--type=path", "--get", "core.excludesFile", answers=(0, 1))
        if path := os.fsdecode(said).removesuffix("\n"):
            return [self._git.folder / path]
        environ = self._git.environ
        home = environ.get("XDG_CONFIG_HOME") or (f"{environ['HOME']}/.config" if environ.get("HOME") else "")
        return [Path(home) / "git" / "ignore"] if home else []

    def _ignore_files_above(self, prefix: str) -> list[Path]:
        return [self._git.folder / ("../" * up) / IGNORE_FILE for up in range(1, prefix.count("/") + 1)]

    def _look(self) -> tuple[Signature | None, ...]:
        return tuple(_signature(path) for path in (self._index, *self._outside))


def folders_above(path: str) -> list[str]:
    """Each folder on the way to a path, outermost first, with the slash at its end."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[: count + 1]) + "/" for count in range(len(parts))]


def _signature(path: Path) -> Signature | None:
    try:
        return signature_of(path.stat())
    except OSError:
        return None
