"""`watchtest ps` and `watchtest prune` on local boxes: who owns what, and what may be removed."""

from __future__ import annotations

import json
import socket
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from watchtest.boxes.inventory import Resource, local_resources
from watchtest.cli import main
from watchtest.control.address import ensure_token, token_file
from watchtest.workspace.machine import machine_id

HOST = machine_id()


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("WATCHTEST_CACHE_DIR", str(folder))
    monkeypatch.setenv("WATCHTEST_RUNTIME_DIR", str(tmp_path / "run"))
    monkeypatch.setenv("WATCHTEST_STATE_DIR", str(tmp_path / "state"))
    return folder


def local_box(cache: Path, name: str, workspace: str, host: str = HOST) -> Path:
    folder = cache / "boxes" / name
    (folder / "tree").mkdir(parents=True)
    (folder / "tree" / "file").write_text("content")
    (folder / "workspace").write_text(workspace)
    (folder / "host").write_text(host)
    return folder


def test_only_what_belongs_to_a_workspace_of_this_machine_that_is_gone_is_removed(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = [
        local_box(cache, "there-1-save", str(tmp_path)),
        local_box(cache, "far-2-save", "/nowhere/far", host="another machine"),
        local_box(cache, "unknown-3-save", ""),
    ]
    gone = local_box(cache, "gone-4-save", str(tmp_path / "gone" / "deeper"))
    tokens = [token_file(tmp_path / "state", folder) for folder in (tmp_path, tmp_path / "gone" / "deeper")]
    for token in tokens:
        ensure_token(token)

    assert main(["prune", "--engine", "local", "--yes"]) == 0

    said = capsys.readouterr().out
    assert [box.exists() for box in kept] == [True, True, True]
    assert not gone.exists()
    assert [token.exists() for token in tokens] == [True, False]
    assert f"{tmp_path / 'gone' / 'deeper'} (only {tmp_path} exists)" in said
    assert "removed 1 of 1" in said


def test_nothing_is_removed_by_a_dry_run_or_without_a_terminal_to_ask(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone = local_box(cache, "gone-1-save", "/nowhere/gone")

    assert main(["prune", "--engine", "local", "--dry-run"]) == 0
    assert "/nowhere/gone" in capsys.readouterr().out
    assert main(["prune", "--engine", "local"]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["prune", "--engine", "local", "--json"]) == 2
    assert gone.exists()


def test_prune_with_nothing_to_do_asks_nothing(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prune", "--engine", "local"]) == 0
    assert "nothing to remove" in capsys.readouterr().out


def test_prune_takes_the_sockets_of_killed_watchers_and_no_others(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with TemporaryDirectory(prefix="wt-") as name, socket.socket(socket.AF_UNIX) as living:
        folder = Path(name)
        monkeypatch.setenv("WATCHTEST_RUNTIME_DIR", name)
        living.bind(str(folder / "living.sock"))
        living.listen()
        with socket.socket(socket.AF_UNIX) as killed:
            killed.bind(str(folder / "killed.sock"))
        (folder / "file.sock").touch()

        assert main(["prune", "--engine", "local", "--dry-run"]) == 0
        assert (folder / "killed.sock").exists()
        assert main(["prune", "--engine", "local"]) == 0
        assert {path.name for path in folder.iterdir()} == {"living.sock", "file.sock"}
        assert "removed 1 socket of killed watchers" in capsys.readouterr().out


def test_ps_names_each_box_and_marks_those_whose_workspace_is_gone(
    cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    local_box(cache, "there-1-commit", str(tmp_path))
    local_box(cache, "gone-2-save", "/nowhere/gone")
    local_box(cache, "far-3-save", "/nowhere/far", host="another machine")

    assert main(["ps", "--engine", "local"]) == 0
    said = capsys.readouterr().out
    assert "/nowhere/gone (gone)" in said
    assert "/nowhere/far (on another machine)" in said
    assert "1 of these belongs to a deleted workspace" in said
    assert main(["ps", "--engine", "local", "--json"]) == 0
    told = {one["id"]: (one["lane"], one["is_orphan"]) for one in json.loads(capsys.readouterr().out)}
    assert told == {
        "there-1-commit": ("commit", False),
        "gone-2-save": ("save", True),
        "far-3-save": ("save", False),
    }


def test_ps_says_when_there_is_nothing(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ps", "--engine", "local"]) == 0
    assert "keeps no box" in capsys.readouterr().out


def test_a_workspace_that_cannot_be_looked_at_is_not_gone(cache: Path, tmp_path: Path) -> None:
    local_box(cache, "box-1-save", str(tmp_path))
    box: Resource = local_resources(cache)[0]

    assert not replace(box, workspace=f"{tmp_path}/{'x' * 5000}").is_orphan(HOST)  # its name is too long to look up
    assert not replace(box, workspace="a\0b").is_orphan(HOST)
    assert replace(box, workspace=f"{tmp_path}/none").is_orphan(HOST)
