"""Invalid configs, and the exact messages that the user sees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from watchtest.config import load
from watchtest.errors import ConfigError


def problems(workspace: Path, **given_inputs: Any) -> list[str]:
    inputs: dict[str, Any] = {"explicit": None, "environ": {}, "user_folder": None, "flags": {}}
    with pytest.raises(ConfigError) as caught:
        load(workspace, **(inputs | given_inputs))
    return caught.value.message.split("\n")


BOX_KEYS = (
    "engine, image, dockerfile, workdir, user, python, setup, dependencies, setup_timeout_s, environment, "
    "ca, network, sandbox, ports, git, cache, memory, cpus, pids, hardened"
)
SECTIONS = "triggers, watch, box, runner, selection, notify, history, api, runners, services"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('box.engine = "dokcer"', 'box.engine = "dokcer": no such engine; did you mean "docker"?'),
        ('box.engine = "Docker"', 'box.engine = "Docker": no such engine; did you mean "docker"?'),
        (
            'box.engine = "kubernetes"',
            'box.engine = "kubernetes": no such engine; choose "auto", "docker", "podman" or "local"',
        ),
        ("box.engine = 3", 'box.engine = 3: must be "auto", "docker", "podman" or "local"'),
        ('triggers.save = "al"', 'triggers.save = "al": no such policy; did you mean "all"?'),
        ('box.network = "of"', 'box.network = "of": no such value; did you mean "off"?'),
        ("[bxo]", 'bxo: unknown section; did you mean "box"?'),
        ("[serfices]", 'serfices: unknown section; did you mean "services"?'),
        ("[[box]]", "box: must be a section; write [box] on its own line"),
        ("box = true", "box = true: must be a section; write [box] on its own line"),
        ("box.engin = 1", 'box.engin = 1: unknown key; did you mean "engine"?'),
        ('engine = "docker"', 'engine = "docker": unknown key; did you mean "box.engine"?'),
        ("box.timeout_s = 1", 'box.timeout_s = 1: unknown key; did you mean "runner.timeout_s"?'),
        ("box.zzz = {a = 1}", f"box.zzz = {{…}}: unknown key; [box] has {BOX_KEYS}"),
        ("zzz = 2020-01-02", f"zzz = 2020-01-02: unknown key; the sections are {SECTIONS}"),
        ('"a\\u001b[31m" = 1', f'"a\\u001b[31m" = 1: unknown key; the sections are {SECTIONS}'),
        ('runner.timeout_s = "300"', 'runner.timeout_s = "300": must be a number; write 300 without quotes'),
        ('runner.timeout_s = "5 min"', 'runner.timeout_s = "5 min": must be a number'),
        ("runner.timeout_s = 0", "runner.timeout_s = 0: must be greater than 0"),
        ("runner.timeout_s = 604801", "runner.timeout_s = 604801: must be at most 604800"),
        ("runner.timeout_s = nan", "runner.timeout_s = nan: must be a finite number"),
        ("runner.timeout_s = true", "runner.timeout_s = true: must be a number"),
        ("runner.grace_s = -0.5", "runner.grace_s = -0.5: must be at least 0"),
        ('watch.debounce_ms = "50"', 'watch.debounce_ms = "50": must be a whole number; write 50 without quotes'),
        ("watch.debounce_ms = 50.0", "watch.debounce_ms = 50.0: must be a whole number; write 50"),
        ("watch.debounce_ms = 10001", "watch.debounce_ms = 10001: must be at most 10000"),
        ("box.pids = 1", "box.pids = 1: must be at least 16"),
        ('box.pids = "64"', 'box.pids = "64": must be a whole number; write 64 without quotes'),
        ("box.cpus = 4097", "box.cpus = 4097: must be at most 4096"),
        ('notify.desktop = "true"', 'notify.desktop = "true": must be true or false; write true without quotes'),
        ("notify.desktop = 1", "notify.desktop = 1: must be true or false"),
        ("box.image = 3", 'box.image = 3: must be text; write "3"'),
        ("box.image = []", "box.image = []: must be text"),
        ('box.image = "a b"', 'box.image = "a b": must be "auto" or the name of an image, without spaces'),
        ('runner.args = "-x"', 'runner.args = "-x": must be a list; write ["-x"]'),
        ("runner.args = 1", "runner.args = 1: must be a list"),
        ('runner.args = ["-x", 1]', 'runner.args[1] = 1: must be text; write "1"'),
        ('runner.args = ["\\u0000"]', 'runner.args[0] = "\\u0000": must not contain a NUL character'),
        ('watch.ignore = [""]', 'watch.ignore[0] = "": must not be empty or contain a NUL character'),
        ('box.setup = "make"', 'box.setup = "make": must be "auto" or a list of commands; write ["make"]'),
        ("box.setup = 3", 'box.setup = 3: must be "auto" or a list of commands'),
        ('box.setup = ["make", 3]', 'box.setup[1] = 3: must be text; write "3"'),
        (
            'box.environment = ["A=b"]',
            'box.environment[0] = "A=b": must be only the name of an environment variable; '
            "its value is taken from the host",
        ),
        ('box.memory = "4"', 'box.memory = "4": must be "auto" or a size like "512m" or "4g"; "" means no limit'),
        (
            'box.user = "a b"',
            'box.user = "a b": must be like "name", "name:group" or "1000:1000"; "" means the image\'s own',
        ),
        (
            'box.ca = "on"',
            'box.ca = "on": must be "auto", "off" or the path of a certificate bundle; '
            'write "./NAME" for a bare file name',
        ),
    ],
)
def test_a_wrong_key_or_value_is_one_line_that_says_what_to_write(tmp_path: Path, text: str, line: str) -> None:
    (tmp_path / "watchtest.toml").write_text(text)
    assert problems(tmp_path) == [f"watchtest.toml: {line}"]


@pytest.mark.parametrize("path", ["/", "", "workspace", "/a/", "/a/../b", "/.", "//a", "/a\n", "./a"])
def test_a_workdir_is_a_plain_absolute_path(tmp_path: Path, path: str) -> None:
    [line] = problems(tmp_path, flags={"box.workdir": path})
    assert line.startswith("command line: box.workdir = ")
    assert line.endswith(
        'must be an absolute path other than "/", without ".", ".." or a trailing "/"; write "/workspace"'
    )


@pytest.mark.parametrize("path", ["/a", "/a/b c/..d", "/.hidden/é"])
def test_ordinary_workdirs_are_accepted(tmp_path: Path, path: str) -> None:
    loaded = load(tmp_path, explicit=None, environ={}, user_folder=None, flags={"box.workdir": path})
    assert loaded.config.box.workdir == path


def test_all_problems_of_all_sources_come_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "user").mkdir()
    (tmp_path / "user/config.toml").write_text("[bxo]\n[")
    (tmp_path / "watchtest.toml").write_text(
        '[runner]\ntimeout_s = "300"\n[bxo]\n[box]\ncpus = -1\nengine = "dokcer"\n'
    )
    environ = {"WATCHTEST_BOX_ENGINE": "dokcer"}
    assert problems(tmp_path, user_folder=tmp_path / "user", environ=environ, flags={"box.pids": 1}) == [
        f"{tmp_path}/user/config.toml:2:2: not valid TOML: invalid initial character for a key part",
        'watchtest.toml: runner.timeout_s = "300": must be a number; write 300 without quotes',
        'watchtest.toml: bxo: unknown section; did you mean "box"?',
        "watchtest.toml: box.cpus = -1: must be at least 0",
        'watchtest.toml: box.engine = "dokcer": no such engine; did you mean "docker"?',
        'WATCHTEST_BOX_ENGINE = "dokcer": no such engine; did you mean "docker"?',
        "command line: box.pids = 1: must be at least 16",
    ]


def test_a_wrong_value_is_told_even_where_a_higher_layer_hides_it(tmp_path: Path) -> None:
    (tmp_path / "watchtest.toml").write_text("box.pids = 1")
    assert problems(tmp_path, flags={"box.pids": 64}) == ["watchtest.toml: box.pids = 1: must be at least 16"]


def test_in_pyproject_the_key_is_named_as_it_stands_there(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.watchtest.box]\nengine = "dokcer"')
    assert problems(tmp_path) == [
        'pyproject.toml: tool.watchtest.box.engine = "dokcer": no such engine; did you mean "docker"?'
    ]
    (tmp_path / "pyproject.toml").write_text("[tool]\nwatchtest = 3")
    assert problems(tmp_path) == ["pyproject.toml: tool.watchtest = 3: must be a table; write [tool.watchtest]"]


@pytest.mark.parametrize(
    ("text", "environ", "line"),
    [
        (
            "watch.debounce_ms = 2000",
            {},
            "watchtest.toml: watch.debounce_ms = 2000: must be at most watch.debounce_cap_ms, which is 1000 (default)",
        ),
        (
            "watch.debounce_ms = 60",
            {"WATCHTEST_WATCH_DEBOUNCE_CAP_MS": "9"},
            "WATCHTEST_WATCH_DEBOUNCE_CAP_MS: watch.debounce_cap_ms = 9: "
            "must be at least watch.debounce_ms, which is 60 (watchtest.toml:1)",
        ),
    ],
)
def test_two_keys_that_contradict_each_other_are_told_together(
    tmp_path: Path, text: str, environ: dict[str, str], line: str
) -> None:
    (tmp_path / "watchtest.toml").write_text(text)
    assert problems(tmp_path, environ=environ) == [line]


def test_a_contradiction_that_a_higher_layer_solves_is_none(tmp_path: Path) -> None:
    (tmp_path / "watchtest.toml").write_text("watch.debounce_ms = 2000")
    flags = {"watch.debounce_cap_ms": 3000}
    assert load(tmp_path, explicit=None, environ={}, user_folder=None, flags=flags).config.watch.debounce_ms == 2000


@pytest.mark.parametrize(
    ("variable", "text", "line"),
    [
        ("RUNNER_TIMEOUT_S", "abc", ' = "abc": must be a number'),
        ("RUNNER_TIMEOUT_S", "-1", " = -1: must be greater than 0"),
        ("RUNNER_ARGS", "-x", ' = "-x": must be a list; write ["-x"]'),
        ("BOX_HARDENED", "yes", ' = "yes": must be true or false'),
        ("BOX_PIDS", "64\nx = 1", ' = "64\\nx = 1": must be a whole number'),
        ("BOX_IMAGE", "\udcff", ' = "\\udcff": must be valid UTF-8 text'),
        ("BXO_ENGINE", "local", ": no such setting; did you mean WATCHTEST_BOX_ENGINE?"),
        ("BOX_ENGINES", "local", ": no such setting; did you mean WATCHTEST_BOX_ENGINE?"),
        ("HISTORY_KEEP", "3", ": no such setting; [history] has enabled, max_days, max_runs, max_mb"),
    ],
)
def test_a_wrong_variable_is_named(tmp_path: Path, variable: str, text: str, line: str) -> None:
    assert problems(tmp_path, environ={f"WATCHTEST_{variable}": text}) == [f"WATCHTEST_{variable}{line}"]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"[box\nx = 1", "watchtest.toml:1:5: not valid TOML: expected ']' at the end of a table declaration"),
        (b"[box]\nengine = ", "watchtest.toml:2:10: not valid TOML: invalid value"),
        (b'[box]\nengine = """', "watchtest.toml:2:13: not valid TOML: unterminated string"),
        (b'[box]\nimage = "\xff"', "watchtest.toml:2: not UTF-8 (byte 0xff); save the file as UTF-8"),
        (b"a = " + b"[" * 20_000, "watchtest.toml: not valid TOML: a value in it is too large to read"),
        (b"a = " + b"1" * 5_000, "watchtest.toml: not valid TOML: a value in it is too large to read"),
        (b"#" * (4 * 1024 * 1024 + 1), "watchtest.toml: larger than 4 MiB; this is not a config file"),
        (b".".join([b"a"] * 2000) + b" = 1", f"watchtest.toml: a: unknown section; the sections are {SECTIONS}"),
    ],
    ids=["bracket", "no value", "no end", "latin-1", "brackets", "digits", "huge", "deep"],
)
def test_a_file_that_is_no_config_is_one_line(tmp_path: Path, content: bytes, line: str) -> None:
    (tmp_path / "watchtest.toml").write_bytes(content)
    assert problems(tmp_path) == [line]


