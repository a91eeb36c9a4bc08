"""What git says in the box about the synced tree, compared with what it says here."""

from __future__ import annotations

import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.git_repo import ENVIRON, Repo, operate

from watchtest.agent.mirror import Mirror
from watchtest.core.events import EVERYTHING
from watchtest.core.model import Entry, EntryKind, difference
from watchtest.errors import SourceMoved
from watchtest.sources.box_repository import BoxRepository, IndexSource, index_content
from watchtest.sources.git_tree import GitTree, TreeId
from watchtest.sources.worktree import Worktree

QUESTIONS = (
    "status --porcelain",
    "status --porcelain --untracked-files=no",
    "ls-files --stage",
    "rev-list --count HEAD",
    "rev-list --count --first-parent HEAD",
    "describe --tags",
    "describe --long",
    "describe --tags --dirty --always --first-parent --match v*",
    "rev-parse --abbrev-ref HEAD",
    "rev-parse --is-shallow-repository",
    "log -1 --format=%cI",
    "tag --merged HEAD --format=%(objecttype)%(refname)",
    "tag --points-at HEAD",
    "diff --quiet",
    "diff --quiet HEAD",
    "diff --name-status HEAD",
    "ls-tree -r HEAD",
)
ANY_ID = re.compile(r"^[0-9a-f]{7,}(?=\b|-)|(?<=-g)[0-9a-f]{7,}", re.MULTILINE)


class BoxTree:
    """A box's tree with a mirror of its own, filled as a lane fills it."""

    def __init__(self, repo: Repo, folder: Path, source: Worktree | GitTree, index: IndexSource) -> None:
        self.repo = repo
        self.root = folder / "tree"
        (folder / "home").mkdir(parents=True)
        self.mirror = Mirror(str(self.root), str(folder / "home"))
        self.repository = BoxRepository(repo.root, index, ENVIRON)
        self._source = source
        self._entries: dict[str, Entry] = {}

    def sync(self) -> set[str]:
        """Bring the box to the present state and return the paths that were written."""
        snapshot = self._source.snapshot(frozenset({EVERYTHING}))
        repository = self.repository.entries(snapshot)
        for path, *row in self.mirror.drift():
            self._entries.pop(path, None)
            if row[0] is not None:
                self._entries[path] = Entry(EntryKind(row[0]), *row[1:])
        wanted = {**snapshot.entries, **repository}
        delta = difference(self._entries, wanted)
        generation = self.mirror.generation
        assert generation is not None
        self.mirror.begin(generation)
        self.mirror.remove(delta.remove)
        self.mirror.claim(delta.write)
        for path, entry in sorted(delta.write.items(), key=lambda item: item[0].count("/")):
            source = self.repository if path in repository else self._source
            content = b"" if entry.kind is EntryKind.FOLDER else source.read(path, entry)
            self.mirror.write([path, entry.kind.value, entry.mode, entry.size, entry.digest], content, True)
        self.mirror.commit(generation + 1)
        self._entries = wanted
        return set(delta.write)

    def git(self, *arguments: str) -> tuple[int, str]:
        return ask(self.root, *arguments)

    def here(self, *arguments: str) -> tuple[int, str]:
        return ask(self.repo.root, *arguments)


def ask(folder: Path, *arguments: str) -> tuple[int, str]:
    done = subprocess.run(
        ["git", *arguments], cwd=folder, env=dict(ENVIRON), capture_output=True, timeout=30, check=False
    )
    return done.returncode, ANY_ID.sub("ID", done.stdout.decode("utf-8", "surrogateescape"))


@pytest.fixture
def repo(tmp_path: Path) -> Repo:
    return Repo(tmp_path / "repo")


@pytest.fixture
def box(repo: Repo, tmp_path: Path) -> Iterator[BoxTree]:
    box = BoxTree(repo, tmp_path / "box", Worktree(repo.root, ignore=(), include=(), environ=ENVIRON), "index")
    yield box
    box.repository.close()


def answers(folder: Path) -> dict[str, tuple[int, str]]:
    return {question: ask(folder, *question.split(" ")) for question in QUESTIONS}


