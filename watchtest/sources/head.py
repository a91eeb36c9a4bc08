"""Adds HEAD's commit, the branch and the dirty flag to snapshots of the working tree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from watchtest.core.model import EntryKind, Snapshot
from watchtest.sources.git import GITLINK, SHA1_LENGTH, Git, GitError, tree_rows
from watchtest.sources.ignore import PathFilter
from watchtest.sources.tree_id import git_mode


class HeadTracker:
    """Reads HEAD for each snapshot, and the tree of HEAD only when HEAD has moved."""

    def __init__(self, ignore: PathFilter) -> None:
        self._ignore = ignore
        self._trees: dict[str, str | None] = {}
        self._tree = ""
        self._listing: Mapping[str, tuple[str, str]] = {}

    def annotate(self, snapshot: Snapshot) -> Snapshot:
        """Return the snapshot with head, branch and dirty; unchanged if git is not available."""
        git = self._ignore.git
        if git is None:
            return snapshot
        try:
            head = git.head()
            is_dirty = None if head.commit is None else self._differs(git, self._tree_of(git, head.commit), snapshot)
        except GitError:
            return snapshot  # the next question about ignored paths fails, too, and reports it
        return replace(snapshot, head=head.commit, branch=head.branch, dirty=is_dirty)

    def _tree_of(self, git: Git, commit: str) -> str | None:
        if commit not in self._trees:
            self._trees = {commit: git.tree_of(commit)}
        return self._trees[commit]

    def _differs(self, git: Git, tree: str | None, snapshot: Snapshot) -> bool | None:
        if tree is None or tree == snapshot.id:
            return tree is None and bool(snapshot.entries)
        if len(tree) != SHA1_LENGTH:
            return None  # SHA-256 ids cannot be compared with ours
        if tree != self._tree:
            rows = tree_rows(git.run("ls-tree", "-r", "-z", "--full-tree", tree))
            self._tree, self._listing = tree, {row.path: (row.mode, row.object) for row in rows}
        return self._differs_in_a_file(snapshot)

    def _differs_in_a_file(self, snapshot: Snapshot) -> bool:
        """Compare file by file. Submodules and files that `watch.include` added do not make a tree dirty."""
        listing = self._listing
        links = tuple(f"{path}/" for path, (mode, _) in listing.items() if mode == GITLINK)
        for path, entry in snapshot.entries.items():
            if entry.kind is EntryKind.FOLDER:
                continue
            at_head = listing.get(path)
            if at_head is None:
                if not path.startswith(links) and not self._ignore.is_included(path):
                    return True
            elif at_head != (git_mode(entry).decode(), entry.digest):
                return True
        return any(path not in snapshot.entries for path, (mode, _) in listing.items() if mode != GITLINK)
