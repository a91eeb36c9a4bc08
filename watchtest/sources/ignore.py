"""Which paths of the working tree are left out. In a repository git decides, elsewhere pathspec; own globs go first.

Git is asked about each path once, many paths at a time; an answer stands until something it hangs on has changed: a
.gitignore file, the excludes outside the tree, or an ignored file that became tracked. Nested repositories and
submodules answer for themselves.
"""

from __future__ import annotations

import stat
from collections.abc import Iterable, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Protocol

from watchtest.sources.git import Git, GitError
from watchtest.sources.git_ignore import GitRules, folders_above
from watchtest.sources.globs import OwnGlobs, PlainRules
from watchtest.sources.secret_files import may_hold_secrets
from watchtest.sources.tree_id import blob_id

ALWAYS_OUT = frozenset({".git", ".watchtest"})
MOST_ANSWERS = 500_000
"""Temporary files with ever new names must not fill the memory of a watcher that runs for weeks."""


class Answer(Enum):
    IN = "in"
    OUT = "out"
    PASSAGE = "passage"
    """A folder that is left out itself, but something below it may be in."""
    SECRET = "secret"
    """A file that is left out because its name says that it may hold secrets; unlike others, that is said."""


class Rules(Protocol):
    """Who decides for one repository, or for a tree without one. Paths are relative to it; a folder ends in a slash."""

    def is_stale(self) -> bool: ...
    def read(self, folder: str, content: bytes | None) -> None: ...
    def ignored(self, paths: Iterable[str]) -> set[str]: ...
    def holds_tracked(self, folder: str) -> bool: ...
    def is_tracked(self, path: str) -> bool: ...