def test_two_hundred_operations_leave_the_answers_of_git_equal(repo: Repo, box: BoxTree) -> None:
    chance = random.Random(5)
    repo.save("a.py", "1\n")
    repo.commit()
    repo.git("branch", "other")
    compared = 0
    for number in range(200):
        operate(repo, chance, number)
        if chance.random() < 0.1:
            annotated = ("-a", "-m", "text") if chance.random() < 0.5 else ()
            repo.git("tag", "-f", *annotated, chance.choice([f"v{number}", "v1", "release/1"]), check=False)
        if chance.random() < 0.1:
            repo.git("merge", "--quiet", "--no-edit", "-X", "ours", chance.choice(["main", "other"]), check=False)
            if repo.git("ls-files", "--unmerged"):
                repo.git("reset", "--quiet", "--hard")
        if chance.random() < 0.2:
            box.sync()
            assert answers(box.root) == answers(repo.root), number
            assert box.mirror.drift() == []
            compared += 1
    assert compared > 20
    assert box.git("fsck", "--full", "--strict", "--no-dangling") == (0, "")


def test_before_the_first_commit_the_index_is_there(repo: Repo, box: BoxTree) -> None:
    repo.save("a.py", "1\n")
    repo.git("add", "a.py")
    repo.save("b.py", "2\n")
    box.sync()
    assert box.git("status", "--porcelain", "--branch") == (0, "## No commits yet on main\nA  a.py\n?? b.py\n")


def test_a_detached_head_and_a_shallow_clone_are_seen(repo: Repo, tmp_path: Path) -> None:
    for number in range(5):
        repo.save("a.py", f"{number}\n")
        repo.commit()
    shallow = tmp_path / "shallow"
    repo.git("clone", "--quiet", "--depth=2", f"file://{repo.root}", str(shallow))
    clone = Repo(shallow)
    clone.git("checkout", "--quiet", "--detach")
    box = BoxTree(clone, tmp_path / "box", Worktree(shallow, ignore=(), include=(), environ=ENVIRON), "index")
    box.sync()
    assert answers(box.root) == answers(shallow)
    assert box.git("rev-parse", "--is-shallow-repository") == (0, "true\n")
    assert box.git("rev-list", "--count", "HEAD") == (0, "2\n")


def test_nothing_of_people_messages_remotes_branches_or_settings_comes_along(repo: Repo, box: BoxTree) -> None:
    repo.save("old.txt", "what was there before")
    repo.commit("a message of mine")
    repo.git("rm", "--quiet", "old.txt")
    repo.save("a.py", "1\n")
    repo.commit()
    repo.git("branch", "secret-branch")
    repo.git("tag", "-a", "-m", "a note of mine", "v1")
    repo.git("remote", "add", "origin", "https://name:word@example.org/x.git")
    repo.git("config", "alias.x", "!touch here")
    repo.save(".git/hooks/post-checkout", "#!/bin/sh\n").chmod(0o755)
    box.sync()
    _, objects = box.git("cat-file", "--batch-all-objects", "--batch")
    everything = objects + "".join(
        file.read_text("latin-1") for file in sorted((box.root / ".git").rglob("*")) if file.is_file()
    )
    for word in ("what was there", "of mine", "a@example.org", "secret-branch", "origin", "alias", "word", "touch"):
        assert word not in everything
    assert not (box.root / ".git" / "hooks").exists()


