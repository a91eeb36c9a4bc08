"""Files that may hold secrets are left out, with a notice, until git tracks them or the user includes them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from watchtest.core.events import EVERYTHING
from watchtest.core.model import EntryKind, ExcludedPath, Snapshot
from watchtest.sources.secret_files import REASON, may_hold_secrets
from watchtest.sources.worktree import Worktree


@pytest.fixture
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    home = tmp_path_factory.mktemp("home")
    who = {f"GIT_{role}_{what}": "x@example.org" for role in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1", **who}


@pytest.fixture
def root(tmp_path: Path, environ: Mapping[str, str]) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    git(folder, environ, "init", "-q")
    return folder


def git(folder: Path, environ: Mapping[str, str], *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, env=dict(environ), check=True, timeout=60)


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("KEY=hush\n")


def files_of(snapshot: Snapshot) -> set[str]:
    return {path for path, entry in snapshot.entries.items() if entry.kind is EntryKind.FILE}


def left_out(snapshot: Snapshot) -> set[str]:
    assert {one.reason for one in snapshot.excluded} <= {REASON}
    return {one.path for one in snapshot.excluded}


@pytest.mark.parametrize(
    "path",
    [
        *(".env", "deploy/.env", ".env.local", ".env.production", ".env.test.local", ".ENV", ".envrc"),
        *("a.pem", "A.PEM", "certs/server.key", "store.p12", "x.pfx", "x.jks", "x.keystore", "passwords.kdbx"),
        *("id_rsa", "id_rsa.old", "id_rsa_work", "id_ed25519", "id_ecdsa_sk", ".netrc", ".pypirc", ".git-credentials"),
        *(".aws/credentials", "home/.aws/credentials", "service-account.json", "service_account-prod.json"),
        *("client_secret_1.json", "credentials.json", ".npmrc", ".docker/config.json", ".kube/config"),
    ],
)
def test_these_may_hold_secrets(path: str) -> None:
    assert may_hold_secrets(path)


@pytest.mark.parametrize(
    "path",
    [
        *(
            ".env.example",
            "a/.env.sample",
            ".env.template",
            ".env.dist",
            ".env.test",
            ".env.local.example",
            ".environment",
        ),
        *(
            "id_rsa.pub",
            "id_ed25519.pub",
            "id_rsa_test.py",
            "id_rsa.md",
            "key.py",
            "pem",
            "keys/a.py",
            "env",
            "a.pem/b",
        ),
        *("credentials", "aws/credentials", "x.aws/credentials", "config.json", "service-account.yaml", "monkey.json"),
    ],
)
def test_these_do_not(path: str) -> None:
    assert not may_hold_secrets(path)


def test_an_untracked_secret_is_left_out_and_it_is_said_how_to_have_it(root: Path, environ: Mapping[str, str]) -> None:
    write(root, "a.py", ".env", "deep/down/x.pem")
    snapshot = Worktree(root, ignore=(), include=(), environ=environ).snapshot()
    assert files_of(snapshot) == {"a.py"}
    assert snapshot.excluded == (ExcludedPath(".env", REASON), ExcludedPath("deep/down/x.pem", REASON))
    assert "watch.include" in REASON


def test_a_secret_that_git_ignores_is_left_out_like_all_others(root: Path, environ: Mapping[str, str]) -> None:
    write(root, ".env")
    (root / ".gitignore").write_text(".env\n")
    snapshot = Worktree(root, ignore=(), include=(), environ=environ).snapshot()
    assert (files_of(snapshot), left_out(snapshot)) == ({".gitignore"}, set())


def test_what_the_user_includes_is_in(root: Path, environ: Mapping[str, str]) -> None:
    write(root, ".env", "certs/a.pem", "certs/b.pem", "other.pem")
    worktree = Worktree(root, ignore=(), include=(".env", "certs/a.pem"), environ=environ)
    snapshot = worktree.snapshot()
    assert files_of(snapshot) == {".env", "certs/a.pem"}
    assert left_out(snapshot) == {"certs/b.pem", "other.pem"}


def test_a_tracked_file_is_no_secret_whatever_its_case(root: Path, environ: Mapping[str, str]) -> None:
    paths = (".env", "tests/server.pem", "tests/Client.Key", ".aws/credentials", "deep/.AWS/credentials", "id_rsa.old")
    write(root, *paths)
    git(root, environ, "add", "-A")
    git(root, environ, "commit", "-qm", "x")
    snapshot = Worktree(root, ignore=(), include=(), environ=environ).snapshot()
    assert files_of(snapshot) == {*paths}
    assert snapshot.excluded == ()
    assert snapshot.dirty is False


def test_without_git_a_secret_is_left_out_too(tmp_path: Path, environ: Mapping[str, str]) -> None:
    write(tmp_path, "a.py", ".env")
    snapshot = Worktree(tmp_path, ignore=(), include=(), environ=environ).snapshot()
    assert (files_of(snapshot), left_out(snapshot)) == ({"a.py"}, {".env"})


def test_a_nested_repository_answers_for_its_own_files(root: Path, environ: Mapping[str, str]) -> None:
    write(root, "inner/.env", "inner/x.key")
    git(root / "inner", environ, "init", "-q")
    git(root / "inner", environ, "add", ".env")
    snapshot = Worktree(root, ignore=(), include=(), environ=environ).snapshot()
    assert (files_of(snapshot), left_out(snapshot)) == ({"inner/.env"}, {"inner/x.key"})


@pytest.mark.parametrize("is_hinted", [True, False])
def test_adding_renaming_and_deleting_are_followed(root: Path, environ: Mapping[str, str], is_hinted: bool) -> None:
    worktree = Worktree(root, ignore=(), include=(), environ=environ)
    worktree.snapshot()

    def now(*changed: str) -> tuple[set[str], set[str]]:
        snapshot = worktree.snapshot(frozenset(changed) if is_hinted else frozenset({EVERYTHING}))
        return files_of(snapshot), left_out(snapshot)

    write(root, ".env")
    assert now(".env") == (set(), {".env"})
    git(root, environ, "add", ".env")
    assert now() == ({".env"}, set())
    git(root, environ, "rm", "-q", "--cached", ".env")
    assert now() == (set(), {".env"})
    (root / ".env").rename(root / "plain.txt")
    assert now(".env", "plain.txt") == ({"plain.txt"}, set())
    (root / "plain.txt").rename(root / "x.pem")
    assert now("plain.txt", "x.pem") == (set(), {"x.pem"})
    (root / "x.pem").unlink()
    (root / "x.pem").mkdir()
    write(root, "x.pem/a.py")
    assert now("x.pem", "x.pem/a.py") == ({"x.pem/a.py"}, set())


def test_the_watcher_tells_of_them_so_that_what_is_said_stays_true(root: Path, environ: Mapping[str, str]) -> None:
    write(root, ".env", "a.log")
    worktree = Worktree(root, ignore=("*.log",), include=(), environ=environ)
    assert worktree.relevant([".env", "a.log"]) == {".env"}


def test_a_secret_is_not_even_looked_at(root: Path, environ: Mapping[str, str]) -> None:
    """Otherwise a pipe would be left out for being a pipe."""
    os.mkfifo(root / ".env")
    os.mkfifo(root / "pipe")
    snapshot = Worktree(root, ignore=(), include=(), environ=environ).snapshot()
    assert snapshot.excluded == (ExcludedPath(".env", REASON), ExcludedPath("pipe", "is a named pipe"))
