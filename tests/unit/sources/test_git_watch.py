"""Which changes of a repository are reported, and when its state is not trusted. Uses real git and a real clock."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from support.git_repo import ENVIRON, Repo

from watchtest.sources.git import Git
from watchtest.sources.git_tree import GitTree
from watchtest.sources.git_watch import GitChange, GitWatch, blocker

QUIET_S = 1.0
LIMIT_S = 10.0


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    repo = Repo(tmp_path / "repo")
    repo.save("a.py", "1\n")
    repo.commit()
    return repo


@pytest.fixture
def seen(repo: Repo) -> Iterator[Callable[[Callable[[], object]], list[GitChange]]]:
    """Return what is reported after an action, until nothing new comes for a while; without the initial state."""
    tree = GitTree(repo.root, "index", environ=ENVIRON, max_file_bytes=10**6)

    async def collect(action: Callable[[], object]) -> list[GitChange]:
        watch = GitWatch(Git(repo.root, ENVIRON), tree.tree)
        queue: asyncio.Queue[GitChange] = asyncio.Queue()

        async def listen() -> None:
            async for news in watch.changes():
                queue.put_nowait(news)

        listener = asyncio.create_task(listen())
        try:
            await asyncio.wait_for(queue.get(), LIMIT_S)
            await asyncio.to_thread(action)
            found = []
            while True:
                try:
                    found.append(await asyncio.wait_for(queue.get(), QUIET_S))
                except TimeoutError:
                    return [news for news in found if news.index or news.head or news.blocker or news.conflict]
        finally:
            listener.cancel()
            await asyncio.gather(listener, return_exceptions=True)

    yield lambda action: asyncio.run(collect(action))
    tree.close()


Seen = Callable[[Callable[[], object]], list[GitChange]]


def test_git_status_in_a_loop_tells_nothing(repo: Repo, seen: Seen) -> None:
    def ask_often() -> None:
        for _ in range(20):
            (repo.root / "a.py").touch()
            repo.git("status")

    # A slow git may be observed at work; that is news, but not a change.
    assert [news for news in seen(ask_often) if news.index or news.head] == []


def test_staging_is_told_once_with_gits_own_id(repo: Repo, seen: Seen, tmp_path: Path) -> None:
    repo.save("b.py", "2\n")
    (news,) = seen(lambda: repo.git("add", "b.py"))
    assert news == GitChange(index=repo.staged_tree(tmp_path))


def test_a_commit_moves_head_alone(repo: Repo, seen: Seen) -> None:
    repo.save("b.py", "2\n")
    repo.git("add", "b.py")
    (news,) = seen(lambda: repo.git("commit", "--quiet", "-m", "x"))
    assert news == GitChange(head=repo.git("rev-parse", "HEAD"))


def test_a_stream_that_fails_is_replaced(repo: Repo, seen: Seen, monkeypatch: pytest.MonkeyPatch) -> None:
    inotify = pytest.importorskip("watchtest.sources.inotify")
    wait, failures = inotify.InotifyStream.wait, [OSError("cannot be read")]

    def fail_once(stream: object) -> frozenset[str]:
        if failures:
            raise failures.pop()
        return frozenset(wait(stream))

    monkeypatch.setattr(inotify.InotifyStream, "wait", fail_once)
    (news,) = seen(lambda: repo.git("commit", "--quiet", "--allow-empty", "-m", "x"))
    assert (news, failures) == (GitChange(head=repo.git("rev-parse", "HEAD")), [])


@pytest.mark.parametrize(
    "arguments",
    [
        ("commit", "--quiet", "--amend", "-m", "other words"),
        ("reset", "--quiet", "--hard", "HEAD~1"),
        ("checkout", "--quiet", "--detach", "HEAD~1"),
        ("checkout", "--quiet", "other"),
        ("merge", "--quiet", "other"),
        ("cherry-pick", "other"),
        ("update-ref", "refs/heads/main", "HEAD~1"),
    ],
)
def test_every_way_of_moving_head_is_told(repo: Repo, seen: Seen, arguments: tuple[str, ...]) -> None:
    repo.git("checkout", "--quiet", "-b", "other")
    repo.save("other.py", "1\n")
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    repo.save("b.py", "2\n")
    repo.commit()
    repo.git("pack-refs", "--all")
    told = seen(lambda: repo.git(*arguments))
    assert [news.head for news in told if news.head] == [repo.git("rev-parse", "HEAD")]


def test_a_rebase_of_ten_commits_is_told_once_at_its_end(repo: Repo, seen: Seen) -> None:
    base = repo.git("rev-parse", "HEAD")
    for number in range(10):
        repo.save(f"{number}.py", "x\n")
        repo.commit(str(number))

    def rebase() -> None:
        # Stop at each commit, as with `edit`, and continue from there.
        editor = "sed -i s/^pick/edit/"
        repo.git("rebase", "--quiet", "-i", base, GIT_SEQUENCE_EDITOR=editor, check=False)
        for _ in range(12):
            if not (repo.root / ".git" / "rebase-merge").exists():
                return
            subprocess.run(["sleep", "0.25"], check=True, timeout=5)
            repo.git("commit", "--quiet", "--amend", "--no-edit", "--date=now", check=False)
            repo.git("rebase", "--continue", check=False)

    told = seen(rebase)
    assert [news.head for news in told if news.head] == [repo.git("rev-parse", "HEAD")]
    assert any("rebase" in news.blocker for news in told)


def test_a_merge_that_stands_is_waited_for(repo: Repo, seen: Seen) -> None:
    repo.git("checkout", "--quiet", "-b", "other")
    repo.save("a.py", "2\n")
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    repo.save("a.py", "3\n")
    repo.commit()

    def merge() -> None:
        repo.git("merge", "other", check=False)
        subprocess.run(["sleep", "0.6"], check=True, timeout=5)
        repo.save("a.py", "4\n")
        repo.git("add", "-A")
        subprocess.run(["sleep", "0.6"], check=True, timeout=5)
        repo.git("commit", "--quiet", "-m", "merged")

    told = seen(merge)
    assert told[0].blocker == "a merge is in progress"
    assert [news.head for news in told if news.head] == [repo.git("rev-parse", "HEAD")]


def test_a_lock_is_waited_for_and_named(repo: Repo, seen: Seen, tmp_path: Path) -> None:
    repo.save("b.py", "2\n")
    index, lock = repo.root / ".git" / "index", repo.root / ".git" / "index.lock"
    staged = tmp_path / "staged"
    shutil.copyfile(index, staged)
    repo.git("add", "b.py", GIT_INDEX_FILE=str(staged))

    def change_under_a_lock() -> None:
        lock.touch()
        shutil.copyfile(staged, index)
        subprocess.run(["sleep", "0.6"], check=True, timeout=5)
        lock.unlink()

    told = seen(change_under_a_lock)
    assert told == [GitChange(blocker="git is busy (index.lock)"), GitChange(index=repo.staged_tree(tmp_path))]


def test_a_lock_that_was_left_behind_is_named_with_what_to_do(repo: Repo) -> None:
    directory = Git(repo.root, ENVIRON).directory()
    lock = directory / "index.lock"
    lock.touch()
    assert blocker(directory) == "git is busy (index.lock)"
    os.utime(lock, (1, 1))
    assert blocker(directory).endswith(f"if no git command is running, delete {lock}")
    lock.unlink()
    assert blocker(directory) == ""


def test_a_conflict_is_told_and_so_is_its_end(repo: Repo, seen: Seen) -> None:
    repo.save("a.py", "2\n")
    repo.git("stash")
    repo.save("a.py", "3\n")
    repo.commit()

    def pop_and_resolve() -> None:
        repo.git("stash", "pop", check=False)
        subprocess.run(["sleep", "0.6"], check=True, timeout=5)
        repo.save("a.py", "4\n")
        repo.git("add", "a.py")

    told = [news for news in seen(pop_and_resolve) if not news.blocker]
    assert [bool(news.conflict) for news in told] == [True, False]
    assert "the index has unmerged paths: a.py" in told[0].conflict
    assert told[1].index == repo.git("write-tree")


@pytest.mark.parametrize("how", ["am", "cherry-pick", "revert", "rebase"])
def test_an_operation_that_stopped_is_named(repo: Repo, how: str, tmp_path: Path) -> None:
    repo.git("checkout", "--quiet", "-b", "other")
    repo.save("a.py", "2\n")
    repo.commit()
    repo.git("format-patch", "-1", "-o", str(tmp_path))
    repo.save("a.py", "5\n")
    repo.commit()
    repo.git("checkout", "--quiet", "main")
    repo.save("a.py", "3\n")
    repo.commit()
    (patch,) = tmp_path.glob("*.patch")
    repo.git(how, {"am": str(patch), "revert": "other~1"}.get(how, "other"), check=False)
    assert how in blocker(Git(repo.root, ENVIRON).directory())


def test_the_first_commit_of_all_is_told(tmp_path: Path) -> None:
    repo = Repo(tmp_path / "new")
    tree = GitTree(repo.root, "index", environ=ENVIRON, max_file_bytes=10**6)

    async def first() -> list[GitChange]:
        watch = GitWatch(Git(repo.root, ENVIRON), tree.tree)
        found = []
        async for news in watch.changes():
            found.append(news)
            if news.head:
                return found
            if len(found) == 1:
                repo.save("a.py", "1\n")
                repo.commit()
        return found

    try:
        told = asyncio.run(asyncio.wait_for(first(), LIMIT_S))
    finally:
        tree.close()
    assert told[-1].head == repo.git("rev-parse", "HEAD")
