"""The programs that take the place of the dashboard for a while: a pager, and an editor at a line. Starts nothing."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping

PLUS_LINE = frozenset(
    {"vi", "vim", "nvim", "gvim", "mvim", "nano", "pico", "emacs", "emacsclient", "kak", "micro", "joe", "ne", "mcedit"}
)
GOTO = frozenset({"code", "code-insiders", "codium", "vscodium", "cursor", "windsurf"})
COLON_LINE = frozenset({"subl", "sublime_text", "hx", "helix", "zed", "zeditor", "lapce"})
LINE_OPTION = frozenset({"idea", "pycharm", "charm", "goland", "clion", "webstorm", "rustrover"})
PAGERS = ("less", "more")
EDITORS = ("editor", "vi", "nano")


def pager(environ: Mapping[str, str], which: Callable[[str], str | None]) -> list[str]:
    """None: an empty list."""
    words = _words(environ.get("PAGER", "")) or _first(PAGERS, which)
    if words and _name(words[0]) == "less":
        words.append("-+F")  # which leaves at once where all fits on a screen, and nobody would see it
    return words


def editor(environ: Mapping[str, str], which: Callable[[str], str | None], file: str, line: int) -> list[str]:
    """The user's editor, at that line where it is known how to say so; an empty list if there is none."""
    words = _words(environ.get("VISUAL", "")) or _words(environ.get("EDITOR", "")) or _first(EDITORS, which)
    if not words:
        return []
    name = _name(words[0])
    if name in GOTO:
        return [*words, "--goto", f"{file}:{line}"]
    if name in COLON_LINE:
        return [*words, f"{file}:{line}"]
    if name in LINE_OPTION:
        return [*words, "--line", str(line), file]
    return [*words, f"+{line}", file] if name in PLUS_LINE or name == "editor" else [*words, file]


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote without its other half
        return [command]


def _first(names: tuple[str, ...], which: Callable[[str], str | None]) -> list[str]:
    return next(([name] for name in names if which(name)), [])


def _name(program: str) -> str:
    return os.path.basename(program).removesuffix(".exe")  # noqa: PTH119  a word, not a path
