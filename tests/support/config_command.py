"""Runs `watchtest config` through its own parser, in a folder without settings."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from watchtest.commands import add_module


@pytest.fixture
def empty_workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder in which no setting of the host machine applies."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "workspace"
    (folder / ".git").mkdir(parents=True)
    return folder


def watchtest(workspace: Path | None, *words: str) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-C", "--workspace", type=Path)
    parser.add_argument("--config", type=Path)
    add_module(parser.add_subparsers(dest="command"), "config")
    arguments = parser.parse_args([*(["-C", str(workspace)] if workspace else []), *words])
    code = arguments.run(arguments)
    assert isinstance(code, int)
    return code
