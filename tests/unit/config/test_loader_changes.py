"""Settings that are saved while a watcher runs."""

from __future__ import annotations

from support.watcher_states import Story

from watchtest.config import Config
from watchtest.config.loader import RESTART, ConfigChangeNotice
from watchtest.errors import ConfigError


def test_changed_settings_are_reported_once_as_not_yet_in_effect() -> None:
    now, said = [Config()], list[str]()

    def reread() -> Config:
        if not now:
            raise ConfigError("watchtest.toml: box.engine: no such engine")
        return now[-1]

    view = ConfigChangeNotice(Config(), reread, said.append)

    def saved(*paths: str) -> list[str]:
        before = len(said)
        for step in Story().change(*paths).steps:
            view.show(*step)
        return said[before:]

    other = Config.model_validate({"box": {"network": "off"}})
    assert saved("pyproject.toml") == []
    now.append(other)
    assert saved("shop.py") == []
    assert saved("watchtest.toml") == [f"the settings have changed: {RESTART}"]
    assert saved("watchtest.toml") == []
    now.clear()
    assert saved("watchtest.toml") == [
        "the settings have changed, but are invalid: watchtest.toml: box.engine: no such engine"
    ]
    now.append(Config())
    assert saved("watchtest.toml") == []
