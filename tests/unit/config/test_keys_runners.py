"""`[[runners]]`: valid tables, messages about invalid ones, and the file they come from."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from watchtest.commands.config import as_json, as_text
from watchtest.config import Config, LoadedConfig, json_schema, load
from watchtest.errors import ConfigError

GO = '[[runners]]\nkind = "go"\n'
LINT = '[[runners]]\nkind = "command"\nname = "lint"\ncommand = "make lint"\n'
KINDS = '"pytest", "unittest", "go", "cargo", "vitest", "jest" or "command"'


def loaded(workspace: Path, text: str, **given: Any) -> LoadedConfig:
    (workspace / "watchtest.toml").write_text(text)
    inputs: dict[str, Any] = {"explicit": None, "environ": {}, "user_folder": None, "flags": {}}
    return load(workspace, **(inputs | given))


def test_a_kind_is_enough(tmp_path: Path) -> None:
    [runner] = loaded(tmp_path, GO).config.runners
    assert (runner.kind, runner.name, runner.folder, runner.args) == ("go", "", "", ())
    assert (runner.command, runner.junit, runner.env) == (None, "", {})


def test_every_key_of_a_runner_is_taken(tmp_path: Path) -> None:
    text = (
        '[[runners]]\nkind = "command"\nname = "lint"\nfolder = "web/app"\nargs = ["-v"]\n'
        'command = ["make", "lint"]\njunit = "out/junit.xml"\nenv = { A = "b" }\n'
    )
    [runner] = loaded(tmp_path, text).config.runners
    assert (runner.kind, runner.name, runner.folder) == ("command", "lint", "web/app")
    assert (runner.args, runner.command) == (("-v",), ("make", "lint"))
    assert (runner.junit, runner.env) == ("out/junit.xml", {"A": "b"})


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("runners = 3", "runners = 3: must be a list of tables; write [[runners]] above each runner"),
        ("[runners]\n", "runners: must be a list of tables; write [[runners]] above each runner"),
        ("runners = [3]", "runners[0] = 3: must be a table; write [[runners]] above each runner"),
        ("[[runners]]\n", f"runners[0].kind: is missing; choose {KINDS}"),
        ('[[runners]]\nkind = "vittest"', 'runners[0].kind = "vittest": no such runner; did you mean "vitest"?'),
        ('[[runners]]\nkind = "zzz"', f'runners[0].kind = "zzz": no such runner; choose {KINDS}'),
        ("[[runners]]\nkind = 3", f"runners[0].kind = 3: no such runner; choose {KINDS}"),
        (GO + "foldr = 'x'", 'runners[0].foldr = "x": unknown key; did you mean "folder"?'),
        (
            GO + "zzz = 3",
            "runners[0].zzz = 3: unknown key; a runner has kind, name, folder, args, command, junit, env",
        ),
        (GO + GO, 'runners: two of them are named "go"; give each its own name'),
        (GO + '[[runners]]\nkind = "jest"\nname = "go"', 'runners: two of them are named "go"; give each its own name'),
        (
            GO + 'folder = "../x"',
            'runners[0].folder = "../x": must be a folder of the workspace, like "web/app", without "." or ".."; '
            '"" means its top',
        ),
        (
            GO + 'name = "a b"',
            'runners[0].name = "a b": must consist of letters, digits, ".", "_" and "-", like "lint"',
        ),
        (GO + 'args = "-v"', 'runners[0].args = "-v": must be a list; write ["-v"]'),
        (GO + 'command = "x"', 'runners[0]: command is only for kind "command"; "go" takes args'),
        (GO + 'junit = "x"', 'runners[0]: junit is only for kind "command"; "go" does not need it'),
        ('[[runners]]\nkind = "command"', 'runners[0]: kind "command" needs a command; write command = "…"'),
        ('[[runners]]\nkind = "command"\ncommand = []', "runners[0].command: must not be empty"),
        (
            '[[runners]]\nkind = "command"\ncommand = 3',
            "runners[0].command = 3: must be a shell command or a list of arguments",
        ),
        (LINT + "env = { A = 3 }", 'runners[0].env.A = 3: must be text; write "3"'),
        (LINT + "env = 3", 'runners[0].env = 3: must be a table like { NAME = "value" }'),
    ],
)
def test_a_wrong_runner_is_one_line_that_says_what_to_write(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.message == f"watchtest.toml: {line}"
    if "two of them" not in line:  # JSON Schema cannot express it
        assert not Draft202012Validator(json_schema()).is_valid(tomllib.loads(text))


@pytest.mark.parametrize("text", [GO, LINT, LINT + 'junit = "x.xml"\nargs = [""]', GO + 'folder = "a/b.c/d"'])
def test_the_schema_accepts_what_loads(tmp_path: Path, text: str) -> None:
    assert Draft202012Validator(json_schema()).is_valid(tomllib.loads(text))
    assert loaded(tmp_path, text).config.runners


def test_the_runners_of_a_workspace_replace_those_of_the_user(tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "config.toml").write_text(GO)
    found = loaded(tmp_path, "\n" + LINT, user_folder=user)
    assert [runner.kind for runner in found.config.runners] == ["command"]
    assert str(found.origins["runners"]) == "watchtest.toml:2"
    assert [runner.kind for runner in loaded(tmp_path, "", user_folder=user).config.runners] == ["go"]


def test_runners_that_are_shown_are_runners_that_load(tmp_path: Path) -> None:
    found = loaded(tmp_path, LINT + GO)
    assert loaded(tmp_path, as_text(found)).config == found.config
    shown = as_json(found)["settings"]["runners"]
    assert [one["kind"] for one in shown["value"]] == ["command", "go"]
    assert shown["from"] == "watchtest.toml:1"


def test_runners_are_found_by_default() -> None:
    assert Config().runners == ()
