"""What is staged and what HEAD contains, compared with real git."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
from support.git_repo import ENVIRON, Repo, Tree, operate

from watchtest.core.model import EntryKind, Snapshot
from watchtest.errors import SourceMoved, WorkspaceError
from watchtest.sources.git import GitError
from watchtest.sources.git_tree import GitTree, TreeId

Open = Callable[..., GitTree]
NO_HINT: frozenset[str] = frozenset()


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def source(repo: Repo) -> Iterator[Open]:
    made: list[GitTree] = []

    def make(
        which: Literal["index", "head"] | TreeId = "index", root: Path | None = None, limit: int = 10**6
    ) -> GitTree:
        made.append(GitTree(root or repo.root, which, environ=ENVIRON, max_file_bytes=limit))
        return made[-1]

    yield make
    for tree in made:
        tree.close()


def content(tree: GitTree, snapshot: Snapshot) -> Tree:
    return {
        path: (entry.kind.value, entry.mode, tree.read(path, entry)) for path, entry in sorted(snapshot.entries.items())
    }


def test_the_index_is_what_is_staged_not_what_is_saved(repo: Repo, source: Open) -> None:
    repo.save("a.py", "committed\n")
    repo.commit()
    repo.save("a.py", "staged\n")
    repo.git("add", "a.py")
    repo.save("a.py", "saved\n")
    index, head = source("index"), source("head")
    assert content(index, index.snapshot(NO_HINT)) == {"a.py": ("file", 0o644, b"staged\n")}
    assert content(head, head.snapshot(NO_HINT)) == {"a.py": ("file", 0o644, b"committed\n")}


def test_ids_head_and_branch_are_gits_own(repo: Repo, source: Open, tmp_path: Path) -> None:
    repo.save("a.py", "1\n")
    commit = repo.commit()
    repo.save("b/c.py", "2\n")
    repo.git("add", "-A")
    staged, head = source("index").snapshot(NO_HINT), source("head").snapshot(NO_HINT)
    assert staged.id == repo.staged_tree(tmp_path)
    assert head.id == repo.git("rev-parse", "HEAD^{tree}")
    assert (staged.head, staged.branch, staged.dirty) == (commit, "main", True)
    assert head.dirty is False


def test_intent_to_add_renames_deletions_modes_and_links(repo: Repo, source: Open, tmp_path: Path) -> None:
    for name in ("gone.py", "old name.py", "tool.sh", "ünï\udcff.txt"):
        repo.save(name, name.encode("utf-8", "surrogateescape"))
    repo.commit()
    repo.git("rm", "--quiet", "gone.py")
    repo.git("mv", "old name.py", "new name.py")
    (repo.root / "tool.sh").chmod(0o755)
    (repo.root / "link").symlink_to("tool.sh")
    repo.git("add", "tool.sh", "link")
    repo.save("intended.py", "not staged yet")
    repo.git("add", "--intent-to-add", "intended.py")
    tree = source("index")
    snapshot = tree.snapshot(NO_HINT)
    assert snapshot.id == repo.staged_tree(tmp_path)
    assert content(tree, snapshot) == repo.exported(snapshot.id, tmp_path / "out")
    assert {"gone.py", "old name.py", "intended.py"}.isdisjoint(snapshot.entries)
    assert snapshot.entries["link"].kind is EntryKind.SYMLINK
    assert snapshot.entries["tool.sh"].mode == 0o755


def test_a_submodule_is_left_out_and_said(repo: Repo, source: Open, tmp_path: Path) -> None:
    other = Repo(tmp_path / "other")
    other.save("x", "1")
    other.commit()
    repo.git("-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(other.root), "sub")
    snapshot = source("index").snapshot(NO_HINT)
    assert set(snapshot.entries) == {".gitmodules"}
    assert [left.path for left in snapshot.excluded] == ["sub"]


def test_files_of_watchtest_that_were_committed_are_left_out(repo: Repo, source: Open) -> None:
    repo.save(".watchtest/status.json", "{}")
    repo.save("a.py", "1\n")
    repo.commit()
    snapshot = source("head").snapshot(NO_HINT)
    assert set(snapshot.entries) == {"a.py"}
    assert [left.path for left in snapshot.excluded] == [".watchtest/status.json"]


def test_an_empty_repository_has_an_empty_index_and_no_head(repo: Repo, source: Open) -> None:
    assert source("index").snapshot(NO_HINT).entries == {}
    with pytest.raises(WorkspaceError, match="no commit yet"):
        source("head").snapshot(NO_HINT)


def test_nothing_of_the_repository_changes(repo: Repo, source: Open) -> None:
    repo.save("a/b.py", "1\n")
    repo.commit()
    repo.save("a/c.py", "2\n")
    repo.git("add", "-A")
    before = {path: path.stat().st_mtime_ns for path in (repo.root / ".git").rglob("*") if path.is_file()}
    for which in ("index", "head"):
        tree = source(which)
        content(tree, tree.snapshot(NO_HINT))
    after = {path: path.stat().st_mtime_ns for path in (repo.root / ".git").rglob("*") if path.is_file()}
    assert after == before


def test_a_worktree_has_an_index_and_a_head_of_its_own(repo: Repo, source: Open, tmp_path: Path) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    repo.git("worktree", "add", "--quiet", str(tmp_path / "second"), "-b", "second")
    (tmp_path / "second" / "b.py").write_text("2\n")
    repo.git("-C", str(tmp_path / "second"), "add", "-A")
    snapshot = source("index", root=tmp_path / "second").snapshot(NO_HINT)
    assert set(snapshot.entries) == {"a.py", "b.py"}
    assert snapshot.branch == "second"
    assert set(source("index").snapshot(NO_HINT).entries) == {"a.py"}


def test_packed_references_and_packed_objects_are_read(repo: Repo, source: Open) -> None:
    repo.save("a.py", "1\n")
    commit = repo.commit()
    repo.git("pack-refs", "--all")
    repo.git("gc", "--quiet")
    tree = source("head")
    snapshot = tree.snapshot(NO_HINT)
    assert snapshot.head == commit
    assert content(tree, snapshot) == {"a.py": ("file", 0o644, b"1\n")}


def test_a_detached_head_has_no_branch(repo: Repo, source: Open) -> None:
    repo.save("a.py", "1\n")
    commit = repo.commit()
    repo.git("checkout", "--quiet", "--detach")
    snapshot = source("head").snapshot(NO_HINT)
    assert (snapshot.head, snapshot.branch) == (commit, None)


def test_unmerged_paths_have_no_tree(repo: Repo, source: Open) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    repo.git("checkout", "--quiet", "-b", "other")
    repo.save("a.py", "2\n")
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    repo.save("a.py", "3\n")
    repo.commit()
    repo.git("merge", "other", check=False)
    with pytest.raises(GitError):
        source("index").snapshot(NO_HINT)


def test_a_large_file_is_left_out_with_a_reason(repo: Repo, source: Open) -> None:
    repo.save("small", "1")
    repo.save("large", b"x" * 2000)
    repo.commit()
    snapshot = source("head", limit=1000).snapshot(NO_HINT)
    assert set(snapshot.entries) == {"small"}
    assert [(left.path, left.reason) for left in snapshot.excluded] == [("large", "larger than 1000 bytes")]


def test_lfs_pointers_become_their_content_where_it_is_here(repo: Repo, source: Open) -> None:
    big = b"really big"
    oid = hashlib.sha256(big).hexdigest()
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {len(big)}\n"
    lost = pointer.replace(oid, "0" * 64)
    repo.save(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n")
    repo.save("here.bin", pointer)
    repo.save("lost.bin", lost)
    repo.git("-c", "filter.lfs.clean=cat", "-c", "filter.lfs.required=false", "add", "-A")
    stored = repo.root / ".git" / "lfs" / "objects" / oid[:2] / oid[2:4] / oid
    stored.parent.mkdir(parents=True)
    stored.write_bytes(big)
    tree = source("index")
    snapshot = tree.snapshot(NO_HINT)
    assert content(tree, snapshot)["here.bin"][2] == big
    assert content(tree, snapshot)["lost.bin"][2] == lost.encode()
    assert [left.path for left in snapshot.excluded] == ["lost.bin"]
    assert "git lfs fetch" in snapshot.excluded[0].reason


def test_line_endings_are_as_git_keeps_them(repo: Repo, source: Open) -> None:
    repo.git("config", "core.autocrlf", "true")
    repo.save("a.txt", b"one\r\ntwo\r\n")
    repo.git("add", "-A")
    tree = source("index")
    assert content(tree, tree.snapshot(NO_HINT))["a.txt"][2] == b"one\ntwo\n"


def test_a_repository_of_sha256_ids_can_be_read(tmp_path: Path, source: Open) -> None:
    root = tmp_path / "sha256"
    root.mkdir()
    repo = Repo.__new__(Repo)
    repo.root = root
    repo.git("init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    repo.save("a.py", "1\n")
    repo.save("b", "2\n").chmod(0o755)
    repo.commit()
    tree = source("head", root=root)
    snapshot = tree.snapshot(NO_HINT)
    assert snapshot.id == repo.git("rev-parse", "HEAD^{tree}")
    assert content(tree, snapshot) == {"a.py": ("file", 0o644, b"1\n"), "b": ("file", 0o755, b"2\n")}


def test_a_given_tree_stays_what_it_is(repo: Repo, source: Open) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    first = repo.git("rev-parse", "HEAD^{tree}")
    repo.save("a.py", "2\n")
    repo.commit()
    tree = source(TreeId(first))
    assert content(tree, tree.snapshot(NO_HINT)) == {"a.py": ("file", 0o644, b"1\n")}


def test_content_that_is_not_that_entry_any_more_is_told(repo: Repo, source: Open) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    tree = source("head")
    first = tree.snapshot(NO_HINT)
    repo.save("a.py", "2\n")
    repo.commit()
    tree.snapshot(NO_HINT)
    with pytest.raises(SourceMoved):
        tree.read("a.py", first.entries["a.py"])


@pytest.mark.thorough
def test_five_hundred_operations_leave_both_sources_equal_to_git(repo: Repo, source: Open, tmp_path: Path) -> None:
    chance = random.Random(11)
    repo.save("a.py", "0\n")
    repo.commit()
    repo.git("branch", "other")
    index, head = source("index"), source("head")
    for number in range(500):
        operate(repo, chance, number)
        if chance.random() < 0.4:
            staged, committed = index.snapshot(NO_HINT), head.snapshot(NO_HINT)
            assert staged.id == repo.staged_tree(tmp_path)
            assert committed.id == repo.git("rev-parse", "HEAD^{tree}")
            assert content(index, staged) == repo.exported(staged.id, tmp_path / "out")
            assert content(head, committed) == repo.exported(committed.id, tmp_path / "out")
