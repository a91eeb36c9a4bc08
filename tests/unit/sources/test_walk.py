"""What the walk of a working tree reports besides the entries."""

from __future__ import annotations

from pathlib import Path

from support.git_repo import ENVIRON, Repo

from watchtest.sources.worktree import Worktree


def test_an_absolute_link_into_the_workspace_is_mirrored_and_reported(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "repo")
    repo.save("real/a.py")
    (repo.root / "alias").symlink_to(repo.root / "real")
    (repo.root / "good").symlink_to("real")
    (repo.root / "out").symlink_to("/usr")
    snapshot = Worktree(repo.root, ignore=(), include=(), environ=ENVIRON).snapshot()
    assert {"alias", "good", "out"} <= snapshot.entries.keys()
    assert [(left.path, "make it relative" in left.reason) for left in snapshot.excluded] == [("alias", True)]
