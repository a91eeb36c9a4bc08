"""A repository, however hostile, changes nothing on this machine when it is opened."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from support.git_repo import Repo
from support.projects import MakeProject, end
from support.watcher_process import Project

from watchtest import exit_codes
from watchtest.core.text import MESSAGE_LIMIT

WATCHTEST = Path(sys.executable).with_name("watchtest")

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
SECRET = "s3cr3t-k3y"
ESCAPES = "evil\x1b]0;pwned\x07\x9b31m\u202e"
GIT_HOOKS = ("post-index-change", "pre-commit", "reference-transaction", "post-checkout", "pre-auto-gc", "post-rewrite")
OWN_FILES = (
    *("status.json", ".status.json.new", "heartbeat", "locations", ".locations.new", "accept-shrink", "by-hand"),
    *("watchtest.log", "watchtest.log.1", "background.err"),
)
LOCKS_AND_SETTINGS = ("lock", "gate.lock", "visit.lock", "config.toml")
TEST = "def test_a():\n    pass\n"
LONG_TEST = """
import pytest


@pytest.mark.parametrize("word", [1], ids=["x" * 1_000_000])
def test_long(word):
    assert False
"""


RED_TEST = f"""
import pytest


@pytest.mark.parametrize("word", [1], ids=[{ESCAPES!r}])
def test_red(word):
    print({ESCAPES!r})
    raise AssertionError({ESCAPES!r})
