"""Where a snapshot stands in the history: HEAD's commit, the branch, and whether the tree differs from HEAD's."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace

from watchtest.core.model import Kind, Snapshot
from watchtest.sources.git import GITLINK, SHA1_LENGTH, Git, GitError
from watchtest.sources.ignore import Ignore
from watchtest.sources.tree_id import git_mode


class Standing:
    """Looks once a snapshot where HEAD is, and asks for its tree only when that has changed."""

    def __init__(self, ignore: Ignore) -> None:
        self._ignore = ignore
        self._trees: dict[str, str | None] = {}
        self._tree = ""
        self._listing: Mapping[str, tuple[str, str]] = {}

    def added_to(self, snapshot: Snapshot) -> Snapshot:
        """The snapshot with head, branch and dirty; as it is where there is no git to ask."""
        git = self._ignore.git
        if git is None:
            return snapshot
        try:
            head = git.head()
            is_dirty = None if head.commit is None else self._differs(git, self._tree_of(git, head.commit), snapshot)
        except GitError:
            return snapshot  # the next question about ignored paths meets the same trouble, and says so
        return replace(snapshot, head=head.commit, branch=head.branch, dirty=is_dirty)

    def _tree_of(self, git: Git, commit: str) -> str | None:
        if commit not in self._trees:
            self._trees = {commit: git.tree_of(commit)}
        return self._trees[commit]

    def _differs(self, git: Git, tree: str | None, snapshot: Snapshot) -> bool | None:
        if tree is None or tree == snapshot.id:
            return tree is None and bool(snapshot.entries)
        if len(tree) != SHA1_LENGTH:
            return None  # a repository of SHA-256 ids, which cannot be compared with ours
        if tree != self._tree:
            self._tree, self._listing = tree, _listing(git, tree)
        return self._differs_in_a_file(snapshot)

    def _differs_in_a_file(self, snapshot: Snapshot) -> bool:
        """Submodules, which git keeps as one entry, and what `include` brought in do not make a tree dirty."""
        listing = self._listing
        links = tuple(f"{path}/" for path, (mode, _) in listing.items() if mode == GITLINK)
        for path, entry in snapshot.entries.items():
            if entry.kind is Kind.FOLDER:
                continue
            at_head = listing.get(path)
            if at_head is None:
                if not path.startswith(links) and not self._ignore.brings_back(path):
                    return True
            elif at_head != (git_mode(entry).decode(), entry.digest):
                return True
        return any(path not in snapshot.entries for path, (mode, _) in listing.items() if mode != GITLINK)


def _listing(git: Git, tree: str) -> dict[str, tuple[str, str]]:
    listing = {}
    for line in os.fsdecode(git.ask("ls-tree", "-r", "-z", "--full-tree", tree)).split("\0"):
        if line:
            facts, _, path = line.partition("\t")
            mode, _, digest = facts.split(" ")
            listing[path] = (mode, digest)
    return listing
