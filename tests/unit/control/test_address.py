"""The path of the control socket: short enough, private, the same for both sides; and what commands import for it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from watchtest.client.watcher import from_workspace
from watchtest.control.address import PATH_LIMIT, socket_paths
from watchtest.workspace.user_dirs import is_private, runtime_dirs

HEAVY = (
    "starlette",
    "uvicorn",
    "prometheus_client",
    "pydantic",
    "docker",
    "rich",
    "asyncio",
    "sqlite3",
    "watchfiles",
    "git",
)


def test_every_workspace_has_a_place_of_its_own_in_each_folder(tmp_path: Path) -> None:
    folders = [Path("/a"), Path("/b")]
    first, second = socket_paths(tmp_path / "one", folders), socket_paths(tmp_path / "two", folders)
    assert [place.parent for place in first] == folders
    assert set(first).isdisjoint(second)
    assert first == socket_paths(tmp_path / "one", folders)


def test_a_path_too_long_for_a_socket_is_left_out() -> None:
    short, long = Path("/a"), Path("/") / ("ä" * (PATH_LIMIT // 2))
    (place,) = socket_paths(Path("/w"), [long, short])
    assert place.parent == short
    assert len(os.fsencode(place)) <= PATH_LIMIT


def test_a_folder_is_private_when_no_other_user_can_write_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    assert not is_private(folder)
    folder.mkdir(mode=0o700)
    assert is_private(folder)
    for mode in (0o770, 0o707, 0o777):
        folder.chmod(mode)
        assert not is_private(folder)
    folder.chmod(0o700)
    link = tmp_path / "link"
    link.symlink_to(folder)
    assert not is_private(link)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_not_private(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    assert not is_private(folder)


def test_the_runtime_folder_of_the_session_comes_first_and_only_where_the_system_made_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WATCHTEST_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("WATCHTEST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "session"))
    assert runtime_dirs()[0] == tmp_path / "state" / "run"
    (tmp_path / "session").mkdir(mode=0o755)
    assert runtime_dirs()[0] == tmp_path / "state" / "run"
    (tmp_path / "session").chmod(0o700)
    assert runtime_dirs()[:2] == (tmp_path / "session" / "watchtest", tmp_path / "state" / "run")
    monkeypatch.setenv("WATCHTEST_RUNTIME_DIR", str(tmp_path / "mine"))
    assert runtime_dirs() == (tmp_path / "mine",)


@pytest.mark.parametrize("command", ["cancel", "run", "pause", "resume", "api", "status"])
def test_a_command_that_only_asks_imports_nothing_heavy(command: str) -> None:
    code = f"import sys, watchtest.cli, watchtest.commands.{command}; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=30, check=True
    ).stdout.split()
    assert f"watchtest.commands.{command}" in loaded
    assert [name for name in HEAVY if name in loaded] == []


def test_the_watcher_does_not_import_the_server_before_it_serves() -> None:
    code = "import sys, watchtest.app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, encoding="utf-8", timeout=30, check=True
    ).stdout.split()
    assert "watchtest.control.server" in loaded
    assert {"starlette", "uvicorn", "prometheus_client", "watchtest.control.api.request_models"}.isdisjoint(loaded)


def test_files_are_named_from_where_the_user_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "tests"
    folder.mkdir()
    (folder / "test_a.py").touch()
    monkeypatch.chdir(folder)
    assert from_workspace("test_a.py::test_x[a::b]", tmp_path) == "tests/test_a.py::test_x[a::b]"
    assert from_workspace("tests/test_a.py", tmp_path) == "tests/test_a.py"
    monkeypatch.chdir(tmp_path)
    assert from_workspace("tests/test_a.py", tmp_path) == "tests/test_a.py"
    assert from_workspace("tests", tmp_path) == "tests"
    assert from_workspace("../elsewhere.py", tmp_path) == "../elsewhere.py"