"""


@pytest.fixture
def victim(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """A project of a user who has precious files in the home folder."""
    yield from victims(make_project(tmp_path, "local"))


@pytest.fixture
def docker_victim(tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """The same with a container as the box."""
    yield from victims(make_project(tmp_path, "docker"))


def victims(project: Project) -> Iterator[Project]:
    home = project.around / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh" / "id_rsa").write_text(SECRET)
    for name in (".bashrc", "lock", "status.json", "watchtest.log", "heartbeat", "background.err", "by-hand"):
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
    victim.environ["WATCHTEST_BOX_ENGINE"] = victim.kind
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


# -- attacks ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scene:
    """A repository, the home folder of its victim, and a folder in which a file appears if the host runs something."""

    repo: Repo
    home: Path
    canary: Path

    def save(self, path: str, text: str, mode: int = 0o644) -> Path:
        file = self.repo.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    def program(self, name: str) -> str:
        """Return the command of a program in the repository that leaves its name in the canary folder."""
        file = self.save(f"programs/{name}", f"#!/bin/sh\ntouch '{self.canary}/{name}'\n", 0o755)
        return shlex.quote(str(file))

    def module(self, name: str) -> str:
        """Return a module that leaves its name in the canary folder if it is imported outside of the box."""
        here, canary = str(self.repo.root), str(self.canary / name)
        return f"if __file__.startswith({here!r}):\n    open({canary!r}, 'w')\n"

    def configure(self, **settings: str) -> None:
        for name, value in settings.items():
            self.repo.git("config", name.replace("__", "."), value)


def links_in_our_folder(scene: Scene) -> None:
    own = scene.repo.root / ".watchtest"
    own.mkdir(exist_ok=True)
    for name in OWN_FILES:
        (own / name).symlink_to(scene.home / ".bashrc")


def links_for_locks_and_settings(scene: Scene) -> None:
    (scene.repo.root / ".watchtest").mkdir()
    for name in LOCKS_AND_SETTINGS:
        (scene.repo.root / ".watchtest" / name).symlink_to(scene.home / ".bashrc")


def hard_links_in_our_folder(scene: Scene) -> None:
    own = scene.repo.root / ".watchtest"
    own.mkdir()
    for name in (*OWN_FILES, *LOCKS_AND_SETTINGS[:-1]):
        (own / name).hardlink_to(scene.home / ".bashrc")


def pipes_in_our_folder(scene: Scene) -> None:
    own = scene.repo.root / ".watchtest"
    own.mkdir()
    for name in (*OWN_FILES, *LOCKS_AND_SETTINGS):
        os.mkfifo(own / name)


def pipes_in_the_tree(scene: Scene) -> None:
    for name in ("requirements.txt", "conftest.py", "Dockerfile", "setup.cfg", "tox.ini", "pytest.ini"):
        os.mkfifo(scene.repo.root / name)


def a_pipe_for_settings(scene: Scene) -> None:
    os.mkfifo(scene.repo.root / "watchtest.toml")


def links_to_secrets(scene: Scene) -> None:
    for name in ("requirements.txt", "notes.txt", ".env", "Makefile", ".dockerignore"):
        (scene.repo.root / name).symlink_to(scene.home / ".ssh" / "id_rsa")
    (scene.repo.root / "ssh").symlink_to(scene.home / ".ssh")


def settings_that_are_a_link(scene: Scene) -> None:
    (scene.repo.root / "watchtest.toml").symlink_to(scene.home / ".ssh" / "id_rsa")


def a_project_file_that_is_a_link(scene: Scene) -> None:
    (scene.repo.root / "pyproject.toml").symlink_to(scene.home / ".ssh" / "id_rsa")


def a_file_system_monitor(scene: Scene) -> None:
    scene.configure(core__fsmonitor=scene.program("fsmonitor"))


def hooks(scene: Scene) -> None:
    for name in GIT_HOOKS:
        scene.program(f"hook-{name}")
        shutil.copy(scene.repo.root / "programs" / f"hook-{name}", scene.repo.root / ".git" / "hooks" / name)


def hooks_elsewhere(scene: Scene) -> None:
    for name in GIT_HOOKS:
        scene.program(name)
    scene.configure(core__hooksPath=str(scene.repo.root / "programs"))


def filters(scene: Scene) -> None:
    scene.save(".gitattributes", "* filter=evil diff=evil merge=evil\n")
    scene.repo.git("add", ".")
    scene.repo.git("commit", "-qm", "attributes")
    clean, smudge = scene.program("clean"), scene.program("smudge")
    scene.configure(filter__evil__clean=clean, filter__evil__smudge=smudge, filter__evil__required="true")
    scene.configure(diff__evil__textconv=scene.program("textconv"), diff__evil__command=scene.program("diff"))
    scene.configure(diff__external=scene.program("external"), merge__evil__driver=scene.program("merge"))


def a_filter_process(scene: Scene) -> None:
    (scene.repo.root / ".git" / "info" / "attributes").write_text("* filter=evil\n")
    scene.configure(filter__evil__process=scene.program("process"), filter__evil__required="true")


def programs_of_git(scene: Scene) -> None:
    scene.configure(
        core__pager=scene.program("pager"),
        core__editor=scene.program("editor"),
        core__askPass=scene.program("askpass"),
        core__sshCommand=scene.program("ssh"),
        core__gitProxy=scene.program("proxy"),
        core__alternateRefsCommand=scene.program("refs"),
        credential__helper=f"!{scene.program('credential')}",
        gpg__program=scene.program("gpg"),
        uploadpack__packObjectsHook=scene.program("pack"),
    )
    for name in ("ls-files", "status", "rev-parse", "config", "write-tree"):
        scene.repo.git("config", f"alias.{name}", f"!{scene.program('alias')}")


def a_missing_object_of_a_partial_clone(scene: Scene) -> None:
    blob = scene.repo.git("rev-parse", "HEAD:test_a.py").strip()
    scene.configure(core__sshCommand=scene.program("ssh"), remote__origin__url="ssh://host.invalid/evil")
    scene.configure(remote__origin__promisor="true", remote__origin__partialclonefilter="blob:none")
    scene.configure(remote__origin__uploadpack=scene.program("uploadpack"), extensions__partialClone="origin")
    (scene.repo.root / ".git" / "objects" / blob[:2] / blob[2:]).unlink()
    (scene.repo.root / "test_a.py").write_text(TEST + "\n")


def included_settings(scene: Scene) -> None:
    scene.save("evil.config", f"[core]\nfsmonitor = {scene.program('included')}\nhooksPath = programs\n")
    scene.configure(include__path="../evil.config")
    scene.repo.git("config", "includeIf.gitdir:**.path", "../evil.config")


def settings_of_a_worktree(scene: Scene) -> None:
    scene.configure(extensions__worktreeConfig="true")
    (scene.repo.root / ".git" / "config.worktree").write_text(f"[core]\nfsmonitor = {scene.program('worktree')}\n")


def a_worktree_in_the_home_folder(scene: Scene) -> None:
    scene.configure(core__worktree=str(scene.home))


def a_submodule(scene: Scene) -> None:
    inner = Repo(scene.repo.root / "inner")
    (inner.root / "test_b.py").write_text(TEST)
    inner.git("add", ".")
    inner.git("commit", "-qm", "inner")
    inner.git("config", "core.fsmonitor", scene.program("inner"))
    update = scene.program("update")
    scene.save(".gitmodules", f'[submodule "inner"]\npath = inner\nurl = ./inner\nupdate = !{update}\n')
    scene.repo.git("add", ".")
    scene.repo.git("commit", "-qm", "submodule")
    scene.repo.git("config", "submodule.inner.update", f"!{update}")
    scene.configure(status__submoduleSummary="true", diff__submodule="log")


def modules_that_python_would_import(scene: Scene) -> None:
    for name in ("docker", "rich", "platformdirs", "filelock", "pydantic", "uvicorn", "git", "watchfiles"):
        scene.save(f"{name}.py", scene.module(name))
        scene.save(f"src/{name}.py", scene.module(name))


def programs_in_the_folder(scene: Scene) -> None:
    for name in ("git", "bwrap", "docker", "podman", "less", "vi", "python", "python3", "ssh", "sh", "watchtest"):
        scene.program(name)
        shutil.copy(scene.repo.root / "programs" / name, scene.repo.root / name)


def code_that_tells_where_it_runs(scene: Scene) -> None:
    """It leaves a file if it is imported from the workspace instead of the box."""
    for name in ("conftest", "evil_plugin", "noxfile"):
        scene.save(f"{name}.py", scene.module(name))
    scene.save("pytest.ini", "[pytest]\naddopts = -p evil_plugin\npythonpath = .\n")


def names_that_a_terminal_obeys(scene: Scene) -> None:
    for name in (f"test_{ESCAPES}.py", f"{ESCAPES}.txt", "test_a\nb.py", f"{ESCAPES}/test_c.py"):
        scene.save(name, RED_TEST)


def a_file_of_status_that_lies(scene: Scene) -> None:
    text = json.dumps(ESCAPES + "x" * 10_000)
    scene.save(
        ".watchtest/status.json",
        '{"schema": "watchtest.status", "schema_version": 1, "writer": {"pid": 1, "heartbeat_s": TEXT},'
        ' "activity": "idle", "verdict": TEXT, "verdict_at": TEXT, "pending": {"changes": 0}, "lanes": {"save": {}},'
        ' "known_counts": [TEXT], "problem": {"message": TEXT, "hint": TEXT}, "scope": {"selected": TEXT,'
        ' "known": 1, "because": TEXT}, "failures_total": 1, "box": {"engine": TEXT, "id": TEXT, "state": TEXT},'
        ' "failures": [{"file": "../../home/.bashrc", "line": 1, "id": TEXT, "message": TEXT}]}'.replace("TEXT", text),
    )


def a_log_with_escapes(scene: Scene) -> None:
    record = {"at": "2026-01-01T00:00:00Z", "level": ESCAPES, "logger": "x", "message": ESCAPES}
    scene.save(".watchtest/watchtest.log", json.dumps(record) + "\n" + ESCAPES + "\n")


ALONE = (
    links_for_locks_and_settings,
    hard_links_in_our_folder,
    pipes_in_our_folder,
    pipes_in_the_tree,
    a_pipe_for_settings,
    settings_that_are_a_link,
    a_project_file_that_is_a_link,
    a_missing_object_of_a_partial_clone,
    a_worktree_in_the_home_folder,
    a_file_of_status_that_lies,
    a_log_with_escapes,
    hooks_elsewhere,
)
"""They exclude others."""

TOGETHER = (
    a_submodule,
    filters,
    a_filter_process,
    links_in_our_folder,
    links_to_secrets,
    a_file_system_monitor,
    hooks,
    programs_of_git,
    included_settings,
    settings_of_a_worktree,
    modules_that_python_would_import,
    programs_in_the_folder,
    code_that_tells_where_it_runs,
    names_that_a_terminal_obeys,
)
LOOKS: tuple[tuple[str, ...], ...] = (
    ("status",),
    ("status", "--line"),
    ("doctor",),
    ("config", "show"),
    ("why",),
    ("logs", "--watcher"),
    ("history", "list"),
)
OPENINGS: tuple[tuple[str, ...], ...] = (
    ("start",),
    ("run", "--all", "--wait", "--timeout", "30"),
    ("status", "--wait", "--timeout", "30"),
    ("why",),
    ("why", "test_a.py"),
    ("stop",),
    ("gate", "--staged", "--timeout", "30"),
    ("gate", "--commit", "HEAD", "--timeout", "30"),
    ("init",),
    ("watch", "--once"),
    ("history", "show", "last", "--tests", "--output"),
    ("history", "export", "last"),
    *LOOKS,
)


@pytest.mark.thorough
@pytest.mark.timeout(300)
@pytest.mark.parametrize("attack", [*ALONE, *TOGETHER])
def test_an_attack_changes_nothing_outside_of_the_box(
    victim: Project, tmp_path: Path, attack: Callable[[Scene], None]
) -> None:
    must_change_nothing(victim, tmp_path, (attack,))


@pytest.mark.timeout(300)
def test_the_most_hostile_repository_changes_nothing_outside_of_the_box(victim: Project, tmp_path: Path) -> None:
    assert "test_red[" in must_change_nothing(victim, tmp_path, TOGETHER)


@pytest.mark.docker
@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_the_most_hostile_repository_changes_nothing_outside_of_its_container(
    docker_victim: Project, tmp_path: Path
) -> None:
    assert "test_red[" in must_change_nothing(docker_victim, tmp_path, TOGETHER)


def must_change_nothing(victim: Project, around: Path, attacks: Sequence[Callable[[Scene], None]]) -> str:
    """Open a repository with these attacks with every command, and return all that was printed."""
    scene = Scene(Repo(victim.root), Path(victim.environ["HOME"]), around / "canary")
    scene.canary.mkdir()
    scene.repo.git("add", ".")
    scene.repo.git("commit", "-qm", "harmless")
    for attack in attacks:
        attack(scene)
    for fired in scene.canary.iterdir():
        fired.unlink()  # git of the attackers themselves
    home, tree = files_in(scene.home), files_of_the_project(victim.root)
    environ = {
        "PATH": os.pathsep.join([".", "", "programs", victim.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(["", "src"]),
        "PAGER": "less",
        "A_SECRET": SECRET,
        "WATCHTEST_BOX_ENGINE": victim.kind,
        **{f"WATCHTEST_TRIGGERS_{lane}": "all" for lane in ("SAVE", "STAGE", "COMMIT")},
    }
    printed = ""
    for command in (*LOOKS, *OPENINGS):
        done = subprocess.run(
            [WATCHTEST, *command],
            cwd=victim.root,
            env={**victim.environ, **environ},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=100,
            check=False,
        )
        said = (done.stdout + done.stderr).decode()
        printed += said
        assert done.returncode != exit_codes.BUG, (command, said)
        assert "Traceback" not in said, (command, said)
        assert not {letter for letter in said if letter not in "\n\t" and not letter.isprintable()}, (command, said)
        assert SECRET not in said, (command, said)
        assert [fired.name for fired in scene.canary.iterdir()] == [], (command, said)
        assert files_in(scene.home) == home, command
    after = files_of_the_project(victim.root)
    after.pop("watchtest.toml", None)  # `init` writes it
    tree.pop("watchtest.toml", None)
    assert after == tree
    for folder in ("cache", "state"):
        kept = [file for file in (around / folder).rglob("*") if file.is_file() and not file.is_symlink()]
        assert not [file for file in kept if SECRET.encode() in file.read_bytes()]
    return printed


def files_of_the_project(root: Path) -> dict[str, tuple[object, ...]]:
    """Return everything except what git and watchtest keep; without times, because git touches files."""
    own = (".git/", ".git", ".watchtest", "inner/.git")
    return {name: (row[0], row[2]) for name, row in files_in(root).items() if not name.startswith(own)}
