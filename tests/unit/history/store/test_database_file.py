"""The location of the history file: worktrees share it, other repositories do not. Uses real git repositories."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from watchtest.history.store.database_file import history_path


def git(folder: Path, *arguments: str) -> None:
    own = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    identity = ("-c", "user.name=a", "-c", "user.email=a@b")
    environment = {**{name: value for name, value in os.environ.items() if not name.startswith("GIT_")}, **own}
    subprocess.run(
        ["git", *identity, *arguments], cwd=folder, env=environment, check=True, capture_output=True, timeout=30
    )


def repository(folder: Path) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_a_worktree_shares_the_history_of_its_repository(tmp_path: Path) -> None:
    main = repository(tmp_path / "project")
    git(main, "worktree", "add", "-q", "../other", "-b", "other")

    assert history_path(tmp_path, tmp_path / "other") == history_path(tmp_path, main)


def test_two_repositories_of_the_same_name_have_their_own(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = repository(tmp_path / "a" / "project"), repository(tmp_path / "b" / "project")

    assert history_path(tmp_path, first) != history_path(tmp_path, second)


def test_the_folder_of_a_history_begins_with_the_name_of_the_project(tmp_path: Path) -> None:
    main = repository(tmp_path / "my project")

    path = history_path(tmp_path / "state", main)

    assert path.parent.parent == tmp_path / "state"
    assert path.parent.name.startswith("my-project-")
    assert path.name == "history.sqlite3"


def test_a_worktree_of_a_bare_repository_shares_its_history(tmp_path: Path) -> None:
    repository(tmp_path / "seed")
    git(tmp_path, "clone", "-q", "--bare", "seed", "store.git")
    git(tmp_path / "store.git", "worktree", "add", "-q", "../one", "-b", "one")
    git(tmp_path / "store.git", "worktree", "add", "-q", "../two", "-b", "two")

    assert history_path(tmp_path, tmp_path / "one") == history_path(tmp_path, tmp_path / "two")
    assert history_path(tmp_path, tmp_path / "one").parent.name.startswith("store-")


def test_a_submodule_has_a_history_of_its_own(tmp_path: Path) -> None:
    repository(tmp_path / "library")
    main = repository(tmp_path / "project")
    git(main, "-c", "protocol.file.allow=always", "submodule", "add", "-q", "../library", "library")

    assert history_path(tmp_path, main / "library") != history_path(tmp_path, main)


def test_a_folder_without_git_goes_by_its_own_path_however_it_is_reached(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    link = tmp_path / "link"
    link.symlink_to(folder)

    assert history_path(tmp_path, link) == history_path(tmp_path, folder)
    assert history_path(tmp_path, folder) != history_path(tmp_path, tmp_path)


def test_a_git_file_that_says_nonsense_is_as_good_as_none(tmp_path: Path) -> None:
    folder = tmp_path / "plain"
    folder.mkdir()
    without = history_path(tmp_path, folder)
    for nonsense in (b"", b"gitdir:", b"hello", b"gitdir: ../gone\n", b"\xff\xfe\x00"):
        (folder / ".git").write_bytes(nonsense)
        assert history_path(tmp_path, folder) == without


@pytest.mark.timeout(20)
@pytest.mark.parametrize("name", [".git", ".git/commondir"])
def test_a_pipe_of_a_hostile_repository_does_not_block(tmp_path: Path, name: str) -> None:
    pipe = tmp_path / "project" / name
    pipe.parent.mkdir(parents=True)
    os.mkfifo(pipe)
    assert history_path(tmp_path, tmp_path / "project").is_relative_to(tmp_path)