class Ignore:
    """The answers so far, and whom to ask for more. `answer` only looks up; everything else may ask git."""

    def __init__(self, root: Path, ignore: Sequence[str], include: Sequence[str], environ: Mapping[str, str]) -> None:
        self._root = root
        self._own = OwnGlobs(ignore, include)
        self._environ = environ
        self._answers: dict[str, Answer] = {}
        self._ignore_files: dict[str, str] = {}
        self._is_top_level: bool | None = None
        self.git: Git | None = None
        self.notes: tuple[str, ...] = ()
        self._rules: dict[str, Rules] = {"": self._top_rules()}

    def refresh(self) -> bool:
        """Forgets the answers if something outside the tree has changed; True says so."""
        if any(self._is_stale(prefix, rules) for prefix, rules in list(self._rules.items())):
            self.forget()
            return True
        return False

    def forget(self, folder: str = "") -> None:
        """All answers about what is below this folder."""
        if not folder:
            self._answers.clear()
            return
        for path in [path for path in self._answers if path.startswith(folder) and path != folder]:
            del self._answers[path]

    def enter(self, folder: str, ignore_file: bytes | None, is_repository: bool) -> bool:
        """A folder was listed: its .gitignore, and whether a repository of its own begins in it. True: that is news."""
        if folder and is_repository != (folder in self._rules):
            is_news = self._change_owner(folder, is_repository)
        else:
            is_news = not folder and self._enter_top(is_repository)
        digest = None if ignore_file is None else blob_id(ignore_file)
        if self._ignore_files.get(folder) != digest:
            is_news = True
            self._ignore_files.pop(folder, None)
            if digest is not None:
                self._ignore_files[folder] = digest
            prefix = self._owner(folder)
            self._rules[prefix].read(folder[len(prefix) :], ignore_file)
        if is_news:
            self.forget(folder)
        return is_news

    def learn(self, paths: Iterable[str]) -> None:
        """Decides about these and every folder on the way to them, so that `is_left_out` knows them."""
        asked = set[str]()
        for path in paths:
            if not ALWAYS_OUT.isdisjoint(path.split("/")):
                continue
            asked.update(folders_above(path))
            try:
                mode = (self._root / path).lstat().st_mode
            except OSError:
                continue  # gone: only what was known of it counts
            asked.add(f"{path}/" if stat.S_ISDIR(mode) else path)
        self.decide(asked)

    def is_left_out(self, path: str) -> bool:
        """By what is known so far; when in doubt it is in. `path` may be a file or a folder, or gone."""
        if not ALWAYS_OUT.isdisjoint(path.split("/")):
            return True
        if any(self._answers.get(folder) is Answer.OUT for folder in folders_above(path)):
            return True
        known = {self._answers.get(path), self._answers.get(f"{path}/")} - {None}
        return known == {Answer.OUT}

    def decide(self, paths: Iterable[str]) -> None:
        """Gets the answers about all of these that have none yet; one question to git for all of them."""
        if len(self._answers) > MOST_ANSWERS:
            self.forget()
        questions: dict[str, list[str]] = {}
        for path in paths:
            if path not in self._answers:
                if self._own.says_in(path):
                    self._answers[path] = Answer.IN
                else:
                    questions.setdefault(self._owner(path), []).append(path)
        for prefix, asked in questions.items():
            self._ask(prefix, asked)

    def answer(self, path: str) -> Answer | None:
        """What was decided; None: nobody has asked yet."""
        return self._answers.get(path)

    def brings_back(self, path: str) -> bool:
        """In by the user's own word, whatever git says."""
        return self._own.says_in(path)

    def _ask(self, prefix: str, paths: list[str]) -> None:
        rules = self._rules[prefix]
        try:
            ignored = rules.ignored(path[len(prefix) :] for path in paths)
        except GitError as error:
            if prefix:
                ignored = set()  # a broken repository inside: rather too much in the box than too little
            else:
                rules = self._without_git(error)
                ignored = rules.ignored(paths)
        for path in paths:
            inner = path[len(prefix) :]
            is_out_by_own = self._own.says_out(path)
            if inner not in ignored and not is_out_by_own:
                is_secret = not path.endswith("/") and may_hold_secrets(path) and not rules.is_tracked(inner)
                self._answers[path] = Answer.SECRET if is_secret else Answer.IN
            elif path.endswith("/") and (
                self._own.may_lead_in(path) or (rules.holds_tracked(inner) and not is_out_by_own)
            ):
                self._answers[path] = Answer.PASSAGE
            else:
                self._answers[path] = Answer.OUT

    def _owner(self, path: str) -> str:
        """The innermost repository around the path; a repository's own folder belongs to the one around it."""
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
        # `git init`, or the repository was taken away.
        self.notes = ()
        self.git = None
        self._rules = {"": self._top_rules()}
        self._ignore_files.clear()
        return True

    def _change_owner(self, folder: str, is_repository: bool) -> bool:
        if not is_repository:
            del self._rules[folder]
            return True
        if self.git is None:
            return False
        try:
            self._rules[folder] = GitRules(Git(self._root / folder, self._environ))
        except GitError:
            return False  # no repository that git knows; the one around it goes on deciding
        return True

    def _is_stale(self, prefix: str, rules: Rules) -> bool:
        try:
            return rules.is_stale()
        except GitError as error:
            if prefix:
                del self._rules[prefix]
            else:
                self._without_git(error)
            return True

    def _top_rules(self) -> Rules:
        git = Git(self._root, self._environ)
        try:
            rules = GitRules(git)
        except GitError as error:
            self._say_why(error)
            return PlainRules()
        self.git = git
        return rules

    def _without_git(self, error: GitError) -> Rules:
        """Git answered before and does not any more: go on without it, and say so."""
        self.git = None
        self._say_why(error)
        self._rules = {"": PlainRules()}
        self._ignore_files.clear()
        self.forget()
        return self._rules[""]

    def _say_why(self, error: GitError) -> None:
        if "not a git repository (or any" not in error.message:
            why = f"{error.message}; what to leave out is decided without git"
            self.notes = (f"{why}. {error.hint}" if error.hint else f"{why}.",)
