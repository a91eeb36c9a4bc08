"""git is asked and never obeyed: no setting, hook or variable of a repository starts a program, and nothing is fetched.

Each attack is a program that leaves a mark. Each was seen to leave it under plain git or an earlier watchtest.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from support.git_repo import ENVIRON, Repo

from watchtest.errors import WatchtestError
from watchtest.sources.git import QUESTIONS, Git, GitError, Head, MissingContent, UnmergedIndex, safe_environ
from watchtest.sources.git_tree import GitTree, TreeId
from watchtest.sources.worktree import Worktree

LIMIT = 10**6


class Canary:
    """A program that leaves a mark when it is started."""

    def __init__(self, folder: Path) -> None:
        self.mark = folder / "was-started"
        self.program = folder / "canary"
        self.program.write_text(f'#!/bin/sh\necho "$0 $*" >> {shlex.quote(str(self.mark))}\nexit 1\n')
        self.program.chmod(0o755)

    @property
    def is_alive(self) -> bool:
        return not self.mark.exists()


@pytest.fixture
def canary(tmp_path: Path) -> Canary:
    (tmp_path / "evil").mkdir()
    return Canary(tmp_path / "evil")


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path / "repo")
    repo.save("a.py", "1\n")
    repo.save("b.txt", "b\n")
    repo.save(".gitattributes", "*.py filter=evil diff=evil merge=evil\n*.txt text\n")
    repo.save(".gitignore", "*.log\n")
    repo.commit()
    return repo


def ask_everything(root: Path, environ: dict[str, str] = ENVIRON) -> list[str]:
    """Do all that watchtest ever does with a repository. Return the messages of what failed."""
    git = Git(root, environ)
    failures = []

    def note(question: Callable[[], object]) -> None:
        try:
            question()
        except GitError as error:
            failures.append(error.message)

    worktree = Worktree(root, ignore=(), include=(), environ=environ)
    note(lambda: [worktree.read(path, entry) for path, entry in worktree.snapshot().entries.items()])
    note(worktree.folders)
    note(lambda: worktree.relevant(["a.py", "new.log"]))
    for question in (git.directory, git.common, git.hooks, git.head, git.prefix):
        note(question)
    note(lambda: git.unmerged(git.directory() / "index"))
    note(lambda: git.setting("core.autocrlf"))
    note(lambda: git.commit("HEAD~0"))
    for which in ("index", "head", TreeId(git.tree_of("HEAD") or "HEAD")):
        tree = GitTree(root, which, environ=environ, max_file_bytes=LIMIT)
        try:
            note(lambda: [tree.read(path, entry) for path, entry in tree.snapshot(frozenset()).entries.items()])  # noqa: B023
        finally:
            tree.close()
    return failures


def test_no_setting_of_a_repository_starts_a_program(repo: Repo, canary: Canary) -> None:
    for name in (
        *("core.fsmonitor", "core.sshCommand", "core.pager", "core.editor", "core.askPass", "core.gitProxy"),
        *("filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "core.alternateRefsCommand"),
        *("diff.external", "diff.evil.command", "diff.evil.textconv", "merge.evil.driver", "credential.helper"),
        *("gpg.program", "sequence.editor", "uploadpack.packObjectsHook", "pager.ls-files", "pager.config"),
        *("hook.evil.command", "trailer.evil.command", "interactive.diffFilter", "remote.origin.uploadpack"),
    ):
        repo.git("config", name, str(canary.program))
    for command in ("ls-files", "rev-parse", "cat-file", "check-ignore", "config", "write-tree", "ls-tree"):
        repo.git("config", f"alias.{command}", f"!{canary.program}")
    repo.git("config", "filter.evil.required", "true")
    repo.git("config", "log.showSignature", "true")
    for event in ("post-index-change", "reference-transaction", "pre-commit", "post-checkout", "fsmonitor-watchman"):
        repo.git("config", "--add", "hook.evil.event", event)
        hook = repo.root / ".git" / "hooks" / event
        hook.parent.mkdir(exist_ok=True)
        hook.write_bytes(canary.program.read_bytes())
        hook.chmod(0o755)
    (repo.root / "a.py").write_text("changed\n")
    nested = Repo(repo.root / "nested")
    nested.save("c.py", "1\n")
    nested.commit()
    nested.git("config", "core.fsmonitor", str(canary.program))
    assert ask_everything(repo.root) == []
    assert canary.is_alive
    repo.git("status", check=False)
    assert not canary.is_alive, "git itself runs none of these programs: they prove nothing"


@pytest.mark.parametrize(
    "url", ["ssh://host/x", "host:x", "ext::{program} %S", "git://host/x", "{folder}/origin", "file://{folder}/origin"]
)
@pytest.mark.parametrize("is_named", [True, False], ids=["remote.promisor", "extensions.partialClone"])
def test_what_a_partial_clone_lacks_is_reported_and_not_fetched(
    repo: Repo, canary: Canary, tmp_path: Path, url: str, is_named: bool
) -> None:
    lost = repo.git("rev-parse", "HEAD:a.py")
    (repo.root / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
    repo.git("init", "--quiet", "--bare", str(tmp_path / "origin"))
    repo.git("config", "core.repositoryFormatVersion", "1")
    repo.git("config", "remote.origin.url", url.format(program=canary.program, folder=tmp_path))
    repo.git(
        "config", "remote.origin.promisor" if is_named else "extensions.partialClone", "true" if is_named else "origin"
    )
    repo.git("config", "remote.origin.partialCloneFilter", "blob:none")
    repo.git("config", "protocol.allow", "always")
    repo.git("config", "protocol.ext.allow", "always")
    for name in ("core.sshCommand", "core.gitProxy", "remote.origin.uploadpack", "core.askPass", "credential.helper"):
        repo.git("config", name, str(canary.program))
    failures = ask_everything(repo.root)
    assert canary.is_alive
    assert len(failures) == 3, failures
    assert all("lacks the content of a.py" in message for message in failures)
    repo.git("cat-file", "-p", lost, check=False, timeout_s="5")
    assert not canary.is_alive, "git itself does not fetch: this proves nothing"


def test_a_lane_continues_when_the_missing_content_is_there(repo: Repo) -> None:
    lost = repo.git("rev-parse", "HEAD:a.py")
    file = repo.root / ".git" / "objects" / lost[:2] / lost[2:]
    away = file.rename(repo.root / ".git" / "away")
    tree = GitTree(repo.root, "index", environ=ENVIRON, max_file_bytes=LIMIT)
    try:
        with pytest.raises(MissingContent) as caught:
            tree.snapshot(frozenset())
        assert caught.value.retries_forever
        assert "git archive" in caught.value.hint
        away.rename(file)
        snapshot = tree.snapshot(frozenset())
        assert tree.read("a.py", snapshot.entries["a.py"]) == b"1\n"
    finally:
        tree.close()


@pytest.mark.parametrize("which", ["index", "head"])
def test_the_hint_for_missing_content_downloads_it(repo: Repo, tmp_path: Path, which: Literal["index", "head"]) -> None:
    repo.git("config", "uploadpack.allowFilter", "true")
    repo.git("config", "uploadpack.allowAnySHA1InWant", "true")
    clone = Repo(tmp_path / "clone")
    clone.git("remote", "add", "origin", f"file://{repo.root}")
    clone.git("fetch", "--quiet", "--filter=blob:none", "origin", "main")
    clone.git("reset", "--quiet", "--soft", "FETCH_HEAD")
    clone.git("read-tree", "HEAD")
    tree = GitTree(clone.root, which, environ=ENVIRON, max_file_bytes=LIMIT)
    try:
        with pytest.raises(MissingContent) as caught:
            tree.snapshot(frozenset())
        command = caught.value.hint.split("`")[1]
        subprocess.run(["sh", "-c", command], cwd=clone.root, env=ENVIRON, check=True, timeout=60)
        assert set(tree.snapshot(frozenset()).entries) == {"a.py", "b.txt", ".gitattributes", ".gitignore"}
    finally:
        tree.close()


def test_variables_of_the_caller_neither_start_a_program_nor_name_another_repository(
    repo: Repo, canary: Canary, tmp_path: Path
) -> None:
    other = Repo(tmp_path / "other")
    other.save("other.py", "1\n")
    other.commit()
    trace = tmp_path / "trace"
    programs = ("EXTERNAL_DIFF", "SSH_COMMAND", "SSH", "ASKPASS", "PAGER", "EDITOR", "PROXY_COMMAND")
    environ = {
        **ENVIRON,
        **{f"GIT_{name}": str(canary.program) for name in programs},
        **{f"GIT_{name}": str(trace) for name in ("TRACE", "TRACE2", "TRACE2_EVENT", "TRACE_SETUP", "TRACE_PACKET")},
        "GIT_DIR": str(other.root / ".git"),
        "GIT_WORK_TREE": str(other.root),
        "GIT_INDEX_FILE": str(other.root / ".git" / "index"),
        "GIT_OBJECT_DIRECTORY": str(other.root / ".git" / "objects"),
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "core.fsmonitor",
        "GIT_CONFIG_VALUE_0": str(canary.program),
        "GIT_CONFIG_PARAMETERS": f"'core.fsmonitor'='{canary.program}'",
    }
    assert ask_everything(repo.root, environ) == []
    tree = GitTree(repo.root, "index", environ=environ, max_file_bytes=LIMIT)
    try:
        assert "a.py" in tree.snapshot(frozenset()).entries
    finally:
        tree.close()
    assert canary.is_alive
    assert not trace.exists()


def test_a_git_inside_the_workspace_is_never_started(
    repo: Repo, canary: Canary, monkeypatch: pytest.MonkeyPatch
) -> None:
    (repo.root / "bin").mkdir()
    (repo.root / "bin" / "git").symlink_to(canary.program)
    monkeypatch.chdir(repo.root)
    environ = {**ENVIRON, "PATH": os.pathsep.join(["bin", "", ".", ENVIRON["PATH"]])}
    assert ask_everything(repo.root, environ) == []
    assert canary.is_alive


def test_settings_of_the_user_still_count(repo: Repo, tmp_path: Path) -> None:
    config = tmp_path / "gitconfig"
    config.write_text(f"[core]\nexcludesFile = {tmp_path / 'excludes'}\n")
    (tmp_path / "excludes").write_text("*.mine\n")
    repo.save("x.mine", "")
    environ = {**ENVIRON, "GIT_CONFIG_GLOBAL": str(config)}
    assert "x.mine" not in Worktree(repo.root, ignore=(), include=(), environ=environ).snapshot().entries
    assert safe_environ({"HOME": "/h", "GIT_DIR": "/x", "PATH": "/bin"})["HOME"] == "/h"


def test_replaced_objects_are_not_taken_for_what_a_commit_contains(repo: Repo) -> None:
    other = repo.git("hash-object", "-w", "--stdin-paths", check=False) or repo.git("rev-parse", "HEAD:b.txt")
    repo.git("replace", repo.git("rev-parse", "HEAD:a.py"), other)
    tree = GitTree(repo.root, "head", environ=ENVIRON, max_file_bytes=LIMIT)
    try:
        snapshot = tree.snapshot(frozenset())
        assert tree.read("a.py", snapshot.entries["a.py"]) == b"1\n"
    finally:
        tree.close()


@pytest.mark.parametrize("name", ["index", "HEAD", "info/exclude", "../.gitignore"])
def test_a_pipe_in_place_of_a_file_of_git_ends_in_an_error(
    repo: Repo, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("watchtest.sources.git.TIMEOUT_S", 1.0)
    file = repo.root / ".git" / name
    file.unlink(missing_ok=True)
    os.mkfifo(file)
    tree = GitTree(repo.root, "index", environ=ENVIRON, max_file_bytes=LIMIT)
    try:
        if name in ("info/exclude", "../.gitignore"):
            worktree = Worktree(repo.root, ignore=(), include=(), environ=ENVIRON)
            assert "a.py" in worktree.snapshot().entries
            assert "did not answer" in worktree.notes[0]
        else:
            with pytest.raises(GitError):
                tree.snapshot(frozenset())
    finally:
        tree.close()


def test_a_repository_of_another_user_is_refused_in_clear_words(repo: Repo) -> None:
    if os.getuid():
        pytest.skip("only root can give a folder to another user")
    for path in (repo.root, *repo.root.rglob("*")):
        os.chown(path, 12345, 12345)
    with pytest.raises(GitError, match="belongs to another user") as caught:
        Git(repo.root, ENVIRON).directory()
    assert "safe.directory" in caught.value.hint
    worktree = Worktree(repo.root, ignore=(), include=(), environ=ENVIRON)
    assert "a.py" in worktree.snapshot().entries
    assert "belongs to another user" in worktree.notes[0]


@pytest.mark.parametrize("how", ["stash", "merge", "cherry-pick", "revert"])
def test_an_index_in_conflict_is_named_path_by_path(repo: Repo, how: str) -> None:
    repo.save("a.py", "2\n")
    if how == "stash":
        repo.git("stash")
    else:
        repo.git("checkout", "--quiet", "-b", "other")
        repo.commit()
        if how == "revert":
            repo.save("a.py", "3\n")
            repo.commit()
        repo.git("checkout", "--quiet", "main")
    repo.save("a.py", "4\n")
    repo.commit()
    repo.git(*{"stash": ("stash", "pop"), "revert": ("revert", "other~1")}.get(how, (how, "other")), check=False)
    tree = GitTree(repo.root, "index", environ=ENVIRON, max_file_bytes=LIMIT)
    try:
        with pytest.raises(UnmergedIndex, match=r"the index has unmerged paths: a\.py"):
            tree.tree()
        repo.git("add", "a.py")
        assert tree.tree() == repo.git("write-tree")
    finally:
        tree.close()


def test_a_split_index_a_sparse_index_and_skipped_paths_are_read(repo: Repo) -> None:
    repo.save("far/away.py", "1\n")
    repo.save("near/by.py", "1\n")
    repo.commit()
    for setup in (
        ("update-index", "--split-index"),
        ("update-index", "--no-split-index"),
        ("sparse-checkout", "set", "--cone", "--sparse-index", "near"),
        ("update-index", "--skip-worktree", "a.py"),
    ):
        repo.git(*setup)
        repo.save("near/by.py", f"{setup}\n")
        repo.git("add", "near/by.py")
        tree = GitTree(repo.root, "index", environ=ENVIRON, max_file_bytes=LIMIT)
        try:
            assert tree.snapshot(frozenset()).id == repo.git("write-tree")
        finally:
            tree.close()


def test_a_worktree_of_a_bare_repository_is_read(repo: Repo, tmp_path: Path) -> None:
    repo.git("clone", "--quiet", "--bare", str(repo.root), str(tmp_path / "bare"))
    root = tmp_path / "checkout"
    repo.git("-C", str(tmp_path / "bare"), "worktree", "add", "--quiet", str(root), "main")
    assert ask_everything(root) == []
    assert Git(root, ENVIRON).head() == Head(repo.git("rev-parse", "HEAD"), "main")
    repo.git("-C", str(tmp_path / "bare"), "pack-refs", "--all")
    assert Git(root, ENVIRON).head() == Head(repo.git("rev-parse", "HEAD"), "main")
    with pytest.raises(WatchtestError, match="work tree"):
        Git(tmp_path / "bare", ENVIRON).run("check-ignore", "x", ok_codes=(0, 1))


def test_a_head_without_a_commit_is_described(repo: Repo, tmp_path: Path) -> None:
    def message() -> str:
        tree = GitTree(repo.root, "head", environ=ENVIRON, max_file_bytes=LIMIT)
        try:
            with pytest.raises(WatchtestError) as caught:
                tree.snapshot(frozenset())
        finally:
            tree.close()
        return str(caught.value)

    repo.git("checkout", "--quiet", "--orphan", "fresh")
    assert "no commit yet on fresh" in message()
    (repo.root / ".git" / "refs" / "heads" / "fresh").write_text("0123456789" * 4 + "\n")
    assert "that commit cannot be read" in message()
    (repo.root / ".git" / "refs" / "heads" / "fresh").write_text("nonsense\n")
    assert "HEAD is broken" in message()


def test_only_commands_that_print_what_is_stored_are_used(repo: Repo) -> None:
    assert QUESTIONS.isdisjoint({"status", "diff", "fetch", "checkout", "add", "hash-object", "log", "show", "archive"})
    with pytest.raises(AssertionError):
        Git(repo.root, ENVIRON).run("status")
