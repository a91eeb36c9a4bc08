"""Runs git; the only module that does. Changes nothing in the user's repository.

A watcher may look at a repository that it does not trust, so no hook, file system monitor or pager is started.
Variables that point to another repository, as they are set inside a git hook, are removed.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
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
"""The mode of a submodule in a git tree."""
SAFE_OPTIONS = ("-c", "core.fsmonitor=false", "-c", f"core.hooksPath={os.devnull}")
REPOSITORY_VARIABLES = frozenset(
    f"GIT_{name}"
    for name in (
        *("DIR", "WORK_TREE", "IMPLICIT_WORK_TREE", "COMMON_DIR", "INDEX_FILE", "PREFIX", "NAMESPACE"),
        *("CONFIG", "CONFIG_PARAMETERS", "CONFIG_COUNT", "INTERNAL_SUPER_PREFIX", "GRAFT_FILE", "SHALLOW_FILE"),
        *("OBJECT_DIRECTORY", "ALTERNATE_OBJECT_DIRECTORIES", "NO_REPLACE_OBJECTS", "REPLACE_REF_BASE"),
        *("LITERAL_PATHSPECS", "GLOB_PATHSPECS", "NOGLOB_PATHSPECS", "ICASE_PATHSPECS"),
    )
)


class GitError(WatchtestError):
    """Git is not installed, reported an error or took too long."""

    code = "git"


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

    def run(
        self,
        *arguments: str,
        stdin: bytes = b"",
        ok_codes: Sequence[int] = (0,),
        variables: Mapping[str, str] | None = None,
        is_safe: bool = True,
    ) -> bytes:
        """Return git's stdout. Raises GitError for any exit code that is not in `ok_codes`.

        `variables` are added to the environment of this call. Without `is_safe`, git sees the user's own settings of
        hooks and monitors; that is for reading those settings.
        """
        environ = {name: value for name, value in self.environ.items() if name not in REPOSITORY_VARIABLES}
        environ |= {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C", **(variables or {})}
        try:
            done = subprocess.run(
                ["git", *(SAFE_OPTIONS if is_safe else ()), *arguments],
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
        if done.returncode not in ok_codes:
            raise self._error(arguments[0], done.returncode, done.stderr.decode("utf-8", "replace").strip())
        return done.stdout

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
        output = self.run("config", *options, "--get", name, ok_codes=(0, 1), is_safe=False)
        return os.fsdecode(output).removesuffix("\n")

    def hooks(self) -> Path:
        """Return the folder of this repository's hooks, which `core.hooksPath` may have moved."""
        chosen = self.setting("core.hooksPath", "--type=path")
        return self.folder / chosen if chosen else self.common() / "hooks"

    def tracked(self, path: str) -> tuple[str, ...]:
        """Return the files that git tracks at or below a path, in any case of its letters; nothing outside of git."""
        listing = self.run("ls-files", "-z", "--", f":(icase){path}", ok_codes=(0, 128))
        return tuple(os.fsdecode(listing).split("\0")[:-1])

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
        reference = self.run("symbolic-ref", "-q", "HEAD", ok_codes=(0, 1)).decode("utf-8", "replace").strip()
        return Head(self._resolve("HEAD") or None, reference.removeprefix(BRANCHES) or None)

    def _head_from_files(self) -> Head | None:
        """Read HEAD with GitPython, which starts no process: this runs at every save. None if it cannot tell."""
        try:
            import git  # fails without git, and takes 0.1 s that not every command should pay
        except ImportError:
            return None
        try:
            with git.Repo(self.folder, search_parent_directories=True) as repository:
                branch = None if repository.head.is_detached else repository.head.reference.path.removeprefix(BRANCHES)
                return Head(str(git.SymbolicReference.dereference_recursive(repository, "HEAD")), branch)
        except (ValueError, OSError, git.exc.GitError):
            return None  # no commit yet, or a reference format that GitPython does not support

    def commit(self, revision: str) -> str | None:
        """Return the commit that a revision names, or None."""
        return self._resolve(f"{revision}^{{commit}}") or None

    def tree_of(self, commit: str) -> str | None:
        """Return the tree of this folder in a commit, or None if the commit does not contain the folder."""
        return self._resolve(f"{commit}:./") or None

    def _resolve(self, revision: str) -> str:
        output = self.run("rev-parse", "--verify", "-q", revision, ok_codes=(0, 1, 128))
        return output.decode("ascii", "replace").strip()


@dataclass(frozen=True, slots=True)
class TreeRow:
    """One line of `git ls-tree -r -z`."""

    path: str
    mode: str
    object: str
    size: int
    """0 unless `-l` is given."""


def tree_rows(listing: bytes) -> Iterator[TreeRow]:
    for line in os.fsdecode(listing).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _kind, name, *size = facts.split()
            yield TreeRow(path, mode, name, int(size[0]) if size and size[0] != "-" else 0)


class ObjectStore:
    """Reads blobs with GitPython, which keeps one `git cat-file --batch` running for all of them."""

    def __init__(self, in_folder: Git) -> None:
        self._git = in_folder
        self._repository: git.Repo | None = None

    def read(self, name: str) -> bytes:
        """Return the content of a blob."""
        if len(name) != SHA1_LENGTH:
            return self._git.run("cat-file", "blob", name)  # GitPython supports SHA-1 ids only
        import git

        if self._repository is None:
            self._repository = git.Repo(self._git.folder, search_parent_directories=True)
            # A partial clone must not fetch missing objects over the network.
            self._repository.git.update_environment(GIT_NO_LAZY_FETCH="1", GIT_OPTIONAL_LOCKS="0")
        try:
            return bytes(self._repository.odb.stream(bytes.fromhex(name)).read())
        except (ValueError, OSError, git.exc.GitError, git.exc.ODBError) as error:
            raise GitError(
                f"{self._git.folder}: the object {name} cannot be read: {error}",
                hint="Run `git fsck` to find out what is wrong. In a partial clone the object may be missing.",
            ) from error

    def close(self) -> None:
        if self._repository is not None:
            self._repository.close()
