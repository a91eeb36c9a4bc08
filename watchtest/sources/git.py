"""Starts git and reads its answer; the only module that does. Changes nothing in the user's repository.

A watcher may look at repositories it does not trust: no hook, no file system monitor, no pager runs from here, and what
the environment says about some other repository (as inside a git hook) is not passed on.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.errors import WatchtestError

if TYPE_CHECKING:
    import git

TIMEOUT_S = 60.0
SHA1_LENGTH = 40
BRANCHES = "refs/heads/"
GITLINK = "160000"
"""The mode under which git keeps a submodule."""
SAFE = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
OF_ANOTHER_REPOSITORY = frozenset(
    {
        "GIT_ALTERNATE_OBJECT_DIRECTORIES",
        "GIT_CONFIG",
        "GIT_CONFIG_PARAMETERS",
        "GIT_CONFIG_COUNT",
        "GIT_OBJECT_DIRECTORY",
        "GIT_DIR",
        "GIT_WORK_TREE",
        "GIT_IMPLICIT_WORK_TREE",
        "GIT_GRAFT_FILE",
        "GIT_INDEX_FILE",
        "GIT_NO_REPLACE_OBJECTS",
        "GIT_REPLACE_REF_BASE",
        "GIT_PREFIX",
        "GIT_SHALLOW_FILE",
        "GIT_COMMON_DIR",
        "GIT_INTERNAL_SUPER_PREFIX",
        "GIT_NAMESPACE",
        "GIT_LITERAL_PATHSPECS",
        "GIT_GLOB_PATHSPECS",
        "GIT_NOGLOB_PATHSPECS",
        "GIT_ICASE_PATHSPECS",
    }
)


class GitError(WatchtestError):
    """Git is not there, refuses, or took too long."""

    code = "git"


@dataclass(frozen=True, slots=True)
class Head:
    """Where HEAD stands. Unborn: a branch without a commit; detached: a commit without a branch."""

    commit: str | None
    branch: str | None


@dataclass(frozen=True, slots=True)
class Git:
    """Git, asked in one folder."""

    folder: Path
    environ: Mapping[str, str]

    def ask(
        self,
        *arguments: str,
        stdin: bytes = b"",
        answers: Sequence[int] = (0,),
        more: Mapping[str, str] | None = None,
        is_safe: bool = True,
    ) -> bytes:
        """What git says to stdout; an exit code other than `answers` is an error. `more`: variables of this call.

        Not `is_safe`: the user's own settings of hooks and monitors are what is asked about.
        """
        environ = {name: value for name, value in self.environ.items() if name not in OF_ANOTHER_REPOSITORY}
        environ |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(more or {})}
        try:
            done = subprocess.run(
                ["git", *(SAFE if is_safe else ()), *arguments],
                cwd=self.folder,
                env=environ,
                input=stdin,
                capture_output=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except FileNotFoundError as error:
            if not self.folder.is_dir():
                raise GitError(f"{self.folder}: the folder is gone") from error
            raise GitError(f"{self.folder}: git cannot be started: {error.strerror}", hint="Install git.") from error
        except OSError as error:
            raise GitError(f"{self.folder}: git cannot be started: {error.strerror or error}") from error
        except subprocess.TimeoutExpired as error:
            raise GitError(
                f"{self.folder}: git {arguments[0]} did not answer within {TIMEOUT_S:.0f} s",
                hint="Is the folder on a slow or lost network mount?",
            ) from error
        if done.returncode not in answers:
            raise self._refusal(arguments[0], done.returncode, done.stderr.decode("utf-8", "replace").strip())
        return done.stdout

    def _refusal(self, command: str, exit_code: int, said: str) -> GitError:
        first_line = said.partition("\n")[0] or f"exit code {exit_code}"
        if "dubious ownership" in said:
            hint = f"If you trust it: git config --global --add safe.directory '{self.folder}'"
            return GitError(f"{self.folder}: the repository belongs to another user, so git refuses it", hint=hint)
        return GitError(f"{self.folder}: git {command}: {first_line}")

    def directory(self) -> Path:
        """The folder of this worktree's index and HEAD."""
        return self._path("--git-dir")

    def common(self) -> Path:
        """The folder that all worktrees of the repository share."""
        return self._path("--git-common-dir")

    def setting(self, name: str) -> str:
        """A value of git's configuration; "" where it is not set."""
        return os.fsdecode(self.ask("config", "--get", name, answers=(0, 1), is_safe=False)).rstrip("\n")

    def hooks(self) -> Path:
        """Where this repository's hooks lie, wherever the user's settings put them."""
        where = self.ask("config", "--type=path", "--get", "core.hooksPath", answers=(0, 1), is_safe=False)
        chosen = os.fsdecode(where).rstrip("\n")
        return self.folder / chosen if chosen else self.common() / "hooks"

    def objects(self) -> Path:
        return self._path("--git-path", "objects")

    def prefix(self) -> str:
        """Where the folder lies in the repository: "" at its top, else with a slash behind it."""
        return os.fsdecode(self.ask("rev-parse", "--show-prefix")).rstrip("\n")

    def _path(self, *question: str) -> Path:
        return self.folder / os.fsdecode(self.ask("rev-parse", *question)).rstrip("\n")

    def head(self) -> Head:
        """The commit and the branch."""
        head = self._head_from_files()
        if head is not None:
            return head
        reference = self.ask("symbolic-ref", "-q", "HEAD", answers=(0, 1)).decode("utf-8", "replace").strip()
        return Head(self._known("HEAD") or None, reference.removeprefix(BRANCHES) or None)

    def _head_from_files(self) -> Head | None:
        """By GitPython, which starts no process: this is asked at every save. None where it cannot tell."""
        try:
            import git  # raises where there is no git; costs a tenth of a second that not every command should pay
        except ImportError:
            return None
        try:
            with git.Repo(self.folder, search_parent_directories=True) as repository:
                branch = None if repository.head.is_detached else repository.head.reference.path.removeprefix(BRANCHES)
                return Head(str(git.SymbolicReference.dereference_recursive(repository, "HEAD")), branch)
        except (ValueError, OSError, git.exc.GitError):
            return None  # no commit yet, or a way of keeping references that only git itself knows

    def commit(self, revision: str) -> str | None:
        """The commit that a revision names, if there is one."""
        return self._known(f"{revision}^{{commit}}") or None

    def tree_of(self, commit: str) -> str | None:
        """The tree of this folder in a commit; None where the commit does not hold it."""
        return self._known(f"{commit}:./") or None

    def _known(self, revision: str) -> str:
        said = self.ask("rev-parse", "--verify", "-q", revision, answers=(0, 1, 128))
        return said.decode("ascii", "replace").strip()


class Objects:
    """The contents of a repository, by GitPython, which keeps one `git cat-file --batch` running for all of them."""

    def __init__(self, asked: Git) -> None:
        self._asked = asked
        self._repository: git.Repo | None = None

    def read(self, name: str) -> bytes:
        """The bytes of a blob."""
        if len(name) != SHA1_LENGTH:
            return self._asked.ask("cat-file", "blob", name)  # ids that GitPython does not know
        import git

        if self._repository is None:
            self._repository = git.Repo(self._asked.folder, search_parent_directories=True)
            # A partial clone must not go to the network for what it lacks.
            self._repository.git.update_environment(GIT_NO_LAZY_FETCH="1", GIT_OPTIONAL_LOCKS="0")
        try:
            return bytes(self._repository.odb.stream(bytes.fromhex(name)).read())
        except (ValueError, OSError, git.exc.GitError, git.exc.ODBError) as error:
            raise GitError(
                f"{self._asked.folder}: the object {name} cannot be read: {error}",
                hint="`git fsck` tells what is wrong; a partial clone may lack it",
            ) from error

    def close(self) -> None:
        if self._repository is not None:
            self._repository.close()
