"""Decides which paths of the working tree are left out. The user's globs come first, then git, or pathspec without git.

Git is asked about many paths at once. A decision is cached until something it depends on changes: a .gitignore file,
the exclude files outside the tree, or whether an ignored file is tracked. Nested repositories and submodules decide for
their own paths.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from watchtest.sources.git import Git, GitError
from watchtest.sources.git_ignore import GitIgnoreRules, folders_above
from watchtest.sources.globs import PathspecRules, UserGlobs
from watchtest.sources.secret_files import may_hold_secrets
from watchtest.sources.tree_id import blob_id

ALWAYS_IGNORED = frozenset({".git", ".watchtest"})
CACHE_LIMIT = 500_000
"""Temporary files with ever-changing names must not fill the memory of a watcher that runs for weeks."""


class IgnoreDecision(Enum):
    IN = "in"
    OUT = "out"
    PASSAGE = "passage"
    """A folder that is left out itself, though something below it may be in."""
    SECRET = "secret"
    """A file left out because its name suggests secrets. Unlike other ignored files, it is reported."""


class IgnoreRules(Protocol):
    """Decides for one repository, or for a tree without one. Paths are relative to it; a folder ends in a slash."""

    def is_stale(self) -> bool: ...
    def set_ignore_file(self, folder: str, content: bytes | None) -> None: ...
    def ignored(self, paths: Iterable[str]) -> set[str]: ...
    def has_tracked_files(self, folder: str) -> bool: ...
    def is_tracked(self, path: str) -> bool: ...


class PathFilter:
    """Caches the decisions made so far. `decision` and `is_left_out` only look them up; other methods may run git."""

    def __init__(self, root: Path, ignore: Sequence[str], include: Sequence[str], environ: Mapping[str, str]) -> None:
        self._root = root
        self._user_globs = UserGlobs(ignore, include)
        self._environ = environ
        self._decisions: dict[str, IgnoreDecision] = {}
        self._ignore_files: dict[str, str] = {}
        self._is_top_level: bool | None = None
        self.git: Git | None = None
        self.notes: tuple[str, ...] = ()
        self._rules: dict[str, IgnoreRules] = {"": self._top_rules()}

    def refresh(self) -> bool:
        """Forget all decisions, and return True, if something outside the tree has changed."""
        if any(self._is_stale(prefix, rules) for prefix, rules in list(self._rules.items())):
            self.forget()
            return True
        return False

    def forget(self, folder: str = "") -> None:
        """Forget all decisions about paths below this folder."""
        if not folder:
            self._decisions.clear()
            return
        for path in [path for path in self._decisions if path.startswith(folder) and path != folder]:
            del self._decisions[path]

    def enter(self, folder: str, ignore_file: bytes | None, is_repository: bool) -> bool:
        """Take in a folder's .gitignore and whether it is the top of a repository. Returns True if either changed."""
        if folder and is_repository != (folder in self._rules):
            has_changed = self._update_owner(folder, is_repository)
        else:
            has_changed = not folder and self._enter_top(is_repository)
        digest = None if ignore_file is None else blob_id(ignore_file)
        if self._ignore_files.get(folder) != digest:
            has_changed = True
            self._ignore_files.pop(folder, None)
            if digest is not None:
                self._ignore_files[folder] = digest
            prefix = self._owner(folder)
            self._rules[prefix].set_ignore_file(folder[len(prefix) :], ignore_file)
        if has_changed:
            self.forget(folder)
        return has_changed

    def learn(self, paths: Iterable[str]) -> None:
        """Decide about these paths and every folder on the way to them, so that `is_left_out` knows them."""
        undecided = set[str]()
        for path in paths:
            if not ALWAYS_IGNORED.isdisjoint(path.split("/")):
                continue
            undecided.update(folders_above(path))
            try:
                mode = (self._root / path).lstat().st_mode
            except OSError:
                continue  # gone: only an earlier decision counts
            undecided.add(f"{path}/" if stat.S_ISDIR(mode) else path)
        self.decide(undecided)

    def is_left_out(self, path: str) -> bool:
        """Tell whether a file or folder, which may be gone, is left out; False if there is no decision yet."""
        if not ALWAYS_IGNORED.isdisjoint(path.split("/")):
            return True
        if any(self._decisions.get(folder) is IgnoreDecision.OUT for folder in folders_above(path)):
            return True
        known = {self._decisions.get(path), self._decisions.get(f"{path}/")} - {None}
        return known == {IgnoreDecision.OUT}

    def decide(self, paths: Iterable[str]) -> None:
        """Decide about all of these paths that are still undecided, with one call of git per repository."""
        if len(self._decisions) > CACHE_LIMIT:
            self.forget()
        undecided: dict[str, list[str]] = {}
        for path in paths:
            if path not in self._decisions:
                if self._user_globs.includes(path):
                    self._decisions[path] = IgnoreDecision.IN
                else:
                    undecided.setdefault(self._owner(path), []).append(path)
        for prefix, owned in undecided.items():
            self._decide_in(prefix, owned)

    def decision(self, path: str) -> IgnoreDecision | None:
        """Return the decision about a path, or None if there is none yet."""
        return self._decisions.get(path)

    def is_included(self, path: str) -> bool:
        """Tell whether `watch.include` names this path, which then is in whatever git says."""
        return self._user_globs.includes(path)

    def _decide_in(self, prefix: str, paths: list[str]) -> None:
        rules = self._rules[prefix]
        try:
            ignored = rules.ignored(path[len(prefix) :] for path in paths)
        except GitError as error:
            if prefix:
                ignored = set()  # a broken nested repository: better too much in the box than too little
            else:
                rules = self._continue_without_git(error)
                ignored = rules.ignored(paths)
        for path in paths:
            inner = path[len(prefix) :]
            is_out_for_user = self._user_globs.ignores(path)
            if inner not in ignored and not is_out_for_user:
                is_secret = not path.endswith("/") and may_hold_secrets(path) and not rules.is_tracked(inner)
                self._decisions[path] = IgnoreDecision.SECRET if is_secret else IgnoreDecision.IN
            elif path.endswith("/") and (
                self._user_globs.may_include_below(path) or (rules.has_tracked_files(inner) and not is_out_for_user)
            ):
                self._decisions[path] = IgnoreDecision.PASSAGE
            else:
                self._decisions[path] = IgnoreDecision.OUT

    def _owner(self, path: str) -> str:
        """Return the innermost repository around a path; the top folder of one belongs to the repository around it."""
        if len(self._rules) == 1:
            return ""
        end = len(path.rstrip("/"))
        while (end := path.rfind("/", 0, end)) >= 0:
            if path[: end + 1] in self._rules:
                return path[: end + 1]
        return ""

    def _enter_top(self, is_top_level: bool) -> bool:
        before, self._is_top_level = self._is_top_level, is_top_level
        if before is None or before == is_top_level:
            return False
        # A repository was created by `git init`, or removed.
        self.notes = ()
        self.git = None
        self._rules = {"": self._top_rules()}
        self._ignore_files.clear()
        return True

    def _update_owner(self, folder: str, is_repository: bool) -> bool:
        if not is_repository:
            del self._rules[folder]
            return True
        if self.git is None:
            return False
        try:
            self._rules[folder] = GitIgnoreRules(Git(self._root / folder, self._environ))
        except GitError:
            return False  # git does not accept it as a repository; the one around it keeps deciding
        return True

    def _is_stale(self, prefix: str, rules: IgnoreRules) -> bool:
        try:
            return rules.is_stale()
        except GitError as error:
            if prefix:
                del self._rules[prefix]
            else:
                self._continue_without_git(error)
            return True

    def _top_rules(self) -> IgnoreRules:
        git = Git(self._root, self._environ)
        try:
            rules = GitIgnoreRules(git)
        except GitError as error:
            self._note_failure(error)
            return PathspecRules()
        self.git = git
        return rules

    def _continue_without_git(self, error: GitError) -> IgnoreRules:
        """Switch to pathspec when git stops working, and add a note."""
        self.git = None
        self._note_failure(error)
        self._rules = {"": PathspecRules()}
        self._ignore_files.clear()
        self.forget()
        return self._rules[""]

    def _note_failure(self, error: GitError) -> None:
        if "not a git repository (or any" not in error.message:
            note = f"{error.message}; ignored paths are determined without git."
            self.notes = (f"{note} {error.hint}" if error.hint else note,)