def test_a_config_file_that_is_not_there_or_not_a_file_is_told(tmp_path: Path) -> None:
    missing = tmp_path / "missing.toml"
    assert problems(tmp_path, explicit=missing) == ["missing.toml: no such file; give the path of a TOML file"]
    (tmp_path / "watchtest.toml").symlink_to(missing)
    assert problems(tmp_path) == ["watchtest.toml: a link to a missing file; fix or remove it"]
    outside = tmp_path / "folder"
    outside.mkdir()
    assert problems(tmp_path / "other", explicit=outside) == [f"{outside}: is a folder, but must be a TOML file"]
    project = tmp_path / "pyproject.toml"
    project.write_text("[tool]")
    assert problems(tmp_path, explicit=project) == [
        "pyproject.toml: has no [tool.watchtest] table; add one or name another file"
    ]


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "watchtest.toml"
    if os.geteuid() == 0:  # root may read everything, but not even root can read a link to itself
        file.symlink_to(file)
        reason = "Too many levels of symbolic links"
    else:
        file.touch(mode=0o000)
        reason = "Permission denied"
    assert problems(tmp_path) == [f"watchtest.toml: cannot be read: {reason}; check its permissions"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.dates() | st.times(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


@settings(deadline=None)  # the machine may be busy; pytest's own timeout applies
@given(
    key=st.sampled_from(["box.setup", "box.engine", "box.cpus", "runner.args", "watch.debounce_ms", "box.x"]),
    value=anything,
)
def test_no_value_whatever_gets_pydantics_own_words_or_more_than_a_line_to_the_user(key: str, value: object) -> None:
    try:
        load(Path("nowhere"), explicit=None, environ={}, user_folder=None, flags={key: value})
    except ConfigError as error:
        for line in error.message.split("\n"):
            assert line.startswith(f"command line: {key}")
            assert line.isprintable()
            assert "nput should" not in line
            assert "is not accepted" not in line  # the fallback of problems.py, for an unknown kind of error
