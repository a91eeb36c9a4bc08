"""The commands of the user's editor and pager."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping

LINE_SYNTAX = {
    "+{line} {file}": "editor vi vim nvim gvim mvim nano pico emacs emacsclient kak micro joe ne mcedit",
    "--goto {file}:{line}": "code code-insiders codium vscodium cursor windsurf",
    "{file}:{line}": "subl sublime_text hx helix zed zeditor lapce",
    "--line {line} {file}": "idea pycharm charm goland clion webstorm rustrover",
}
"""How editors are told to open a file at a line."""
PAGERS = ("less", "more")
EDITORS = ("editor", "vi", "nano")


def pager(environ: Mapping[str, str], which: Callable[[str], str | None]) -> list[str]:
    """Return the command of the user's pager; empty if there is none."""
    command = _split(environ.get("PAGER", "")) or _first_installed(PAGERS, which)
    if command and _program_name(command[0]) == "less":
        command.append("-+F")  # with -F, less would exit at once if the text fits on one screen
    return command


def editor(environ: Mapping[str, str], which: Callable[[str], str | None], file: str, line: int) -> list[str]:
    """Return the command that opens the user's editor, at that line if its syntax is known; empty if there is none."""
    command = _split(environ.get("VISUAL", "")) or _split(environ.get("EDITOR", "")) or _first_installed(EDITORS, which)
    if not command:
        return []
    name = _program_name(command[0])
    syntax = next((syntax for syntax, editors in LINE_SYNTAX.items() if name in editors.split()), "{file}")
    return [*command, *(word.format(file=file, line=line) for word in syntax.split())]


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # an unbalanced quote
        return [command]


def _first_installed(names: tuple[str, ...], which: Callable[[str], str | None]) -> list[str]:
    return next(([name] for name in names if which(name)), [])


def _program_name(program: str) -> str:
    return os.path.basename(program).removesuffix(".exe")  # noqa: PTH119  a word, not a path
