"""Loads the settings of a command from its arguments, the environment and the user's folders; adds shared options."""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from watchtest.client.status_file import LANES
from watchtest.config import Loaded, load
from watchtest.config.project import Project
from watchtest.core.model import EngineName
from watchtest.errors import UsageError
from watchtest.workspace.folder import find_workspace
from watchtest.workspace.user_dirs import config_dir, user_dirs


def load_settings(arguments: argparse.Namespace, flags: Mapping[str, object] | None = None) -> tuple[Path, Loaded]:
    """Return the workspace, and its settings with the origin of each."""
    folder = find_workspace(arguments.workspace)
    loaded = load(
        folder,
        explicit=arguments.config,
        environ=os.environ,
        user_folder=config_dir(),
        flags=flags or {},
    )
    return folder, loaded


def project_of(arguments: argparse.Namespace, flags: Mapping[str, object] | None = None) -> Project:
    """Return the workspace with its settings; `flags` override all other settings."""
    folder, loaded = load_settings(arguments, flags)
    return Project(folder, loaded.config, os.environ, user_dirs())


ENGINES: tuple[str, ...] = get_args(EngineName)


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=ENGINES, help="engine to use, instead of box.engine")


def add_trigger(parser: argparse.ArgumentParser) -> None:
    text = "set the policy of a trigger, for example save=all, instead of [triggers]; may be repeated"
    parser.add_argument("--trigger", action="append", default=[], metavar="T=POLICY", help=text)


def trigger_flags(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the --trigger options as settings that override all others."""
    return dict(_trigger(option) for option in arguments.trigger)


def _trigger(option: str) -> tuple[str, object]:
    name, equals, policy = option.partition("=")
    if not equals or name not in LANES:
        raise UsageError(f"--trigger {option}: not a trigger", hint=f"write one of {', '.join(LANES)}, =, and a policy")
    return f"triggers.{name}", policy


def engine_flag(arguments: argparse.Namespace) -> dict[str, object]:
    """Return the --engine option as a setting that overrides all others."""
    return {"box.engine": arguments.engine} if arguments.engine else {}
