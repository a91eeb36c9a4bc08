"""What comes from outside: the environment, the user's folders, the settings. Only commands read these.

Options that several commands share, so that they are spelled in one place.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

from watchtest.config import Loaded, load
from watchtest.config.project import Project
from watchtest.core.model import EngineName
from watchtest.errors import UsageError
from watchtest.workspace.folder import find_workspace
from watchtest.workspace.user_dirs import config_dir, user_dirs


def load_settings(arguments: argparse.Namespace, flags: Mapping[str, object] | None = None) -> tuple[Path, Loaded]:
    """The workspace, and its settings with where each came from."""
    folder = find_workspace(arguments.workspace or Path.cwd())
    loaded = load(
        folder,
        explicit=arguments.config,
        environ=os.environ,
        user_folder=config_dir(),
        flags=flags or {},
    )
    return folder, loaded


def project_of(arguments: argparse.Namespace, flags: Mapping[str, object] | None = None) -> Project:
    folder, loaded = load_settings(arguments, flags)
    return Project(folder, loaded.config, os.environ, user_dirs())


ENGINES: tuple[str, ...] = get_args(EngineName)


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=ENGINES, help="where tests run, instead of box.engine")


TRIGGERS = ("save", "stage", "commit")


def add_trigger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trigger", action="append", default=[], metavar="T=POLICY", help="e.g. save=all, instead of [triggers]"
    )


def trigger_flags(arguments: argparse.Namespace) -> dict[str, object]:
    """As settings that outrank all others, those that were given."""
    return dict(_trigger(wish) for wish in arguments.trigger)


def _trigger(wish: str) -> tuple[str, object]:
    name, equals, policy = wish.partition("=")
    if not equals or name not in TRIGGERS:
        raise UsageError(
            f"--trigger {wish}: not a trigger", hint=f"write one of {', '.join(TRIGGERS)}, =, and a policy"
        )
    return f"triggers.{name}", policy


def engine_flag(arguments: argparse.Namespace) -> dict[str, object]:
    """As a setting that outranks all others, if it was given."""
    return {"box.engine": arguments.engine} if arguments.engine else {}
