"""What Rust's tests print, read for places: panics old and new, backtraces, and how a process ended."""

from __future__ import annotations

import re
import signal

from watchtest.core.model import Failure, Place
from watchtest.runners.untrusted import COLUMNS, number, place

PANIC = re.compile(
    r"^thread '(?P<thread>[^\n]*?)' (?:\(\d+\) )?panicked at "
    r"(?:'(?P<old>.*?)', (?P<old_at>[^\n]+?:\d+:\d+)$|(?P<at>[^\n]+?:\d+:\d+):\n(?P<new>.*?)"
    r"(?=^stack backtrace:|^note: |^thread '|\Z))",
    re.MULTILINE | re.DOTALL,
)
FRAME = re.compile(r"^\s+at (\S.*?):(\d{1,9})(?::\d{1,9})?\s*$", re.MULTILINE)
AT = re.compile(r"\bat (\S+\.rs):(\d{1,9}):(\d{1,9})")
FROM_A_THREAD = "Any {"
"""What is left of a panic in another thread when it is unwrapped."""


def failure(test: str, said: str, message: str, root: str, folder: str, file: str) -> Failure:
    """Of a test that failed: its own panic, or the one before it that it only passed on."""
    panics = list(PANIC.finditer(said))
    own = [found for found in panics if found["thread"] == test] or panics
    if not own:
        return _unpanicked(said, message, root, folder)
    chosen = own[-1]
    if FROM_A_THREAD in _message(chosen) and panics.index(chosen) > 0:
        chosen = panics[panics.index(chosen) - 1]
    path, line, column = (chosen["at"] or chosen["old_at"]).rsplit(":", 2)
    crash = place(path, line, root, folder)
    rest = said[chosen.end() :]
    following = PANIC.search(rest)
    frames = [
        at
        for frame in FRAME.finditer(rest[: following.start()] if following else rest)
        if (at := place(frame[1], frame[2], root, folder))
    ]
    crash = crash or next(iter(frames), None)
    where = next((at for at in frames if at.file == file), crash)
    is_there = where is not None and where == place(path, line, root, folder)
    return Failure(
        kind="panic",
        message=_message(chosen) or message,
        where=where,
        column=number(column, COLUMNS) if is_there else None,
        crash=crash,
        text=said,
    )


def _message(panic: re.Match[str]) -> str:
    return str(panic["new"] if panic["new"] is not None else panic["old"]).strip()


def _unpanicked(said: str, message: str, root: str, folder: str) -> Failure:
    """It returned an error, or did not panic though it should."""
    found = AT.search(message)
    where: Place | None = place(found[1], found[2], root, folder) if found else None
    return Failure(kind="failed", message=message or said.strip(), where=where, crash=where, text=said)


def how_it_ended(code: int | None) -> str:
    """A shell tells a signal as 128 and its number."""
    if code is not None and 128 < code < 128 + signal.NSIG:
        try:
            return signal.Signals(code - 128).name
        except ValueError:
            pass
    return f"exit code {code}"
