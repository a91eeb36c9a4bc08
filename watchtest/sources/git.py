"""Runs git; the only module that does. Changes nothing in the user's repository.

A watcher may look at a repository that it does not trust. So git is asked, never obeyed:
- Only commands that print what is stored are used. They run no filter, textconv, merge driver or editor. The few that
  write (`write-tree`, `fast-import`, `pack-objects`) do so in a repository of our own.
- What such a command may start (hook, file system monitor, pager) is switched off on its command line.
- No protocol is allowed, so that nothing is fetched: missing objects of a partial clone stay missing. Therefore no
  transport, ssh command, proxy, helper for credentials or upload-pack of the repository is started either.
- Variables of the caller do not count, except for those that name the user's own settings: a git hook sets others.
- git has no terminal, so it can ask nobody; and no program of the workspace can take its place through PATH.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from watchtest.core.text import names
from watchtest.errors import WatchtestError
from watchtest.sources.entry import read_file

TIMEOUT_S = 60.0
SHA1_LENGTH = 40
OBJECT_ID = re.compile("[0-9a-f]{40}(?:[0-9a-f]{24})?")
BRANCHES = "refs/heads/"
GITLINK = "160000"
"""The mode of a submodule in a git tree."""
QUESTIONS = frozenset(
    {
        "--version",
        "cat-file",
        "check-ignore",
        "config",
        "fast-import",
        "for-each-ref",
        "ls-files",
        "ls-tree",
        "pack-objects",
        "rev-list",
        "rev-parse",
        "symbolic-ref",
        "write-tree",
    }
)
"""The commands that are used."""
SWITCHED_OFF = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
KEPT_VARIABLES = frozenset(
    {
        *("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"),
        *("GIT_CEILING_DIRECTORIES", "GIT_DISCOVERY_ACROSS_FILESYSTEM"),
    }
)
FIXED_VARIABLES = {
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_TERMINAL_PROMPT": "0",
    "LC_ALL": "C",
}


def safe_environ(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the environment for git: without variables that redirect it, or that let the workspace replace it."""
    kept = {name: text for name, text in environ.items() if not name.startswith("GIT_") or name in KEPT_VARIABLES}
    # A relative folder like `node_modules/.bin` would be looked up in the workspace.
    folders = [folder for folder in environ.get("PATH", os.defpath).split(os.pathsep) if Path(folder).is_absolute()]
    return {**kept, **FIXED_VARIABLES, "PATH": os.pathsep.join(folders)}


class GitError(WatchtestError):
    """Git is not installed, reported an error or took too long."""

    code = "git"


class GitTimeout(GitError):
    """Git took too long."""


class UnmergedIndex(GitError):
    """Paths of the index are in conflict, so there is no tree to test until the user resolves them."""

    is_transient = True
    retries_forever = True

    def __init__(self, paths: tuple[str, ...]) -> None:
        super().__init__(
            f"the index has unmerged paths: {names(paths)}", hint="Resolve the conflicts and `git add` them."
        )


class MissingContent(GitError):
    """Files of the tree are not in the repository, as in a partial clone. They are never fetched, so the user must."""

    is_transient = True
    retries_forever = True


@dataclass(frozen=True, slots=True)
class Head:
    """What HEAD points to. An unborn branch has no commit; a detached HEAD has no branch."""

    commit: str | None
    branch: str | None


