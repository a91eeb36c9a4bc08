"""`[[services]]`: valid tables, messages about invalid ones, and the file they come from."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

import watchtest
from watchtest.commands.config import as_json, as_text
from watchtest.config import Config, LoadedConfig, ReadySettings, ServiceSettings, json_schema, load
from watchtest.errors import ConfigError

KV = '[[services]]\nname = "kv"\ncommand = "python server.py"\n'


def loaded(workspace: Path, text: str, **given: Any) -> LoadedConfig:
    (workspace / "watchtest.toml").write_text(text)
    inputs: dict[str, Any] = {"explicit": None, "environ": {}, "user_folder": None, "flags": {}}
    return load(workspace, **(inputs | given))


def test_a_name_and_a_command_are_enough(tmp_path: Path) -> None:
    [service] = loaded(tmp_path, KV).config.services
    assert (service.name, service.command, service.ready) == ("kv", "python server.py", None)
    assert (service.restart_on, service.env, service.restart_limit) == ("auto", {}, 5)


def test_every_key_of_a_service_is_taken(tmp_path: Path) -> None:
    text = (
        '[[services]]\nname = "kv"\ncommand = ["python", "server.py"]\nready = { tcp = 5328, timeout_s = 3 }\n'
        'restart_on = ["*.py"]\nenv = { A = "b" }\nrestart_limit = 0\n'
    )
    [service] = loaded(tmp_path, text).config.services
    assert service.command == ("python", "server.py")
    assert service.ready == ReadySettings(tcp=5328, timeout_s=3.0)
    assert (service.restart_on, service.env, service.restart_limit) == (("*.py",), {"A": "b"}, 0)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("services = 3", "services = 3: must be a list of tables; write [[services]] above each service"),
        ("[services]\n", "services: must be a list of tables; write [[services]] above each service"),
        ("services = [3]", "services[0] = 3: must be a table; write [[services]] above each service"),
        ('[[services]]\nname = "kv"', 'services[0].command: is missing; write command = "…"'),
        ('[[services]]\ncommand = "x"', 'services[0].name: is missing; write name = "…"'),
        (
            '[[services]]\nname = "K V"\ncommand = "x"',
            'services[0].name = "K V": must consist of lower-case letters, digits and "-", like "key-value"',
        ),
        (KV + "redy = 3", 'services[0].redy = 3: unknown key; did you mean "ready"?'),
        (
            KV + "zzz = 3",
            "services[0].zzz = 3: unknown key; a service has name, command, ready, restart_on, env, restart_limit",
        ),
        (KV + KV, 'services: two of them are named "kv"; give each its own name'),
        (KV + "ready = 5328", "services[0].ready = 5328: must be a table like { tcp = 8000, timeout_s = 30 }"),
        (KV + "ready = { tpc = 1, http = 'http://a' }", 'services[0].ready.tpc = 1: unknown key; did you mean "tcp"?'),
        (
            KV + "ready = { tcp = 1, http = 'http://a' }",
            "services[0].ready: must have one of tcp, http and command, not tcp and http",
        ),
        (KV + "ready = {}", "services[0].ready: must have one of tcp, http and command, but has none"),
        (KV + "ready = { tcp = 0 }", "services[0].ready.tcp = 0: must be at least 1"),
        (
            KV + 'ready = { tcp = "80" }',
            'services[0].ready.tcp = "80": must be a whole number; write 80 without quotes',
        ),
        (
            KV + "ready = { http = 'localhost:80' }",
            'services[0].ready.http = "localhost:80": must be a URL like "http://localhost:8000/health"',
        ),
        (KV + "ready = { tcp = 1, timeout_s = 0 }", "services[0].ready.timeout_s = 0: must be greater than 0"),
        ('[[services]]\nname = "kv"\ncommand = []', "services[0].command: must not be empty"),
        (
            '[[services]]\nname = "kv"\ncommand = 3',
            "services[0].command = 3: must be a shell command or a list of arguments",
        ),
        ('[[services]]\nname = "kv"\ncommand = ["a", 3]', 'services[0].command[1] = 3: must be text; write "3"'),
        (
            KV + 'restart_on = "*.py"',
            'services[0].restart_on = "*.py": must be "auto" or a list of globs; write ["*.py"]',
        ),
        (KV + "env = 3", 'services[0].env = 3: must be a table like { NAME = "value" }'),
        (KV + "env = { A = 3 }", 'services[0].env.A = 3: must be text; write "3"'),
        (
            KV + 'env = { "A B" = "c" }',
            'services[0].env."A B" = "A B": must be the name of an environment variable: letters, digits and _',
        ),
        (KV + "restart_limit = -1", "services[0].restart_limit = -1: must be at least 0"),
        (
            '[[services]]\nname = "a"\ncommand = "x"\n' + KV + "env = []",
            'services[1].env: must be a table like { NAME = "value" }',
        ),
    ],
)
def test_a_wrong_service_is_one_line_that_says_what_to_write(tmp_path: Path, text: str, line: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, text)
    assert caught.value.message == f"watchtest.toml: {line}"
    if "two of them" not in line:  # JSON Schema cannot express it
        assert not Draft202012Validator(json_schema()).is_valid(tomllib.loads(text))


def test_the_schema_accepts_services(tmp_path: Path) -> None:
    text = KV + 'ready = { http = "http://localhost:80/x" }\nrestart_on = ["a"]\nenv = { A = "" }'
    assert Draft202012Validator(json_schema()).is_valid(tomllib.loads(text))
    assert loaded(tmp_path, text).config.services


def test_the_services_of_a_workspace_replace_those_of_the_user(tmp_path: Path) -> None:
    user = tmp_path / "user"
    user.mkdir()
    (user / "config.toml").write_text('[[services]]\nname = "mine"\ncommand = "x"\n')
    found = loaded(tmp_path, "\n" + KV, user_folder=user)
    assert [service.name for service in found.config.services] == ["kv"]
    assert str(found.origins["services"]) == "watchtest.toml:2"
    found = loaded(tmp_path, "", user_folder=user)
    assert [service.name for service in found.config.services] == ["mine"]


def test_in_pyproject_services_stand_below_our_table(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.x]\n" + KV.replace("services", "tool.watchtest.services"))
    found = load(tmp_path, explicit=None, environ={}, user_folder=None, flags={})
    assert [service.name for service in found.config.services] == ["kv"]
    assert str(found.origins["services"]) == "pyproject.toml:2"


def test_services_that_are_shown_are_services_that_load(tmp_path: Path) -> None:
    text = KV + 'ready = { command = "say \\"hi\\"" }\nenv = { A = "b" }\n'
    found = loaded(tmp_path, text)
    assert loaded(tmp_path, as_text(found)).config == found.config
    shown = as_json(found)["settings"]["services"]
    assert shown["value"][0]["ready"] == {"command": 'say "hi"', "timeout_s": 30.0}
    assert shown["from"] == "watchtest.toml:1"


@pytest.mark.parametrize(
    ("owner", "key"),
    [("service", key) for key in ServiceSettings.model_fields] + [("ready", key) for key in ReadySettings.model_fields],
)
def test_every_key_of_a_service_is_read_somewhere(owner: str, key: str) -> None:
    source = (Path(watchtest.__file__).parent / "wiring.py").read_text(encoding="utf-8")
    read = {
        (node.value.id, node.attr)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert (owner, key) in read


def test_there_are_no_services_by_default() -> None:
    assert Config().services == ()
