"""The project that a command works on: the workspace, its settings and the user's environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from watchtest.config.keys import Config
from watchtest.workspace.user_dirs import UserDirs


@dataclass(frozen=True, slots=True)
class Project:
    """Everything that comes from outside the program."""

    workspace: Path
    config: Config
    environ: Mapping[str, str]
    dirs: UserDirs
