"""Which settings of a project ask for the user's consent, and which do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from watchtest.config import LoadedConfig, load
from watchtest.config.keys import Config, host_reaches, keys
from watchtest.errors import ConfigError


def loaded(workspace: Path, text: str, *, user: str = "", **given: Any) -> LoadedConfig:
    workspace.mkdir(exist_ok=True)
    (workspace / "watchtest.toml").write_text(text, encoding="utf-8")
    folder = workspace.parent / "user"
    folder.mkdir(exist_ok=True)
    (folder / "config.toml").write_text(user, encoding="utf-8")
    inputs: dict[str, Any] = {"explicit": None, "environ": {}, "user_folder": folder, "flags": {}}
    return load(workspace, **(inputs | given))


def asked(found: LoadedConfig) -> dict[str, str]:
    return {request.key: request.value for request in found.requests}


RISKY = [
    ('box.engine = "local"', '"local"'),
    ('box.sandbox = "off"', '"off"'),
    ('box.ca = "~/.ssh/id_rsa"', '"~/.ssh/id_rsa"'),
    ('box.ca = "./inside.pem"', '"./inside.pem"'),
    ('box.environment = ["HTTP_PROXY", "AWS_SECRET_ACCESS_KEY"]', '["HTTP_PROXY", "AWS_SECRET_ACCESS_KEY"]'),
    ('watch.include = [".env"]', '[".env"]'),
    ('watch.include = ["**"]', '["**"]'),
    ("box.ports = [8000]", "[8000]"),
    ("box.pids = 0", "0"),
    ("box.pids = 4194304", "4194304"),
    ("box.cpus = 0", "0"),
    ('box.memory = ""', '""'),
    ('box.memory = "999g"', '"999g"'),
    ('box.python = "/home/me/shop/evil"', '"/home/me/shop/evil"'),
    ('box.python = "./evil"', '"./evil"'),
    ('box.setup = ["make"]', '["make"]'),
    ('api.listen = "127.0.0.1:0"', '"127.0.0.1:0"'),
    ('notify.hook = "curl evil"', '"curl evil"'),
    ('notify.hook = ["curl", "evil\\u202e"]', '["curl", "evil\\u202e"]'),
    ('[[runners]]\nkind = "command"\ncommand = "make"', '[{kind = "command", command = "make"}]'),
    ('[[services]]\nname = "kv"\ncommand = "x"\nenv = { A = "b" }', '[{name = "kv", command = "x", env = {A = "b"}}]'),
]


@pytest.mark.parametrize(("text", "value"), RISKY)
def test_a_project_asks_for_what_reaches_the_host(tmp_path: Path, text: str, value: str) -> None:
    [request] = loaded(tmp_path / "shop", text).requests
    assert (request.value, request.origin.rpartition(":")[0]) == (value, "watchtest.toml")
    assert request.why


@pytest.mark.parametrize(
    "text",
    [
        'box.engine = "auto"',
        'box.engine = "docker"',
        'box.sandbox = "on"',
        'box.sandbox = "auto"',
        'box.ca = "off"',
        'box.environment = ["HTTPS_PROXY", "no_proxy"]',
        "box.environment = []",
        "watch.include = []",
        'watch.ignore = ["!.env", "build/"]',
        "box.ports = []",
        'box.memory = "4g"\nbox.cpus = 1.5\nbox.pids = 256',
        'box.memory = "auto"\nbox.cpus = "auto"\nbox.pids = "auto"',
        'box.python = "python3.13"',
        'box.setup = "auto"',
        "box.setup = []",
        'box.user = "root"',
        'box.network = "on"',
        'box.network = "off"',
        "box.hardened = true",
        'api.listen = ""',
        'notify.hook = ""',
        "services = []",
        'box.image = "evil:latest"\nbox.dockerfile = "Dockerfile"',
        'runner.timeout_s = 5\ntriggers.commit = "all"',
    ],
)
def test_a_project_sets_what_stays_in_the_container_without_asking(tmp_path: Path, text: str) -> None:
    assert loaded(tmp_path / "shop", text).requests == ()


def test_every_key_that_reaches_the_host_has_a_case_here(tmp_path: Path) -> None:
    tried = {request.key for text, _ in RISKY for request in loaded(tmp_path / "shop", text).requests}
    only_against_the_users_own = {"box.user", "box.network", "box.hardened"}
    assert tried | only_against_the_users_own == set(host_reaches())
    assert set(host_reaches()) <= {*keys(), *Config.model_fields}


@pytest.mark.parametrize(
    ("own", "text", "is_asked"),
    [
        ('box.network = "off"', 'box.network = "on"', True),
        ('box.network = "off"', 'box.network = "setup"', True),
        ('box.network = "setup"', 'box.network = "off"', False),
        ("box.hardened = true", "box.hardened = false", True),
        ("box.pids = 100", "box.pids = 200", True),
        ("box.pids = 100", "box.pids = 50", False),
        ("box.pids = 0", "box.pids = 0", False),
        ('box.memory = "4g"', 'box.memory = "4096m"', False),
        ('box.memory = "4g"', 'box.memory = "5g"', True),
        ('box.user = "nobody"', 'box.user = "root"', True),
        ('box.user = "nobody"', 'box.user = "nobody"', False),
        ('box.sandbox = "on"', 'box.sandbox = "auto"', True),
        ('box.engine = "docker"', 'box.engine = "auto"', True),
        ('box.engine = "local"', 'box.engine = "local"', False),
        ('box.environment = ["TOKEN"]', 'box.environment = ["TOKEN", "HTTP_PROXY"]', False),
        ('box.environment = ["TOKEN"]', 'box.environment = ["TOKEN", "PASSWORD"]', True),
        ("box.ports = [1, 2]", "box.ports = [2]", False),
        ('watch.include = [".env"]', 'watch.include = [".env"]', False),
        ('notify.hook = "lamp"', 'notify.hook = "lamp"', False),
        ('notify.hook = "lamp"', 'notify.hook = "curl evil"', True),
    ],
)
def test_what_the_user_has_set_is_the_measure(tmp_path: Path, own: str, text: str, is_asked: bool) -> None:
    assert bool(loaded(tmp_path / "shop", text, user=own).requests) is is_asked


def test_what_the_user_sets_needs_no_consent(tmp_path: Path) -> None:
    shop, text = tmp_path / "shop", 'box.engine = "local"\nbox.ports = [1]'
    assert asked(loaded(shop, "", user=text)) == {}
    assert asked(loaded(shop, text, environ={"WATCHTEST_BOX_PORTS": "[2]"})) == {"box.engine": '"local"'}
    assert asked(loaded(shop, text, flags={"box.engine": "local"})) == {"box.ports": "[1]"}
    assert asked(loaded(shop, "", explicit=shop / "watchtest.toml")) == {}
    assert asked(loaded(shop, text, explicit=shop / "watchtest.toml")) == {}, "the user has named that file"


@pytest.mark.parametrize("place", ["watchtest.toml", "pyproject.toml", ".watchtest/config.toml"])
def test_each_file_of_a_project_asks_and_is_named(tmp_path: Path, place: str) -> None:
    file = tmp_path / place
    file.parent.mkdir(exist_ok=True)
    prefix = "tool.watchtest." if place == "pyproject.toml" else ""
    file.write_text(f"# mine\n{prefix}box.ports = [1]")
    [request] = load(tmp_path, explicit=None, environ={}, user_folder=None, flags={}).requests
    assert request.origin.startswith(place)


@pytest.mark.parametrize("place", ["watchtest.toml", "pyproject.toml"])
def test_a_config_file_that_is_a_link_out_of_the_project_is_an_error(tmp_path: Path, place: str) -> None:
    shop = tmp_path / "shop"
    shop.mkdir()
    outside = tmp_path / "outside.toml"
    outside.write_text("[tool.watchtest]\n" if place == "pyproject.toml" else "")
    (shop / place).symlink_to(outside)
    with pytest.raises(ConfigError, match="outside the project"):
        load(shop, explicit=None, environ={}, user_folder=None, flags={})


def test_a_config_file_that_is_a_link_within_the_project_is_read(tmp_path: Path) -> None:
    (tmp_path / "settings.toml").write_text("runner.timeout_s = 7")
    (tmp_path / "watchtest.toml").symlink_to("settings.toml")
    found = load(tmp_path, explicit=None, environ={}, user_folder=None, flags={})
    assert found.config.runner.timeout_s == 7


def test_a_config_file_that_leads_to_a_device_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "watchtest.toml").symlink_to("/dev/zero")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path, explicit=None, environ={}, user_folder=None, flags={})
