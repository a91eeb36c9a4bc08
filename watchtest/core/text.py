"""Formats text for people, makes untrusted text harmless, and limits its length. Imports next to nothing."""

from __future__ import annotations

import functools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from typing import Any, TextIO

# How many characters are accepted, kept or shown, from short to long.
NAMES_SHOWN = 3
"""Names in a list, before "and 2 more"."""
NAME_LIMIT = 200
"""A kind of error, a function, or the first line of a message."""
LINE_LIMIT = 300
"""A line of text, unless there is a reason for another limit."""
ROW_LIMIT = 500
"""A row of output, or a hint."""
NOTE_LIMIT = 1_000
"""A note about a run."""
MESSAGE_LIMIT = 2_000
"""The message of a failure in the status file and in events."""
ID_LIMIT = 4_096
"""A test id, a path, or another name that comes from the box."""
EXCERPT_LIMIT = 8_000
"""The end of an output that is shown with a failure."""
STORED_TEXT_LIMIT = 64 * 1024
"""A text in the history."""
FAILURE_TEXT_LIMIT = 256 * 1024
"""A text of a failure that the box reports."""
OUTPUT_LIMIT = 1024 * 1024
"""The output of a run."""

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
HIDDEN = "\x7f-\x9f" + _BIDIRECTIONAL
"""A range of characters that valid text of a machine-readable format can contain, but that a terminal obeys."""
# Every control character starts at least one alternative and none is ever kept, so the rest cannot form a new sequence.
# Of a string sequence that is never closed only the opening is removed, so it hides no text after it.
_UNWANTED = (
    r"(?P<newline>\r\n?)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f" + _BIDIRECTIONAL + "]"
    r"|(?P<surrogate>[\ud800-\udfff])"
)


def clean(text: str) -> str:
    """Return `text` without control sequences: only printable characters, newlines and tabs are left."""
    # Most text is harmless, and checking that is much faster; no unwanted character is printable.
    is_harmless = text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()
    return text if is_harmless else _unwanted().sub(_instead, text)


@functools.cache
def _unwanted() -> re.Pattern[str]:
    """Compile the pattern on demand: `watchtest status` rarely needs it."""
    return re.compile(_UNWANTED)


def _instead(match: re.Match[str]) -> str:
    if match["newline"]:
        return "\n"
    return "\N{REPLACEMENT CHARACTER}" if match["surrogate"] else ""


def cut(text: str, limit: int) -> str:
    """Return the beginning of a text: clean, and at most `limit` characters."""
    # The text may be long and cleaning takes time, so only the part that may be shown is cleaned.
    beginning = clean(text[: limit * 4])
    is_whole = len(text) <= limit * 4 and len(beginning) <= limit
    return beginning if is_whole else beginning[: limit - 1] + "…"


def cut_front(text: str, limit: int) -> str:
    """Return the end of a text: clean, and at most `limit` characters."""
    end = clean(text[-limit * 4 :])
    is_whole = len(text) <= limit * 4 and len(end) <= limit
    return end if is_whole else "…" + end[-(limit - 1) :]


def one_line(text: str, limit: int = LINE_LIMIT) -> str:
    """Return the first line that is not blank: clean, and with single spaces."""
    lines = (" ".join(line.split()) for line in cut(text.lstrip(), limit * 4).splitlines())
    return cut(next((line for line in lines if line), ""), limit)


def tail(text: str, lines: int, limit: int = ROW_LIMIT) -> tuple[str, ...]:
    """Return the last lines of an output: clean, and each at most `limit` characters."""
    shown = [line.rstrip() for line in cut_front(text, lines * limit).expandtabs(4).split("\n")]
    while shown and not shown[-1]:
        shown.pop()
    return tuple(cut(line, limit) for line in shown[-lines:])


def encodable(text: str, encoding: str | None) -> str:
    """Return `text` with a question mark for every character that the encoding cannot represent."""
    name = encoding or "utf-8"
    return text.encode(name, "replace").decode(name)


class CleanStream:
    """A stream to the terminal: all that is written to it becomes harmless, because anything may quote the project.

    What contains our own colours is written to `uncleaned(stream)`, and cleaned before the colours are added.
    """

    def __init__(self, stream: TextIO) -> None:
        self.uncleaned = stream

    def write(self, text: str) -> int:
        self.uncleaned.write(encodable(clean(text), self.uncleaned.encoding))
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        for each in lines:
            self.write(each)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.uncleaned, name)


def uncleaned(stream: TextIO) -> TextIO:
    """Return the stream below a CleanStream, or the stream itself."""
    return getattr(stream, "uncleaned", stream)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tests(number: int) -> str:
    return count(number, "test")


def timestamp(seconds: float) -> str:
    """Return a time in UTC with milliseconds, as documents and logs contain it."""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def optional_timestamp(seconds: float | None) -> str | None:
    return None if seconds is None else timestamp(seconds)


def duration(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def age(seconds: float) -> str:
    """Return how long ago something happened, in one unit."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(seconds, 0.0):.1f}s ago" if seconds < 10 else f"{int(seconds // 5) * 5}s ago"


def names(paths: Collection[str], most: int = NAMES_SHOWN) -> str:
    """Return a phrase like `a.py, b.py and 2 more`."""
    ordered = sorted(paths)
    shown = ", ".join(one_line(path, 120) for path in ordered[:most])
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"


def with_provisional(verdict: str, message: str) -> str:
    """Return `passed 12 tests (provisional: changed by hand: pip install x)`."""
    return f"{verdict} (provisional: {one_line(message)})" if message else verdict


def join_reasons(reasons: Iterable[str]) -> str:
    """Join the first few reasons into one line, without duplicates."""
    unique = list(dict.fromkeys(reasons))
    more = f"; and {len(unique) - NAMES_SHOWN} more" if len(unique) > NAMES_SHOWN else ""
    return "; ".join(unique[:NAMES_SHOWN]) + more


def short(identifier: str, length: int = 8) -> str:
    return one_line(identifier, NAME_LIMIT)[:length]
