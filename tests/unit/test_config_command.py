"""`watchtest config …` through its own parser, and once as the process that must not pay for pydantic."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from watchtest.commands import config as command
from watchtest.config import Config, json_schema
from watchtest.errors import ConfigError, WorkspaceError


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which no setting of the machine running the tests shows."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "workspace"
    (folder / ".git").mkdir(parents=True)
    return folder


def watchtest(workspace: Path | None, *words: str) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("-C", "--workspace", type=Path)
    parser.add_argument("--config", type=Path)
    command.add_to(parser.add_subparsers(dest="command"))
    arguments = parser.parse_args([*(["-C", str(workspace)] if workspace else []), *words])
    code = arguments.run(arguments)
    assert isinstance(code, int)
    return code


def test_show_prints_each_value_with_where_it_came_from(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "watchtest.toml").write_text('[box]\nimage = "mine"\n')
    monkeypatch.setenv("WATCHTEST_RUNNER_ARGS", '["-x"]')
    assert watchtest(workspace, "config", "show") == 0
    shown = capsys.readouterr().out
    settings = dict(line.split("   #", 1) for line in shown.splitlines())
    told = {setting.rstrip(): origin.strip() for setting, origin in settings.items()}
    assert told['box.image = "mine"'] == "watchtest.toml:2"
    assert told['runner.args = ["-x"]'] == "WATCHTEST_RUNNER_ARGS"
    assert told["runner.timeout_s = 300.0"] == "default"
    assert tomllib.loads(shown)["box"]["image"] == "mine"


def test_show_as_json(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "mine.toml").write_text("box.pids = 99")
    assert watchtest(workspace, "--config", str(workspace / "mine.toml"), "config", "show", "--json") == 0
    pids = json.loads(capsys.readouterr().out)["settings"]["box.pids"]
    assert (pids["value"], pids["from"]) == (99, "mine.toml:1")


def test_from_a_folder_inside_the_workspace_its_config_is_found(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "watchtest.toml").write_text("box.pids = 99")
    (workspace / "deep/inside").mkdir(parents=True)
    monkeypatch.chdir(workspace / "deep/inside")
    assert watchtest(None, "config", "show") == 0
    assert "box.pids = 99 " in capsys.readouterr().out


def test_validate_names_the_files_it_checked(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watchtest(workspace, "config", "validate") == 0
    assert capsys.readouterr().out == "no config file; the defaults hold\n"
    file = workspace / "watchtest.toml"
    file.write_text("box.pids = 99")
    assert watchtest(workspace, "config", "validate") == 0
    assert capsys.readouterr().out == f"{file}: valid\n"


def test_validate_of_a_file_checks_that_file_alone(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (workspace / "watchtest.toml").write_text("wrong = 1")
    monkeypatch.setenv("WATCHTEST_BOX_PIDS", "wrong")
    file = workspace / "other.toml"
    file.write_text("box.pids = 99")
    assert watchtest(workspace, "config", "validate", str(file)) == 0
    assert capsys.readouterr().out == f"{file}: valid\n"
    file.write_text("box.pids = 1")
    with pytest.raises(ConfigError, match=r"^other\.toml: box\.pids = 1: must be at least 16$") as caught:
        watchtest(workspace, "config", "validate", str(file))
    assert caught.value.exit_code == 2


def test_validate_as_json_lists_the_problems(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "watchtest.toml").write_text("box.pids = 1\nbox.cpus = -1")
    assert watchtest(workspace, "config", "validate", "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"] is False
    assert answer["problems"] == [
        "watchtest.toml: box.pids = 1: must be at least 16",
        "watchtest.toml: box.cpus = -1: must be at least 0",
    ]
    (workspace / "watchtest.toml").write_text("")
    assert watchtest(workspace, "config", "validate", "--json") == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_schema_prints_the_json_schema(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watchtest(workspace, "config", "schema") == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
    assert json_schema()["title"] == Config.model_config["title"]


def test_a_workspace_that_is_not_there_is_told(workspace: Path) -> None:
    with pytest.raises(WorkspaceError, match="gone: no such folder"):
        watchtest(workspace / "gone", "config", "show")


def test_other_commands_do_not_pay_for_pydantic() -> None:
    code = "import argparse, sys, watchtest.commands.config as c; c.add_to(argparse.ArgumentParser().add_subparsers())"
    check = f"{code}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
