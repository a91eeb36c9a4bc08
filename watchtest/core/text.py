"""Words for people and untrusted text made harmless. Imports next to nothing, so that `watchtest status` may use it."""

from __future__ import annotations

import functools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

_BIDIRECTIONAL = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
# Every control character starts at least one alternative and none is ever kept: what is left after one pass cannot
# join into a new sequence. A string that is never closed loses its opening alone, so it hides nothing after it.
_UNWANTED = (
    r"(?P<newline>\r\n?)"
    r"|(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]"
    r"|(?:\x1b[\]PX^_]|[\x90\x98\x9d-\x9f])[^\x07\x1b\x90\x98\x9c-\x9f]*(?:\x07|\x1b\\|\x9c)"
    r"|\x1b[ -/]*[0-~]?"
    r"|[\x00-\x08\x0b-\x1f\x7f-\x9f" + _BIDIRECTIONAL + "]"
    r"|(?P<surrogate>[\ud800-\udfff])"
)


def clean(text: str) -> str:
    """`text` without anything that could steer a terminal: only printable characters, newlines and tabs are left."""
    # Most text is harmless, and that is told much faster; none of what is unwanted is printable.
    is_harmless = text.isprintable() or text.replace("\n", "").replace("\t", "").isprintable()
    return text if is_harmless else _unwanted().sub(_instead, text)


@functools.cache
def _unwanted() -> re.Pattern[str]:
    """Compiled when it is first needed: for most lines of `watchtest status` it never is."""
    return re.compile(_UNWANTED)


def _instead(match: re.Match[str]) -> str:
    if match["newline"]:
        return "\n"
    return "\N{REPLACEMENT CHARACTER}" if match["surrogate"] else ""


def cut(text: str, limit: int) -> str:
    """Clean text of at most `limit` characters, from its beginning."""
    # Cleaning costs time in proportion to the text, which came from the box: look only at what may be shown.
    beginning = clean(text[: limit * 4])
    is_whole = len(text) <= limit * 4 and len(beginning) <= limit
    return beginning if is_whole else beginning[: limit - 1] + "…"


def cut_front(text: str, limit: int) -> str:
    """Clean text of at most `limit` characters, from its end: the last words before a failure say most."""
    end = clean(text[-limit * 4 :])
    is_whole = len(text) <= limit * 4 and len(end) <= limit
    return end if is_whole else "…" + end[-(limit - 1) :]


def one_line(text: str, limit: int = 300) -> str:
    """The first line that says something, clean and without runs of blanks."""
    lines = (" ".join(line.split()) for line in cut(text.lstrip(), limit * 4).splitlines())
    return cut(next((line for line in lines if line), ""), limit)


def tail(text: str, lines: int, limit: int = 500) -> tuple[str, ...]:
    """The last lines of an output, clean, each of bounded length."""
    said = [line.rstrip() for line in cut_front(text, lines * limit).expandtabs(4).split("\n")]
    while said and not said[-1]:
        said.pop()
    return tuple(cut(line, limit) for line in said[-lines:])


def encodable(text: str, encoding: str | None) -> str:
    """`text` as a stream of this encoding can say it; consoles that know no ✔ get a question mark."""
    name = encoding or "utf-8"
    return text.encode(name, "replace").decode(name)


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def tests(number: int) -> str:
    return count(number, "test")


def duration(seconds: float) -> str:
    seconds = max(seconds, 0.0)
    if seconds < 10:
        return f"{seconds:.1f}s"
    if seconds < 60:
        return f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    return f"{minutes}m{rest:02d}s" if minutes < 60 else f"{minutes // 60}h{minutes % 60:02d}m"


def age(seconds: float) -> str:
    """How long ago in one unit: coarser the older."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "m")):
        if seconds >= size:
            return f"{int(seconds // size)}{unit} ago"
    return f"{max(seconds, 0.0):.1f}s ago" if seconds < 10 else f"{int(seconds // 5) * 5}s ago"


def names(paths: Collection[str], most: int = 3) -> str:
    """`a.py, b.py and 2 more`."""
    ordered = sorted(paths)
    shown = ", ".join(one_line(path, 80) for path in ordered[:most])
    return shown if len(ordered) <= most else f"{shown} and {len(ordered) - most} more"


def short(identifier: str, length: int = 8) -> str:
    return one_line(identifier, 200)[:length]
