"""Which files are left out, compared with what git itself would add."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from watchtest.core.model import EntryKind
from watchtest.errors import ConfigError
from watchtest.sources.ignore import IgnoreDecision, PathFilter
from watchtest.sources.worktree import Worktree


@pytest.fixture
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """An environment whose home has no git configuration."""
    home = tmp_path_factory.mktemp("home")
    who = {f"GIT_{role}_{what}": "x@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **who}


def git(folder: Path, environ: Mapping[str, str], *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=dict(environ), check=True, capture_output=True, text=True, timeout=60
    ).stdout


def write(root: Path, *names: str) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(os.fsencode(name))


def files(root: Path, environ: Mapping[str, str], ignore: Sequence[str] = (), include: Sequence[str] = ()) -> set[str]:
    snapshot = Worktree(root, ignore=ignore, include=include, environ=environ).snapshot()
    return {path for path, entry in snapshot.entries.items() if entry.kind is not EntryKind.FOLDER}


def test_nested_and_negated_ignore_files_and_both_kinds_of_excludes_count_as_in_git(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    write(
        tmp_path, "a.log", "keep.log", "x/a.log", "x/y/b.log", "x/y/z.txt", "secret", "mine.swp", "x/build/o", "build/o"
    )
    (tmp_path / ".gitignore").write_text("*.log\n!keep.log\nbuild/\n")
    (tmp_path / "x" / ".gitignore").write_text("!a.log\n!build/\n")
    (tmp_path / "x" / "y" / ".gitignore").write_text("z.*\n")
    (tmp_path / ".git" / "info" / "exclude").write_text("secret\n")
    global_excludes = Path(environ["HOME"]) / ".config" / "git" / "ignore"
    global_excludes.parent.mkdir(parents=True)
    global_excludes.write_text("*.swp\n")
    git(tmp_path, environ, "add", "-A")
    added = set(git(tmp_path, environ, "ls-files").split())
    assert files(tmp_path, environ) == added
    assert added == {".gitignore", "keep.log", "x/.gitignore", "x/a.log", "x/build/o", "x/y/.gitignore"}


def test_a_tracked_file_stays_in_though_a_pattern_matches_it_or_its_folder(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".gitignore").write_text("build/\n*.log\n")
    write(tmp_path, "build/deep/tracked", "build/deep/not", "build/other/not", "tracked.log", "not.log")
    git(tmp_path, environ, "add", "-f", "build/deep/tracked", "tracked.log")
    assert files(tmp_path, environ) == {".gitignore", "build/deep/tracked", "tracked.log"}


def test_an_ignored_file_that_becomes_tracked_comes_in_and_one_that_ceases_to_be_goes(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".gitignore").write_text("*.log\n")
    write(tmp_path, "a.log")
    worktree = Worktree(tmp_path, ignore=(), include=(), environ=environ)
    assert "a.log" not in worktree.snapshot().entries
    assert worktree.relevant(["a.log"]) == frozenset()
    git(tmp_path, environ, "add", "-f", "a.log")
    assert worktree.relevant(["a.log"]) == {"a.log"}
    assert "a.log" in worktree.snapshot(hint=frozenset({".gitignore"})).entries
    git(tmp_path, environ, "rm", "-q", "--cached", "a.log")
    assert "a.log" not in worktree.snapshot().entries


def test_changed_ignore_files_and_excludes_are_heeded_by_the_next_snapshot(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    write(tmp_path, "x/a.log", "x/b.txt")
    worktree = Worktree(tmp_path, ignore=(), include=(), environ=environ)
    assert set(worktree.snapshot().entries) == {"x/a.log", "x/b.txt"}
    (tmp_path / "x" / ".gitignore").write_text("*.log\n")
    assert set(worktree.snapshot(frozenset({"x/.gitignore"})).entries) == {"x/.gitignore", "x/b.txt"}
    (tmp_path / "x" / ".gitignore").write_text("*.txt\n")  # same size, probably in the same clock tick
    assert set(worktree.snapshot().entries) == {"x/.gitignore", "x/a.log"}
    (tmp_path / ".git" / "info" / "exclude").write_text(".gitignore\n")
    assert set(worktree.snapshot(frozenset()).entries) == {"x/a.log"}
    # An ignore file that is itself ignored still applies.
    (tmp_path / "x" / ".gitignore").write_text("*.log\n")
    assert set(worktree.snapshot(frozenset({"x/.gitignore"})).entries) == {"x/b.txt"}
    (tmp_path / "x" / ".gitignore").unlink()
    assert set(worktree.snapshot().entries) == {"x/a.log", "x/b.txt"}


def test_nasty_names_are_judged_by_their_names_and_not_as_patterns(tmp_path: Path, environ: Mapping[str, str]) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    odd = [":(top)x", ":!y", "*", "a b\n", "-z", "\udcff", "é", "[x]", "x"]
    for name in odd:
        write(tmp_path, name, f"{name}d/{name}")
    (tmp_path / ".gitignore").write_text("/x\n")
    expected = {name for odd_name in odd for name in (odd_name, f"{odd_name}d/{odd_name}")} - {"x"}
    assert files(tmp_path, environ) == expected | {".gitignore"}


def test_git_folders_and_our_own_are_out_at_every_level_whatever_include_says(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    write(tmp_path, ".watchtest/status.json", "a/.watchtest/x", "a/.git", "a/b")
    assert files(tmp_path, environ, include=[".watchtest/", ".git/", "a/.git"]) == {"a/b"}


def test_own_globs_leave_more_out_and_bring_ignored_paths_back(tmp_path: Path, environ: Mapping[str, str]) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".gitignore").write_text("build/\n.env\n*.so\n")
    write(
        tmp_path,
        "build/gen/a.py",
        "build/gen/a.o",
        "build/other/b.py",
        "lib/x.so",
        ".env",
        "docs/a",
        "docs/keep/b",
        "c",
    )
    got = files(
        tmp_path, environ, ignore=["docs/", ".gitignore"], include=["build/gen/*.py", ".env", "*.so", "docs/keep/"]
    )
    assert got == {"build/gen/a.py", ".env", "lib/x.so", "docs/keep/b", "c"}


def test_a_folder_that_is_entered_only_for_what_is_below_is_no_entry_of_its_own(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".gitignore").write_text("build/\n")
    write(tmp_path, "build/gen/a.o")
    snapshot = Worktree(tmp_path, ignore=(), include=["build/gen/*.py"], environ=environ).snapshot()
    assert set(snapshot.entries) == {".gitignore"}


def test_a_pattern_that_cannot_be_read_is_a_config_error(tmp_path: Path, environ: Mapping[str, str]) -> None:
    with pytest.raises(ConfigError, match="ignore"):
        Worktree(tmp_path, ignore=["!"], include=(), environ=environ)


def test_nested_repositories_and_submodules_answer_for_themselves(tmp_path: Path, environ: Mapping[str, str]) -> None:
    outer, library = tmp_path / "outer", tmp_path / "library"
    for folder in (outer, library, outer / "nested"):
        folder.mkdir(exist_ok=True)
        git(folder, environ, "init", "-q", ".")
    write(library, "code.py", "code.log")
    (library / ".gitignore").write_text("*.log\n")
    git(library, environ, "add", "-A")
    git(library, environ, "commit", "-qm", "x")
    write(outer / "nested", "n.py", "n.tmp")
    (outer / "nested" / ".git" / "info" / "exclude").write_text("*.tmp\n")
    git(outer, environ, "-c", "protocol.file.allow=always", "submodule", "--quiet", "add", str(library), "sub")
    git(outer, environ, "commit", "-qm", "x")
    write(outer, "sub/new.log", "sub/new.py", "top.tmp")
    worktree = Worktree(outer, ignore=(), include=(), environ=environ)
    inside = {"sub/.gitignore", "sub/code.py", "sub/new.py", "nested/n.py", "top.tmp", ".gitmodules"}
    assert set(worktree.snapshot().entries) == inside
    assert worktree.notes == ()
    # Without its .git the folder belongs to the outer repository again, whose index still calls it a submodule.
    (outer / "sub" / ".git").unlink()
    assert {"sub/code.py", "sub/new.py", "nested/n.py"} <= set(worktree.snapshot().entries)


def test_a_workspace_below_the_top_level_heeds_the_ignore_files_above_it(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".gitignore").write_text("*.log\n")
    write(tmp_path, "a/b/x.log", "a/b/x.txt")
    worktree = Worktree(tmp_path / "a" / "b", ignore=(), include=(), environ=environ)
    assert set(worktree.snapshot().entries) == {"x.txt"}
    (tmp_path / ".gitignore").write_text("*.txt\n# longer\n")
    assert set(worktree.snapshot(frozenset()).entries) == {"x.log"}


def test_a_workspace_that_the_repository_around_it_ignores_is_judged_without_git_and_says_so(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".gitignore").write_text("*\n")
    write(tmp_path, "sandbox/project/x.py")
    worktree = Worktree(tmp_path / "sandbox" / "project", ignore=(), include=(), environ=environ)
    assert set(worktree.snapshot().entries) == {"x.py"}
    assert "ignores this folder" in worktree.notes[0]


def test_without_a_repository_built_in_names_and_ignore_files_are_left_out(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    junk = ["__pycache__/a.pyc", "b.pyc", ".venv/x", "venv/x", "node_modules/x", ".tox/x", ".nox/x", ".mypy_cache/x"]
    junk += [".pytest_cache/x", ".ruff_cache/x", ".hypothesis/x", "y.egg-info/x", ".DS_Store", "sub/.venv/x"]
    write(tmp_path, *junk, "code.py", "sub/code.py", "sub/x.log", "sub/deep/y.log", "sub/deep/keep.log")
    (tmp_path / "sub" / ".gitignore").write_text("*.log\n")
    (tmp_path / "sub" / "deep" / ".gitignore").write_text("!keep.log\n")
    worktree = Worktree(tmp_path, ignore=(), include=(), environ=environ)
    assert set(worktree.snapshot().entries) == {
        *("code.py", "sub/.gitignore", "sub/code.py", "sub/deep/.gitignore", "sub/deep/keep.log"),
    }
    assert worktree.notes == ()
    (tmp_path / "sub" / ".gitignore").unlink()
    assert {"sub/x.log", "sub/deep/y.log"} <= set(worktree.snapshot(frozenset({"sub/.gitignore"})).entries)


def test_without_git_installed_the_walk_is_plain_and_a_note_says_so(tmp_path: Path, environ: Mapping[str, str]) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    write(tmp_path, "code.py", "__pycache__/a.pyc", "x.log")
    (tmp_path / ".gitignore").write_text("*.log\n")
    worktree = Worktree(tmp_path, ignore=(), include=(), environ={**environ, "PATH": str(tmp_path / "nowhere")})
    snapshot = worktree.snapshot()
    assert set(snapshot.entries) == {".gitignore", "code.py"}
    assert (snapshot.head, snapshot.branch, snapshot.dirty) == (None, None, None)
    assert "without git" in worktree.notes[0]
    assert "Install git" in worktree.notes[0]


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs root to own a folder as another user"
)
def test_a_repository_of_another_user_is_walked_plainly_and_the_note_says_what_to_do(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    write(tmp_path, "code.py")
    for place in (tmp_path, tmp_path / ".git"):
        os.chown(place, 65534, 65534)
    worktree = Worktree(tmp_path, ignore=(), include=(), environ=environ)
    assert set(worktree.snapshot().entries) == {"code.py"}
    assert "safe.directory" in worktree.notes[0]


def test_a_repository_that_begins_or_ends_under_our_eyes_is_noticed(tmp_path: Path, environ: Mapping[str, str]) -> None:
    write(tmp_path, "a.xyz", "b.py")
    (tmp_path / ".gitignore").write_text("b.py\n")
    worktree = Worktree(tmp_path, ignore=(), include=(), environ=environ)
    assert set(worktree.snapshot().entries) == {".gitignore", "a.xyz"}
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".git" / "info" / "exclude").write_text("*.xyz\n")
    git(tmp_path, environ, "commit", "-q", "--allow-empty", "-m", "x")
    assert set(worktree.snapshot().entries) == {".gitignore"}
    (tmp_path / ".git").rename(tmp_path.parent / "taken away")
    snapshot = worktree.snapshot()
    assert set(snapshot.entries) == {".gitignore", "a.xyz"}
    assert snapshot.head is None


def test_no_command_of_a_hostile_repository_is_run(tmp_path: Path, environ: Mapping[str, str]) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    write(tmp_path, "a.py")
    git(tmp_path, environ, "add", "-A")
    git(tmp_path, environ, "commit", "-qm", "x")
    trap = tmp_path.parent / "trap"
    trap.write_text(f"#!/bin/sh\ntouch {tmp_path.parent}/sprung\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "core.pager", "core.editor", "diff.external", "filter.x.clean", "core.sshCommand"):
        git(tmp_path, environ, "config", key, str(trap))
    (tmp_path / ".gitattributes").write_text("* filter=x\n")
    write(tmp_path, "b.py")
    assert "b.py" in files(tmp_path, environ)
    assert not (tmp_path.parent / "sprung").exists()


def test_the_index_of_the_user_is_never_written(tmp_path: Path, environ: Mapping[str, str]) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    write(tmp_path, "a.py")
    git(tmp_path, environ, "add", "-A")
    git(tmp_path, environ, "commit", "-qm", "x")
    (tmp_path / "a.py").touch()
    index = tmp_path / ".git" / "index"
    before = {place: place.stat().st_mtime_ns for place in tmp_path.joinpath(".git").rglob("*")}
    worktree = Worktree(tmp_path, ignore=(), include=(), environ=environ)
    worktree.snapshot()
    worktree.snapshot(frozenset({"a.py"}))
    assert index in before
    assert {place: place.stat().st_mtime_ns for place in tmp_path.joinpath(".git").rglob("*")} == before


def test_the_environment_of_a_git_hook_does_not_lead_us_to_another_repository(
    tmp_path: Path, environ: Mapping[str, str]
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        git(folder, environ, "init", "-q", ".")
    (here / ".git" / "info" / "exclude").write_text("*.log\n")
    write(here, "a.log", "a.py")
    hook = {"GIT_DIR": str(there / ".git"), "GIT_INDEX_FILE": str(there / "index"), "GIT_WORK_TREE": str(there)}
    assert files(here, {**environ, **hook}) == {"a.py"}


def test_paths_that_were_not_queried_are_included_when_in_doubt(tmp_path: Path, environ: Mapping[str, str]) -> None:
    git(tmp_path, environ, "init", "-q", ".")
    (tmp_path / ".gitignore").write_text("out/\n*.log\n")
    ignore = PathFilter(tmp_path, (), (), environ)
    assert not ignore.is_left_out("out/x")
    write(tmp_path, "out/x", "a.log", "a.py")
    ignore.learn(["out/x", "a.log", "a.py", "gone/x"])
    assert ignore.decision("out/") is IgnoreDecision.OUT
    assert [
        ignore.is_left_out(path) for path in ("out", "out/x", "out/new", "a.log", "a.py", "gone/x", ".git/index")
    ] == [
        *(True, True, True, True, False, False, True),
    ]
