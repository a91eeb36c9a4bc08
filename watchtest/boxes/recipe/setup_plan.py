"""What the files of a project say about its setup: commands, reasons, and the files that they depend on."""

from __future__ import annotations

from dataclasses import dataclass

from watchtest.boxes.protocols import SetupChoice


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """The commands that install the dependencies of a project."""

    commands: tuple[str, ...]
    choices: tuple[SetupChoice, ...] = ()
    files: tuple[str, ...] = ()
    """Paths of files that the commands read; if their content changes, setup must run again."""
