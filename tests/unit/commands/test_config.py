"""`watchtest config …` through its own parser, and once as a process, which must not import pydantic."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from support.config_command import watchtest

from watchtest.config import Config, json_schema
from watchtest.errors import ConfigError, WorkspaceError


def test_show_prints_each_value_with_where_it_came_from(
    empty_workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_workspace / "watchtest.toml").write_text('[box]\nimage = "mine"\n')
    monkeypatch.setenv("WATCHTEST_RUNNER_ARGS", '["-x"]')
    assert watchtest(empty_workspace, "config", "show") == 0
    shown = capsys.readouterr().out
    settings = dict(line.split("   #", 1) for line in shown.splitlines())
    told = {setting.rstrip(): origin.strip() for setting, origin in settings.items()}
    assert told['box.image = "mine"'] == "watchtest.toml:2"
    assert told['runner.args = ["-x"]'] == "WATCHTEST_RUNNER_ARGS"
    assert told["runner.timeout_s = 300.0"] == "default"
    assert tomllib.loads(shown)["box"]["image"] == "mine"


def test_show_as_json(empty_workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (empty_workspace / "mine.toml").write_text("box.pids = 99")
    assert watchtest(empty_workspace, "--config", str(empty_workspace / "mine.toml"), "config", "show", "--json") == 0
    pids = json.loads(capsys.readouterr().out)["settings"]["box.pids"]
    assert (pids["value"], pids["from"]) == (99, "mine.toml:1")


def test_from_a_folder_inside_the_workspace_its_config_is_found(
    empty_workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_workspace / "watchtest.toml").write_text("box.pids = 99")
    (empty_workspace / "deep/inside").mkdir(parents=True)
    monkeypatch.chdir(empty_workspace / "deep/inside")
    assert watchtest(None, "config", "show") == 0
    assert "box.pids = 99 " in capsys.readouterr().out


def test_validate_names_the_files_it_checked(empty_workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watchtest(empty_workspace, "config", "validate") == 0
    assert capsys.readouterr().out == "no config file; the defaults apply\n"
    file = empty_workspace / "watchtest.toml"
    file.write_text("box.pids = 99")
    assert watchtest(empty_workspace, "config", "validate") == 0
    assert capsys.readouterr().out == f"{file}: valid\n"


def test_validate_of_a_file_checks_that_file_alone(
    empty_workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (empty_workspace / "watchtest.toml").write_text("wrong = 1")
    monkeypatch.setenv("WATCHTEST_BOX_PIDS", "wrong")
    file = empty_workspace / "other.toml"
    file.write_text("box.pids = 99")
    assert watchtest(empty_workspace, "config", "validate", str(file)) == 0
    assert capsys.readouterr().out == f"{file}: valid\n"
    file.write_text("box.pids = 1")
    with pytest.raises(ConfigError, match=r"^other\.toml: box\.pids = 1: must be at least 16$") as caught:
        watchtest(empty_workspace, "config", "validate", str(file))
    assert caught.value.exit_code == 2


def test_validate_as_json_lists_the_problems(empty_workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (empty_workspace / "watchtest.toml").write_text("box.pids = 1\nbox.cpus = -1")
    assert watchtest(empty_workspace, "config", "validate", "--json") == 2
    answer = json.loads(capsys.readouterr().out)
    assert answer["valid"] is False
    assert answer["problems"] == [
        "watchtest.toml: box.pids = 1: must be at least 16",
        "watchtest.toml: box.cpus = -1: must be at least 0",
    ]
    (empty_workspace / "watchtest.toml").write_text("")
    assert watchtest(empty_workspace, "config", "validate", "--json") == 0
    assert json.loads(capsys.readouterr().out)["valid"] is True


def test_schema_prints_the_json_schema(empty_workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert watchtest(empty_workspace, "config", "schema") == 0
    assert json.loads(capsys.readouterr().out) == json_schema()
    assert json_schema()["title"] == Config.model_config["title"]


def test_a_workspace_that_is_not_there_is_told(empty_workspace: Path) -> None:
    with pytest.raises(WorkspaceError, match="gone: no such folder"):
        watchtest(empty_workspace / "gone", "config", "show")


def test_other_commands_do_not_pay_for_pydantic() -> None:
    code = "import argparse, sys, watchtest.commands.config as c; c.add_options(argparse.ArgumentParser())"
    check = f"{code}; sys.exit('pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], timeout=60, check=False).returncode == 0
