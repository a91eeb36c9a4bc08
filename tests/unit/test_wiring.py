"""Which engine runs the boxes, and what a project may ask of the host with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.fake_engine import fake_engine

from watchtest import wiring
from watchtest.boxes.docker import engine_addresses
from watchtest.boxes.local import local_provider
from watchtest.boxes.local.bubblewrap import Bubblewrap, NoBubblewrap
from watchtest.config import Project, load
from watchtest.errors import EngineError
from watchtest.workspace.consent import ConsentFile, NeedsConsent
from watchtest.workspace.user_dirs import UserDirs

NO_SANDBOX = NoBubblewrap("bubblewrap is not installed")


@pytest.fixture(autouse=True)
def no_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the engines of this machine."""
    monkeypatch.setattr(engine_addresses, "DOCKER_SOCKET", str(tmp_path / "docker.sock"))
    monkeypatch.setattr(engine_addresses, "PODMAN_SOCKET", str(tmp_path / "podman.sock"))


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_provider.bubblewrap, "find_bubblewrap", lambda environ, is_offline=False: NO_SANDBOX)


@pytest.fixture
def sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Bubblewrap("/usr/bin/bwrap", "bubblewrap 1")
    monkeypatch.setattr(local_provider.bubblewrap, "find_bubblewrap", lambda environ, is_offline=False: found)


def project(tmp_path: Path, text: str = "", environ: dict[str, str] | None = None, **flags: object) -> Project:
    shop = tmp_path / "shop"
    shop.mkdir(exist_ok=True)
    (shop / "watchtest.toml").write_text(text)
    environ = {"HOME": str(tmp_path / "home"), "XDG_RUNTIME_DIR": str(tmp_path / "run"), **(environ or {})}
    dotted = {name.replace("_", ".", 1): value for name, value in flags.items()}
    loaded = load(shop, explicit=None, environ=environ, user_folder=None, flags=dotted)
    return Project(shop, loaded.config, environ, UserDirs(tmp_path / "cache", tmp_path / "state"), loaded.requests)


@contextmanager
def asks(*keys: str) -> Iterator[None]:
    with pytest.raises(NeedsConsent) as caught:
        yield
    assert sorted(request.key for request in caught.value.requests) == sorted(keys)


def choose(given: Project) -> Any:
    return wiring.choose_provider(given, "save", lambda text: None)


@pytest.mark.usefixtures("no_sandbox")
def test_tests_on_the_host_need_consent_once(tmp_path: Path) -> None:
    given = project(tmp_path)
    with pytest.raises(NeedsConsent) as caught:
        choose(given)
    assert "setup and tests run on your machine, as you: bubblewrap is not installed" in caught.value.message
    assert "no container engine is running" in caught.value.message
    ConsentFile(given.dirs.state, given.workspace).grant(caught.value.requests, 0.0)
    assert choose(project(tmp_path, "runner.timeout_s = 5")).engine == "local"
    with asks("box.setup"):
        choose(project(tmp_path, 'box.setup = ["curl evil | sh"]'))


@pytest.mark.usefixtures("no_sandbox")
def test_the_user_may_choose_the_local_box_and_what_runs_in_it_is_no_question(tmp_path: Path) -> None:
    text = 'box.setup = ["make"]\n[[services]]\nname = "kv"\ncommand = "kv"'
    assert choose(project(tmp_path, text, box_engine="local")).engine == "local"
    assert choose(project(tmp_path, text, {"WATCHTEST_BOX_ENGINE": "local"})).engine == "local"
    with asks("box.sandbox"):
        choose(project(tmp_path, 'box.sandbox = "off"', box_engine="local"))


@pytest.mark.usefixtures("sandbox")
def test_with_a_sandbox_the_local_box_is_the_fallback_without_a_question(tmp_path: Path) -> None:
    assert choose(project(tmp_path, 'box.setup = ["make"]')).engine == "local"
    with asks("box.engine"):
        choose(project(tmp_path, 'box.engine = "local"\nbox.setup = ["make"]'))
    with asks("box.python"):
        choose(project(tmp_path, 'box.python = "/tmp/evil"'))
    with asks("box.setup", "box.sandbox"):
        choose(project(tmp_path, 'box.setup = ["make"]\nbox.sandbox = "off"'))


@pytest.mark.usefixtures("sandbox")
def test_a_consent_to_the_sandboxed_box_is_none_to_the_bare_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = project(tmp_path, 'box.engine = "local"')
    requests = wiring.host_requests(given, wiring.choose_engine(given, lambda text: None))
    ConsentFile(given.dirs.state, given.workspace).grant(requests, 0.0)
    assert choose(given).engine == "local"
    monkeypatch.setattr(local_provider.bubblewrap, "find_bubblewrap", lambda environ, is_offline=False: NO_SANDBOX)
    with asks("box.sandbox"):
        choose(given)


def test_in_a_container_only_what_leaves_it_is_asked(tmp_path: Path) -> None:
    text = 'box.setup = ["make"]\nbox.python = "/opt/python"\nbox.sandbox = "off"\n'
    with fake_engine(tmp_path / "docker.sock"):
        assert choose(project(tmp_path, text)).engine == "docker"
        with asks("box.ports"):
            choose(project(tmp_path, text + "box.ports = [1]"))
        with asks("box.engine", "box.setup", "box.python", "box.sandbox"):
            choose(project(tmp_path, text + 'box.engine = "local"'))


def test_a_file_of_the_host_is_not_even_looked_at_before_the_consent(tmp_path: Path) -> None:
    with asks("box.ca"):
        choose(project(tmp_path, 'box.engine = "docker"\nbox.ca = "/nonexistent/key"'))


def test_trust_for_one_command_asks_nothing_and_stores_nothing(tmp_path: Path) -> None:
    given = project(tmp_path, 'box.engine = "docker"\nbox.ports = [1]')
    assert choose(replace(given, is_trusted=True)).engine == "docker"
    with asks("box.ports"):
        choose(given)


@pytest.mark.parametrize(
    "named",
    [
        {"DOCKER_HOST": "unix:///nowhere.sock"},
        {"CONTAINER_HOST": "unix:///nowhere.sock"},
        {"DOCKER_CONTEXT": "gone"},
        {"DOCKER_CONTEXT": "default"},
    ],
)
@pytest.mark.usefixtures("sandbox")
def test_an_engine_that_the_user_named_must_answer(tmp_path: Path, named: dict[str, str]) -> None:
    with fake_engine(tmp_path / ("docker.sock" if "CONTAINER_HOST" in named else "podman.sock")):
        with pytest.raises(EngineError) as caught:
            choose(project(tmp_path, environ=named))
        assert caught.value.exit_code == 4
        assert next(iter(named)) in caught.value.message
