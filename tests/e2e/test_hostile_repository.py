"""A repository, however hostile, changes nothing on this machine when it is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.git_repo import Repo
from support.projects import MakeProject, end
from support.watcher_process import Project

from watchtest.core.text import MESSAGE_LIMIT

WRITERS = (
    ("watch", "--once"),
    ("start",),
    ("gate", "--staged"),
    ("exec", "true"),
    ("sync", "--accept"),
    ("history", "flaky", "--probe", "test_a.py::test_a"),
    ("init",),
)
READERS = (("status",), ("status", "--line"), ("status", "--json"), ("edit",), ("why",), ("logs", "--watcher"))
PRECIOUS = "a very precious line\n"
TEST = "def test_a():\n    pass\n"
LONG_TEST = """
import pytest


@pytest.mark.parametrize("word", [1], ids=["x" * 1_000_000])
def test_long(word):
    assert False
"""


@pytest.fixture
def victim(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """A workspace in the home folder of a user who has precious files."""
    project = make_project(tmp_path, "local")
    project.has_boxes = False
    home = tmp_path / "home"
    for name in (".bashrc", "lock", "status.json", "watchtest.log", "heartbeat", "background.err", "by-hand"):
        home.mkdir(exist_ok=True)
        (home / name).write_text(PRECIOUS)
    project.environ["HOME"] = str(home)
    project.save("test_a.py", TEST)
    yield project
    end(project)


def files_in(folder: Path) -> dict[str, tuple[object, ...]]:
    """Return everything in a folder: mode, time of change, and content or target."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        content = path.readlink() if path.is_symlink() else path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (status.st_mode, status.st_mtime_ns, content)
    return found


@pytest.mark.parametrize("command", [*WRITERS, *READERS], ids=" ".join)
def test_a_folder_of_ours_that_is_a_link_is_refused(victim: Project, command: tuple[str, ...]) -> None:
    Repo(victim.root)
    home = Path(victim.environ["HOME"])
    (victim.root / ".watchtest").symlink_to(home)
    before = files_in(home)
    done = victim.command(*command)
    assert done.returncode == 2, done
    assert ".watchtest is a link, so watchtest does not use it\n  remove it" in done.stderr
    assert PRECIOUS.strip() not in done.stdout + done.stderr
    assert files_in(home) == before


@pytest.mark.parametrize("command", WRITERS, ids=" ".join)
def test_a_folder_of_ours_that_git_tracks_is_refused(victim: Project, command: tuple[str, ...]) -> None:
    home = Path(victim.environ["HOME"])
    repo = Repo(victim.root)
    (victim.root / ".watchtest").mkdir()
    (victim.root / ".watchtest" / "watchtest.log").symlink_to("../../home/.bashrc")
    repo.git("add", "-f", ".")
    repo.git("commit", "-qm", "hostile")
    before = files_in(home)
    done = victim.command(*command)
    assert done.returncode == 2, done
    assert "git tracks files in it: .watchtest/watchtest.log\n  git rm -r --cached .watchtest" in done.stderr
    assert files_in(home) == before


def test_the_doctor_reports_a_folder_that_git_tracks(victim: Project) -> None:
    repo = Repo(victim.root)
    (victim.root / ".watchtest").mkdir()
    (victim.root / ".watchtest" / "status.json").write_text("{}")
    repo.git("add", "-f", ".")
    done = victim.command("doctor")
    assert done.returncode == 4
    assert "git tracks files in it: .watchtest/status.json" in done.stdout


COMMANDS = (
    *(("watch", "--once", "--trigger=stage=all", "--trigger=commit=all"), ("gate", "--staged"), ("doctor",)),
    *(("gate", "--commit", "HEAD"), ("status",), ("run",), ("init", "--hooks"), ("history", "list"), ("why",)),
)


@pytest.mark.parametrize("is_partial", [False, True], ids=["whole", "partial clone"])
def test_no_command_starts_a_program_that_the_repository_names(victim: Project, is_partial: bool) -> None:
    victim.environ["WATCHTEST_BOX_ENGINE"] = victim.kind
    mark, program = victim.around / "was-started", victim.around / "canary"
    program.write_text(f'#!/bin/sh\necho x >> "{mark}"\nexit 1\n')
    program.chmod(0o755)
    repo = Repo(victim.root)
    repo.save(".gitattributes", "* filter=evil diff=evil\n")
    repo.commit()
    for name in ("core.fsmonitor", "core.sshCommand", "core.pager", "core.askPass", "credential.helper", "gpg.program"):
        repo.git("config", name, f"'{program}'")
    for name in ("filter.evil.clean", "filter.evil.smudge", "diff.external", "diff.evil.textconv", "alias.ls-files"):
        repo.git("config", name, f"'{program}'")
    if is_partial:
        lost = repo.git("rev-parse", "HEAD:test_a.py")
        (victim.root / ".git" / "objects" / lost[:2] / lost[2:]).unlink()
        repo.git("config", "remote.origin.url", "ssh://host/x")
        repo.git("config", "remote.origin.promisor", "true")
    for command in COMMANDS:
        done = victim.command(*command, limit_s=90)
        assert "Traceback" not in done.stderr, (command, done)
        if is_partial and command[0] == "gate":
            assert (done.returncode, "lacks the content of test_a.py" in done.stderr) == (4, True), done
        assert not mark.exists(), command
    repo.git("cat-file", "-p", "HEAD:test_a.py" if is_partial else "HEAD", check=False)
    repo.git("status", check=False)
    assert mark.exists(), "git itself starts none of these programs: this proves nothing"


def test_a_test_with_an_endless_name_is_named(victim: Project) -> None:
    Repo(victim.root)
    victim.save("test_a.py", TEST + LONG_TEST)
    code, said = victim.once("--trigger", "save=all")
    assert code == 1
    named = "test_a.py::test_long[xxxxxxxx"
    assert named in said
    assert len(said) < 20_000
    for command in (("status",), ("history", "show", "last"), ("history", "list"), ("gate", "--staged")):
        done = victim.command(*command)
        assert named in done.stdout or command[0] != "status", command
        assert len(done.stdout) < 50_000, command
    assert (victim.root / ".watchtest" / "status.json").stat().st_size < 100_000
    (failure,) = json.loads(victim.command("status", "--json").stdout)["failures"]
    assert failure["id"].startswith(named)
    assert len(failure["id"]) == MESSAGE_LIMIT
    assert named in victim.command("history", "test", failure["id"]).stdout
    victim.save("test_a.py", TEST + LONG_TEST.replace("False", "True"))
    assert victim.once("--trigger", "save=failed")[0] == 0
