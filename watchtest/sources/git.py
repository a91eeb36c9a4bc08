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

from watchtest.errors import WatchtestError

TIMEOUT_S = 60.0
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
    tree: str | None
    """Of the folder that was asked about; None where the commit does not hold it."""
    branch: str | None


@dataclass(frozen=True, slots=True)
class Git:
    """Git, asked in one folder."""

    folder: Path
    environ: Mapping[str, str]

    def ask(self, *arguments: str, stdin: bytes = b"", answers: Sequence[int] = (0,)) -> bytes:
        """What git says to stdout; an exit code other than `answers` is an error."""
        environ = {name: value for name, value in self.environ.items() if name not in OF_ANOTHER_REPOSITORY}
        environ |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}
        try:
            done = subprocess.run(
                ["git", *SAFE, *arguments],
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

    def head(self) -> Head:
        """The commit, the tree of this folder in it, and the branch."""
        try:
            said = self.ask("rev-parse", "HEAD", "HEAD:./", "--symbolic-full-name", "HEAD")
            commit, tree, reference = said.decode("utf-8", "replace").split("\n")[:3]
        except GitError:
            # Rarer cases, one question at a time: no commit yet, or none that holds this folder.
            commit, tree = self._known("HEAD"), self._known("HEAD:./")
            reference = self.ask("symbolic-ref", "-q", "HEAD", answers=(0, 1)).decode("utf-8", "replace").strip()
        branch = reference.removeprefix("refs/heads/") if reference not in ("", "HEAD") else None
        return Head(commit or None, tree or None, branch)

    def _known(self, revision: str) -> str:
        said = self.ask("rev-parse", "--verify", "-q", revision, answers=(0, 1, 128))
        return said.decode("ascii", "replace").strip()
