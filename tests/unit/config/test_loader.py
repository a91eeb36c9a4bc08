"""Which layer of a setting wins, and the origin stored with the value."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from watchtest.commands.config import as_json, as_text
from watchtest.config import Config, LoadedConfig, load
from watchtest.config.keys import keys
from watchtest.config.toml_literal import literal


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def loaded(workspace: Path, **given_inputs: Any) -> LoadedConfig:
    inputs: dict[str, Any] = {"explicit": None, "environ": {}, "user_folder": None, "flags": {}}
    return load(workspace, **(inputs | given_inputs))


def test_without_any_file_the_defaults_hold(tmp_path: Path) -> None:
    found = loaded(tmp_path, user_folder=tmp_path / "nowhere")
    assert found.config == Config()
    assert found.file is None
    assert found.user_file is None
    assert set(found.origins) == {*keys(), "runners", "services"}
    assert {str(origin) for origin in found.origins.values()} == {"default"}


def test_the_first_file_found_is_the_only_one_of_the_workspace_that_counts(tmp_path: Path) -> None:
    own = write(tmp_path / "watchtest.toml", "[runner]\ntimeout_s = 1")
    hidden = write(tmp_path / ".watchtest/config.toml", "[runner]\ntimeout_s = 2\ngrace_s = 2.5")
    project = write(tmp_path / "pyproject.toml", "[tool.watchtest.runner]\ntimeout_s = 3")
    explicit = write(tmp_path / "elsewhere/mine.toml", "[runner]\ntimeout_s = 4")
    assert loaded(tmp_path, explicit=explicit).config.runner.timeout_s == 4
    for file, seconds in ((own, 1), (hidden, 2), (project, 3)):
        found = loaded(tmp_path)
        assert (found.file, found.config.runner.timeout_s) == (file, seconds)
        assert found.config.runner.grace_s == (2.5 if file == hidden else 2.0)
        file.unlink()
    assert loaded(tmp_path).file is None


def test_a_pyproject_without_our_table_is_not_our_config_file(tmp_path: Path) -> None:
    write(tmp_path / "pyproject.toml", "[tool.other]\nbox = 3")
    assert loaded(tmp_path).file is None


def test_each_layer_outranks_the_one_below_and_every_value_names_its_own(tmp_path: Path) -> None:
    user = tmp_path / "user"
    write(user / "config.toml", '[box]\nimage = "user"\nuser = "user"\npython = "user"\nengine = "docker"')
    write(tmp_path / "watchtest.toml", '# mine\n[box]\n\nimage = "file"\nuser = "file"\npython = "file"')
    found = loaded(
        tmp_path,
        user_folder=user,
        environ={"WATCHTEST_BOX_IMAGE": "variable", "WATCHTEST_BOX_USER": "variable"},
        flags={"box.image": "flag"},
    )
    box = found.config.box
    assert (box.image, box.user, box.python, box.engine, box.memory) == ("flag", "variable", "file", "docker", "auto")
    told = {key: str(found.origins[key]) for key in ("box.image", "box.user", "box.python", "box.engine", "box.memory")}
    assert told == {
        "box.image": "command line",
        "box.user": "WATCHTEST_BOX_USER",
        "box.python": "watchtest.toml:6",
        "box.engine": f"{user / 'config.toml'}:5",
        "box.memory": "default",
    }
    assert found.user_file == user / "config.toml"


def test_a_list_of_a_higher_layer_replaces_the_lower_one(tmp_path: Path) -> None:
    write(tmp_path / "watchtest.toml", 'runner.args = ["-x", "-q"]')
    assert loaded(tmp_path, flags={"runner.args": ["-v"]}).config.runner.args == ("-v",)


@pytest.mark.parametrize(
    ("variable", "text", "key", "value"),
    [
        ("WATCHTEST_BOX_ENGINE", "local", "engine", "local"),
        ("WATCHTEST_BOX_IMAGE", "3", "image", "3"),
        ("WATCHTEST_BOX_USER", "", "user", ""),
        ("WATCHTEST_BOX_PIDS", "64", "pids", 64),
        ("WATCHTEST_BOX_PIDS", "auto", "pids", "auto"),
        ("WATCHTEST_BOX_CPUS", "1.5", "cpus", 1.5),
        ("WATCHTEST_BOX_HARDENED", "true", "hardened", True),
        ("WATCHTEST_BOX_SETUP", "auto", "setup", "auto"),
        ("WATCHTEST_BOX_SETUP", '["make"]', "setup", ("make",)),
        ("WATCHTEST_BOX_ENVIRONMENT", '["A", "B"]', "environment", ("A", "B")),
    ],
)
def test_a_variable_is_read_as_its_key_needs_it(
    tmp_path: Path, variable: str, text: str, key: str, value: object
) -> None:
    assert getattr(loaded(tmp_path, environ={variable: text}).config.box, key) == value


def test_variables_that_are_no_settings_are_left_alone(tmp_path: Path) -> None:
    environ = {"WATCHTEST_REQUIRE_ENGINE": "1", "WATCHTEST_CACHE": "/c", "BOX_ENGINE": "x", "PATH": "/bin"}
    assert loaded(tmp_path, environ=environ).config == Config()


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem(tmp_path: Path) -> None:
    (tmp_path / "watchtest.toml").write_bytes(b'\xef\xbb\xbf[box]\r\nengine = "local"\r\n')
    found = loaded(tmp_path)
    assert found.config.box.engine == "local"
    assert str(found.origins["box.engine"]) == "watchtest.toml:2"


def test_settings_cannot_be_changed_after_loading(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        loaded(tmp_path).config.box.engine = "local"


words = st.text(st.characters(exclude_characters="\x00", exclude_categories=["Cs"]), min_size=1, max_size=8)
seconds = st.floats(min_value=0.001, max_value=604_800) | st.integers(1, 604_800)
some_settings = st.fixed_dictionaries(
    {},
    optional={
        "triggers.save": st.sampled_from(["off", "affected", "failed", "all"]),
        "watch.debounce_ms": st.integers(0, 1000),
        "watch.ignore": st.lists(words, max_size=3),
        "box.python": words,
        "box.setup": st.just("auto") | st.lists(words, max_size=3),
        "box.cpus": st.floats(min_value=0, max_value=4096),
        "box.hardened": st.booleans(),
        "box.environment": st.lists(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]*", fullmatch=True), max_size=3),
        "runner.args": st.lists(words, max_size=3),
        "runner.timeout_s": seconds,
    },
)


@settings(deadline=None)  # the machine may be busy; pytest's own timeout applies
@given(chosen=some_settings)
def test_what_is_shown_is_a_config_file_that_loads_the_same_settings(
    tmp_path_factory: pytest.TempPathFactory, chosen: dict[str, object]
) -> None:
    workspace = tmp_path_factory.mktemp("workspace")
    write(workspace / "watchtest.toml", "".join(f"{key} = {literal(value)}\n" for key, value in chosen.items()))
    first = loaded(workspace)
    for place, (key, value) in enumerate(chosen.items(), start=1):
        section, name = key.split(".")
        found = getattr(getattr(first.config, section), name)
        assert (list(found) if isinstance(found, tuple) else found) == value
        assert str(first.origins[key]) == f"watchtest.toml:{place}"
    shown = as_text(first)
    assert len(shown.splitlines()) == len(shown.split("\n")) == len(keys()) + 2
    write(workspace / "watchtest.toml", shown)
    assert loaded(workspace).config == first.config
    assert tomllib.loads(shown) == first.config.model_dump(mode="json")


def test_settings_as_json_carry_value_and_origin(tmp_path: Path) -> None:
    file = write(tmp_path / "watchtest.toml", '[box]\nenvironment = ["CI"]')
    answer = as_json(loaded(tmp_path))
    assert answer["file"] == str(file)
    assert list(answer["settings"]) == [*keys(), "runners", "services"]
    assert answer["settings"]["box.environment"] == {
        "value": ["CI"],
        "from": "watchtest.toml:2",
        "layer": "workspace",
        "place": "watchtest.toml",
        "line": 2,
    }