def test_a_state_that_has_not_moved_is_not_looked_at_again(
    repo: Repo, box: BoxTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    box.sync()
    repo.save("a.py", "2\n")

    def refuse(*_arguments: object, **_options: object) -> None:
        raise AssertionError("no process may be started")

    snapshot = Worktree(repo.root, ignore=(), include=(), environ=ENVIRON).snapshot()
    before = box.repository.entries(snapshot)
    monkeypatch.setattr(subprocess, "run", refuse)
    assert box.repository.entries(snapshot) is before


def test_a_commit_sends_only_what_is_new(repo: Repo, box: BoxTree) -> None:
    chance = random.Random(1)
    for number in range(20):
        repo.save(f"f{number}.bin", chance.randbytes(10_000))
    repo.commit()
    box.sync()
    repo.save("f1.bin", "small")
    repo.commit()
    written = box.sync()
    assert sum((box.root / path).stat().st_size for path in written) < 10_000
    assert box.git("fsck", "--full", "--no-dangling") == (0, "")


def test_after_a_clean_up_of_temporary_files_the_repository_is_made_again(repo: Repo, box: BoxTree) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    box.sync()
    shutil.rmtree(box.repository._store.packs.parents[1])
    shutil.rmtree(box.root / ".git")
    with pytest.raises(SourceMoved, match="clean-up"):
        box.sync()
    box.mirror.generation = 1
    box.sync()
    assert answers(box.root) == answers(repo.root)


def test_what_a_test_does_to_the_repository_is_undone(repo: Repo, box: BoxTree) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    repo.git("tag", "v1")
    box.sync()
    (box.root / "a.py").write_text("2\n")
    box.git("-c", "user.name=t", "-c", "user.email=t@example.org", "commit", "--quiet", "-am", "by a test")
    box.git("config", "user.name", "by a test")
    box.git("checkout", "--quiet", "-b", "elsewhere")
    box.git("tag", "v2/by-a-test")
    (box.root / ".git" / "index.lock").touch()
    assert box.git("describe", "--tags")[1] != "v1\n"
    box.sync()
    assert answers(box.root) == answers(repo.root)
    assert box.git("for-each-ref", "--format=%(refname)") == (0, "refs/heads/main\nrefs/tags/v1\n")
    assert box.git("add", "a.py") == (0, "")


def test_nothing_is_removed_behind_a_link_that_a_test_has_made(repo: Repo, box: BoxTree, tmp_path: Path) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    box.sync()
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "file").write_text("mine")
    for name in ("refs/tags", "refs"):
        shutil.rmtree(box.root / ".git" / name, ignore_errors=True)
        (box.root / ".git" / name).symlink_to(mine)
        box.sync()
        assert (mine / "file").read_text() == "mine"
        assert box.git("rev-parse", "--abbrev-ref", "HEAD") == (0, "main\n")


def test_files_that_are_left_out_of_the_box_do_not_make_it_dirty(repo: Repo, tmp_path: Path) -> None:
    repo.save("a.py", "1\n")
    repo.save("big.bin", b"x" * 3000)
    repo.save("gone.py", "1\n")
    repo.commit()
    (repo.root / "gone.py").unlink()
    worktree = Worktree(repo.root, ignore=(), include=(), environ=ENVIRON, max_file_bytes=1000)
    box = BoxTree(repo, tmp_path / "box", worktree, "index")
    box.sync()
    assert not (box.root / "big.bin").exists()
    assert box.git("status", "--porcelain") == (0, " D gone.py\n")


def test_files_that_a_filter_stores_in_another_form_do_not_make_it_dirty(repo: Repo, box: BoxTree) -> None:
    repo.git("config", "filter.up.clean", "tr a-z A-Z")
    repo.git("config", "filter.up.smudge", "tr A-Z a-z")
    repo.save(".gitattributes", "*.up filter=up\n")
    for name in ("a.up", "new\nline.up", "b.up"):
        repo.save(name, "text\n")
    repo.commit()
    repo.save("b.up", "changed\n")
    repo.save("c.txt", "1\n")
    box.sync()
    assert box.git("status", "--porcelain") == box.here("status", "--porcelain") == (0, " M b.up\n?? c.txt\n")


@pytest.mark.parametrize("which", ["index", "head"])
def test_the_box_of_a_git_lane_equals_a_checkout(which: IndexSource, repo: Repo, tmp_path: Path) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    repo.save("a.py", "2\n")
    repo.git("add", "a.py")
    repo.save("a.py", "3\n")
    source = GitTree(repo.root, which, environ=ENVIRON, max_file_bytes=10**6)
    box = BoxTree(repo, tmp_path / "box", source, which)
    box.sync()
    assert box.git("status", "--porcelain") == (0, "M  a.py\n" if which == "index" else "")
    source.close()


