"""What comes from outside: the environment, the user's folders, the settings. Only commands read these."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path, user_config_path, user_state_path

from watchtest.client.watcher import runtime_folders
from watchtest.config import Loaded, load
from watchtest.wiring import Folders, Setting
from watchtest.workspace import folder as workspace


def load_settings(arguments: argparse.Namespace, flags: Mapping[str, object] | None = None) -> tuple[Path, Loaded]:
    """The workspace, and its settings with where each came from."""
    folder = workspace.find(arguments.workspace or Path.cwd())
    loaded = load(
        folder,
        explicit=arguments.config,
        environ=os.environ,
        user_folder=user_config_path("watchtest"),
        flags=flags or {},
    )
    return folder, loaded


def setting_of(arguments: argparse.Namespace, flags: Mapping[str, object] | None = None) -> Setting:
    folder, loaded = load_settings(arguments, flags)
    return Setting(folder, loaded.config, os.environ, user_folders())


def user_folders() -> Folders:
    """Each can be moved by a variable, for tests and for homes that cannot be written."""
    cache, state = os.environ.get("WATCHTEST_CACHE_DIR"), os.environ.get("WATCHTEST_STATE_DIR")
    return Folders(
        cache=Path(cache) if cache else user_cache_path("watchtest"),
        state=Path(state) if state else user_state_path("watchtest"),
        runtime=runtime_folders(),
    )
