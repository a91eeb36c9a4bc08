"""The top-level config.toml, the JSON Schema and the code say the same."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from support import TESTS

from watchtest.config import Config, ReadySettings, ServiceSettings, json_schema
from watchtest.config.keys import SECTIONS, RunnerEntry, keys
from watchtest.config.problems import problems_in
from watchtest.config.toml_lines import lines_of_keys

CONFIG = TESTS.parent / "config.toml"
SCHEMA = json_schema()


def test_config_toml_has_every_key_with_its_default_and_nothing_else() -> None:
    data = tomllib.loads(CONFIG.read_text(encoding="utf-8"))
    assert data == Config().model_dump(mode="json", exclude={"runners", "services"})
    assert [f"{section}.{key}" for section, table in data.items() for key in table] == list(keys())


@pytest.mark.parametrize("key", list(keys()))
def test_config_toml_has_the_description_of_each_key_above_it(key: str) -> None:
    text = CONFIG.read_text(encoding="utf-8")
    section, name = key.split(".")
    line = lines_of_keys(text)[section, name]
    assert text.split("\n")[line - 2] == f"# {keys()[key].description}"


def test_config_toml_shows_a_service_with_every_key_and_its_description() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    example = [line.removeprefix("# ") for line in text[text.index("# [[services]]") :].splitlines()]
    [service] = Config.model_validate(tomllib.loads("\n".join(example))).services
    assert list(tomllib.loads("\n".join(example))["services"][0]) == list(ServiceSettings.model_fields)
    for name, field in ServiceSettings.model_fields.items():
        [place] = [number for number, line in enumerate(example) if line.startswith(f"{name} = ")]
        assert example[place - 1] == f"# {field.description}"
        if not field.is_required() and name != "ready":
            assert getattr(service, name) == field.default
    assert service.ready is not None
    assert service.ready.timeout_s == ReadySettings.model_fields["timeout_s"].default


def test_config_toml_shows_a_runner_with_every_key_and_its_description() -> None:
    text = CONFIG.read_text(encoding="utf-8")
    shown = text[text.index("# [[runners]]") : text.index("# Programs that run in the box")]
    example = [line.removeprefix("# ") for line in shown.splitlines()]
    [runner] = Config.model_validate(tomllib.loads("\n".join(example))).runners
    assert list(tomllib.loads("\n".join(example))["runners"][0]) == list(RunnerEntry.model_fields)
    for name, field in RunnerEntry.model_fields.items():
        [place] = [number for number, line in enumerate(example) if line.startswith(f"{name} = ")]
        assert example[place - 1] == f"# {field.description}"
        if name not in ("kind", "name", "command"):
            assert getattr(runner, name) == field.default


def test_the_schema_is_one() -> None:
    Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("key", list(keys()))
def test_the_schema_describes_each_key(key: str) -> None:
    section, name = key.split(".")
    described = SCHEMA["$defs"][SECTIONS[section].__name__]["properties"][name]
    default = keys()[key].default
    assert described["default"] == (list(default) if isinstance(default, tuple) else default)
    assert described["description"].endswith(".")
    assert "\n" not in described["description"]
    assert described["title"]
    assert {"enum", "pattern", "oneOf", "items", "maximum"} & set(described) or described["type"] == "boolean"


def test_the_schema_lists_the_choices() -> None:
    box = SCHEMA["$defs"]["BoxSettings"]["properties"]
    assert box["engine"]["enum"] == ["auto", "docker", "podman", "local"]
    assert box["network"]["enum"] == ["on", "off", "setup"]
    assert SCHEMA["$defs"]["TriggerSettings"]["properties"]["save"]["enum"] == ["off", "affected", "failed", "all"]


words = st.sampled_from(
    ["", "auto", "off", "docker", "on", "/", "/a", "/a/..", "4g", "a b", "A=1", "./x", "x:y", "\x00"]
)
numbers = st.integers(-1, 5_000_000) | st.sampled_from([0.5, -0.5, 604_800.5])  # JSON cannot distinguish 5.0 from 5
values = words | numbers | st.booleans() | st.lists(words | numbers, max_size=2)


@settings(deadline=None)  # the machine may be busy; pytest's own timeout applies
@given(key=st.sampled_from([*keys(), "box.nothing", "nothing.box"]), value=values)
def test_the_schema_accepts_what_the_code_accepts(key: str, value: Any) -> None:
    section, name = key.split(".")
    data = {section: {name: value}}
    assert Draft202012Validator(SCHEMA).is_valid(data) == (not problems_in(data))