def test_the_box_of_an_earlier_commit_is_at_that_commit(repo: Repo, tmp_path: Path) -> None:
    repo.save("a.py", "1\n")
    commit = repo.commit()
    repo.git("tag", "v1")
    repo.save("a.py", "2\n")
    repo.commit()
    tree = TreeId(repo.git("rev-parse", f"{commit}^{{tree}}"), commit)
    source = GitTree(repo.root, tree, environ=ENVIRON, max_file_bytes=10**6)
    box = BoxTree(repo, tmp_path / "box", source, "head")
    box.sync()
    assert box.git("status", "--porcelain", "--branch") == (0, "## HEAD (no branch)\n")
    assert box.git("describe", "--tags", "--dirty") == (0, "v1\n")
    source.close()


def test_a_folder_of_a_repository_is_a_repository_of_its_own(repo: Repo, tmp_path: Path) -> None:
    repo.save("app/a.py", "1\n")
    repo.save("else/b.py", "1\n")
    repo.commit()
    repo.git("tag", "v1")
    repo.save("app/new.py", "1\n")
    folder = repo.root / "app"
    box = BoxTree(repo, tmp_path / "box", Worktree(folder, ignore=(), include=(), environ=ENVIRON), "index")
    box.repository = BoxRepository(folder, "index", ENVIRON)
    box.sync()
    assert box.git("status", "--porcelain") == (0, "?? new.py\n")
    assert box.git("describe", "--tags") == (0, "v1\n")


def test_symlinks_and_strange_names_are_clean(repo: Repo, box: BoxTree) -> None:
    (repo.root / "link").symlink_to("nowhere")
    for name in (b"\xff\xfe", b"new\nline", b"tab\t", "日本".encode(), b"x" * 200):
        (repo.root / name.decode("utf-8", "surrogateescape")).write_text("x")
    repo.commit()
    box.sync()
    assert answers(box.root) == answers(repo.root)


@pytest.mark.parametrize("date", ["1200000000 -7000", "99999999999999 +0100", "1200000000 +051800"])
def test_dates_that_git_would_refuse_today_do_no_harm(date: str, repo: Repo, box: BoxTree) -> None:
    repo.save("a.py", "1\n")
    repo.commit()
    tree = repo.git("rev-parse", "HEAD^{tree}")
    who = f"a <a@example.org> {date}"
    body = f"tree {tree}\nauthor {who}\ncommitter {who}\n\nold\n"
    file = repo.save("body", body)
    old = repo.git("hash-object", "-t", "commit", "-w", "--literally", str(file))
    file.unlink()
    repo.git("reset", "--quiet", "--hard", old)
    repo.git("tag", "v1")
    repo.commit()
    box.sync()
    assert box.git("rev-list", "--count", "HEAD") == (0, "2\n")
    assert box.git("describe", "--tags") == box.here("describe", "--tags")


@pytest.mark.parametrize("branch", ["../../x", "a/../b", "-x\ny", ".hidden", "x.lock", "a//b"])
def test_a_branch_whose_name_git_would_refuse_is_not_written(branch: str, repo: Repo, box: BoxTree) -> None:
    repo.save("a.py", "1\n")
    commit = repo.commit()
    (repo.root / ".git" / "HEAD").write_text(f"ref: refs/heads/{branch}\n")
    snapshot = Worktree(repo.root, ignore=(), include=(), environ=ENVIRON).snapshot()
    entries = box.repository.entries(snapshot)
    assert not any(".." in path or path.startswith(".git/refs/heads/") for path in entries)
    assert commit


def test_without_a_repository_there_is_none_in_the_box(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("1\n")
    repository = BoxRepository(tmp_path, "index", {**ENVIRON, "GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    assert repository.entries(Worktree(tmp_path, ignore=(), include=(), environ=ENVIRON).snapshot()) == {}


def test_an_index_without_entries_is_valid(repo: Repo) -> None:
    (repo.root / ".git" / "index").write_bytes(index_content([]))
    assert repo.git("status", "--porcelain") == ""
