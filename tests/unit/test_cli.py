"""The entry point lets nothing of the current folder run, and nothing reach the terminal unchecked."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

WATCHTEST = Path(sys.executable).with_name("watchtest")
EVIL = "evil\x1b]0;pwned\x07\x9b31m\u202egnp"
MODULES = (
    "__future__",
    "argparse",
    "dataclasses",
    "docker",
    "json",
    "pathlib",
    "platformdirs",
    "rich",
    "sitecustomize",
)
PROGRAMS = ("git", "bwrap", "docker", "python3", "less", "ssh")


@pytest.fixture
def canary(tmp_path: Path) -> Path:
    folder = tmp_path / "canary"
    folder.mkdir()
    return folder


@pytest.fixture
def workspace(tmp_path: Path, canary: Path) -> Path:
    """A repository with modules and programs that leave a file in the canary folder when they are run."""
    root = tmp_path / "project"
    for folder in (root, root / "src", root / "bin"):
        folder.mkdir()
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    for folder in (root, root / "src"):
        for name in MODULES:
            (folder / f"{name}.py").write_text(f"open({str(canary / name)!r}, 'w')\n")
    for folder in (root, root / "bin"):
        for name in PROGRAMS:
            (folder / name).write_text(f"#!/bin/sh\ntouch '{canary}/{name}'\n")
            (folder / name).chmod(0o755)
    return root


def environ_in(tmp_path: Path, **more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WATCHTEST_", "PYTHON", "GIT_"))}
    folders = {f"WATCHTEST_{name}_DIR": str(tmp_path / name.lower()) for name in ("STATE", "CACHE", "RUNTIME")}
    return {**kept, **folders, "HOME": str(tmp_path), "WATCHTEST_BOX_ENGINE": "local", **more}


@pytest.mark.parametrize("command", [("status",), ("doctor",), ("config", "show"), ("history", "list"), ("stop",)])
@pytest.mark.parametrize("start", [(sys.executable, "-m", "watchtest"), (str(WATCHTEST),)], ids=["module", "script"])
def test_no_module_or_program_of_the_current_folder_is_run(
    tmp_path: Path, workspace: Path, canary: Path, start: tuple[str, ...], command: tuple[str, ...]
) -> None:
    path = os.pathsep.join([".", "bin", "", os.environ["PATH"]])
    done = subprocess.run(
        [*start, *command], cwd=workspace, env=environ_in(tmp_path, PATH=path), capture_output=True, timeout=60
    )
    assert b"Traceback" not in done.stderr
    assert list(canary.iterdir()) == []


def test_a_relative_search_path_does_not_reach_what_is_started(tmp_path: Path, workspace: Path, canary: Path) -> None:
    """`-C` starts git, and `start` a watcher, in a folder that the user's shell is not in."""
    script = "import os; from watchtest.cli import main; main(); print({n: os.environ.get(n) for n in NAMES})"
    names = ("PYTHONPATH", "LD_LIBRARY_PATH", "PATH")
    given = {"PYTHONPATH": f"src{os.pathsep}{tmp_path}", "LD_LIBRARY_PATH": f"{os.pathsep}lib", "PATH": "bin:/usr/bin:"}
    done = subprocess.run(
        [sys.executable, "-c", script.replace("NAMES", repr(names)), "-C", str(workspace), "stop"],
        cwd=tmp_path,
        env=environ_in(tmp_path, **given),
        capture_output=True,
        timeout=60,
    )
    kept = {"PYTHONPATH": str(tmp_path), "LD_LIBRARY_PATH": None, "PATH": "/usr/bin"}
    assert done.stdout.decode().splitlines()[-1] == str(kept)
    assert list(canary.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        ("stop",),
        ("start", "--trigger", EVIL),
        ("status", "--lane", EVIL),
        (EVIL,),
        ("config", "validate", EVIL),
        ("why", EVIL),
        ("help", EVIL),
        ("init",),
        ("doctor",),
        ("history", "show", EVIL),
        ("run", EVIL),
    ],
    ids=lambda command: command[0] if command[0] != EVIL else "evil",
)
def test_no_command_prints_control_or_bidirectional_characters(tmp_path: Path, command: tuple[str, ...]) -> None:
    root = tmp_path / EVIL
    root.mkdir()
    (root / f"test_{EVIL}.py").write_text("def test_a(): pass\n")
    (root / "watchtest.toml").write_text('[watch]\nignore = ["\\u202E\\u009b31m"]\n')
    done = subprocess.run([WATCHTEST, *command], cwd=root, env=environ_in(tmp_path), capture_output=True, timeout=60)
    said = (done.stdout + done.stderr).decode()
    assert said
    assert not {letter for letter in said if letter != "\n" and not letter.isprintable()}, said