@dataclass(frozen=True, slots=True)
class Git:
    """Runs git in one folder."""

    folder: Path
    environ: Mapping[str, str]
    _folders: list[Path] = field(default_factory=list, compare=False)
    """Those of `directory` and `common`, once they are known."""

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        ok_codes: Sequence[int] = (0,),
        variables: Mapping[str, str] | None = None,
        is_setting: bool = False,
    ) -> bytes:
        """Return git's stdout. Raises GitError for any exit code that is not in `ok_codes`.

        `variables` are added to the environment of this call. With `is_setting`, git sees the user's own settings of
        hooks and monitors: the call only reads them.
        """
        try:
            done = subprocess.run(
                _command(*arguments, is_setting=is_setting),
                cwd=self.folder,
                env={**safe_environ(self.environ), **(variables or {})},
                input=stdin,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
                start_new_session=True,
            )
        except FileNotFoundError as error:
            if not self.folder.is_dir():
                raise GitError(f"{self.folder}: the folder is gone") from error
            raise GitError(f"{self.folder}: git cannot be started: {error.strerror}", hint="Install git.") from error
        except OSError as error:
            raise GitError(f"{self.folder}: git cannot be started: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise GitTimeout(
                f"{self.folder}: git {arguments[0]} did not answer within {TIMEOUT_S:.0f} s",
                hint="Is the folder on a slow or lost network mount, or is one of git's files a pipe?",
            ) from error
        if done.returncode not in ok_codes:
            raise self._error(arguments[0], done.returncode, done.stderr.decode("utf-8", "replace").strip())
        return done.stdout

    def start(self, *arguments: str, variables: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a git that answers until its stdin is closed."""
        try:
            return subprocess.Popen(
                _command(*arguments),
                cwd=self.folder,
                env={**safe_environ(self.environ), **variables},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        except OSError as error:
            raise GitError(f"{self.folder}: git cannot be started: {error.strerror or error}") from error

    def _error(self, command: str, exit_code: int, stderr: str) -> GitError:
        first_line = stderr.partition("\n")[0] or f"exit code {exit_code}"
        if "dubious ownership" in stderr:
            hint = f"If you trust it: git config --global --add safe.directory '{self.folder}'"
            return GitError(f"{self.folder}: the repository belongs to another user, so git refuses it", hint=hint)
        return GitError(f"{self.folder}: git {command}: {first_line}")

    def directory(self) -> Path:
        """Return the folder that holds this worktree's index and HEAD."""
        return self._path("--git-dir")

    def common(self) -> Path:
        """Return the folder that all worktrees of the repository share."""
        return self._path("--git-common-dir")

    def setting(self, name: str, *options: str) -> str:
        """Return a value of git's configuration, or "" if it is not set."""
        output = self.run("config", *options, "--get", name, ok_codes=(0, 1), is_setting=True)
        return os.fsdecode(output).removesuffix("\n")

    def hooks(self) -> Path:
        """Return the folder of this repository's hooks, which `core.hooksPath` may have moved."""
        chosen = self.setting("core.hooksPath", "--type=path")
        return self.folder / chosen if chosen else self.common() / "hooks"

    def tracked(self, path: str) -> tuple[str, ...]:
        """Return the files that git tracks at or below a path, in any case of its letters; nothing outside of git."""
        listing = self.run("ls-files", "-z", "--", f":(icase){path}", ok_codes=(0, 128))
        return tuple(os.fsdecode(listing).split("\0")[:-1])

    def unmerged(self, index: Path) -> tuple[str, ...]:
        """Return the paths that a merge, a rebase or `stash pop` left in conflict in this index."""
        listing = self.run("ls-files", "-z", "--unmerged", variables={"GIT_INDEX_FILE": str(index)})
        return tuple(dict.fromkeys(row.partition("\t")[2] for row in os.fsdecode(listing).split("\0") if row))

    def objects(self) -> Path:
        return self._path("--git-path", "objects")

    def prefix(self) -> str:
        """Return the path of the folder within the repository: "" at its top, else with a trailing slash."""
        return os.fsdecode(self.run("rev-parse", "--show-prefix")).rstrip("\n")

    def _path(self, *question: str) -> Path:
        return self.folder / os.fsdecode(self.run("rev-parse", *question)).rstrip("\n")

    def head(self) -> Head:
        """Return the current commit and branch."""
        head = self._head_from_files()
        if head is not None:
            return head
        reference = self.run("symbolic-ref", "-q", "HEAD", ok_codes=(0, 1, 128)).decode("utf-8", "replace").strip()
        return Head(self._resolve("HEAD") or None, reference.removeprefix(BRANCHES) or None)

    def folders(self) -> tuple[Path, Path]:
        """Return `directory` and `common`; git is asked only once."""
        if not self._folders:
            self._folders[:] = (self.directory(), self.common())
        directory, common = self._folders
        return directory, common

    def _head_from_files(self) -> Head | None:
        """Read HEAD without starting a process: this runs at every save. None if only git can tell."""
        try:
            directory, common = self.folders()
            head = os.fsdecode(read_file(f"{directory}/HEAD")).strip()
            if OBJECT_ID.fullmatch(head):
                return Head(head, None)
            reference = head.removeprefix("ref: ")
            commit = _commit_of(common, reference) if reference.startswith(BRANCHES) else ""
        except OSError:
            return None
        return Head(commit, reference.removeprefix(BRANCHES)) if OBJECT_ID.fullmatch(commit) else None

    def commit(self, revision: str) -> str | None:
        """Return the commit that a revision names, or None."""
        return self._resolve(f"{revision}^{{commit}}") or None

    def tree_of(self, commit: str) -> str | None:
        """Return the tree of this folder in a commit, or None if the commit does not contain the folder."""
        return self._resolve(f"{commit}:./") or None

    def _resolve(self, revision: str) -> str:
        output = self.run("rev-parse", "--verify", "-q", revision, ok_codes=(0, 1, 128))
        return output.decode("ascii", "replace").strip()


def _command(*arguments: str, is_setting: bool = False) -> list[str]:
    assert arguments[0] in QUESTIONS, arguments
    return ["git", "--no-pager", *(() if is_setting else SWITCHED_OFF), *arguments]


def _commit_of(common: Path, reference: str) -> str:
    """Return what a reference that exists as a file, or packed with others, contains."""
    try:
        return os.fsdecode(read_file(f"{common}/{reference}")).strip()
    except FileNotFoundError:
        lines = os.fsdecode(read_file(f"{common}/packed-refs")).splitlines()
        return next((line.split(" ")[0] for line in lines if line.endswith(f" {reference}")), "")
