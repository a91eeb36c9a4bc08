"""Prints a status document: as one line or as a block. Pure; treats every text of the document as untrusted."""

from __future__ import annotations

from watchtest.core.text import age, one_line, tests, with_provisional

TYPE_CHECKING = False  # importing typing would take longer than the rest of `watchtest status --line`
if TYPE_CHECKING:
    from typing import Any

    Document = dict[str, Any]

GREEN, RED = "green", "red"
"""Of the values of `views.mood.Colour`, those with a sign of their own."""
COLOURS = {GREEN: "32", RED: "31"}
PROVISIONAL_SIGN = "≈"
"""For a provisional verdict that would be green."""
SHOWN_FAILURES = 10


def sign(colour: str, verdict: str, *, is_provisional: bool) -> str:
    """Return the sign of a colour."""
    if colour in (GREEN, RED):
        return "✔" if colour == GREEN else "✘"
    if is_provisional and verdict == "passed":
        return PROVISIONAL_SIGN
    return "○" if verdict == "no_tests" else "?"


def summary(colour: str, verdict: str, doubt: str) -> str:
    """Return a verdict in words; one that is in doubt as `1 change pending · last: passed 12 tests`."""
    return f"{doubt} · last: {verdict}" if doubt and colour != RED else verdict


def line(document: Document, trouble: str, now: float) -> str:
    """Return `✔ passed 12 tests · save 3f2a91c · 0.8s ago`. `trouble` says why the document may be outdated."""
    failures = _dicts(document, "failures")
    location = _failure_location(failures[0]) if failures else ""
    colour, doubt = _text(document, "colour"), _text(document, "doubt")
    rest = _joined(location, _code(document), _age(document, now))
    if trouble:
        known = _joined(verdict(document), rest)
        return f"! {trouble[:-1]}; last known: {known})" if trouble.endswith(")") else f"! {trouble} · {known}"
    parts = (summary(colour, verdict(document), doubt), rest, _activity(document), doubt if colour == RED else "")
    is_provisional = bool(document.get("provisional")) and not doubt
    return f"{sign(colour, _text(document, 'verdict'), is_provisional=is_provisional)} {_joined(*parts)}"


def block(document: Document, trouble: str, now: float, *, has_colour: bool) -> str:
    """Return the line, then the failures, then problems with their hints, the box and its services."""
    head = line(document, trouble, now)
    colour = "33" if trouble else COLOURS.get(_text(document, "colour"), "33")
    lines = [f"\x1b[1;{colour}m{head}\x1b[0m" if has_colour else head]
    failures = _dicts(document, "failures")[:SHOWN_FAILURES]
    for failure in failures:
        lines.append("  " + "  ".join(filter(None, (_failure_location(failure), _text(failure, "id")))))
        lines += [f"      {_text(failure, key)}" for key in ("source_line", "message") if _text(failure, key)]
    left = _number(document, "failures_total") - len(failures)
    if left > 0:
        lines.append(f"  and {left} more: watchtest status --json")
    problem, box = _dict(document, "problem"), _dict(document, "box")
    if hint := _text(_dict(document, "provisional"), "hint"):
        lines.append(f"  provisional: {hint}")
    lines += [f"  {_text(problem, key)}" for key in ("message", "hint") if _text(problem, key)]
    if box:
        lines.append("  box: " + _joined(_text(box, "engine"), _text(box, "id")[:12], _text(box, "state")))
    if services := _dicts(box, "services"):
        lines.append("  services: " + _joined(*(f"{_text(each, 'name')} {_text(each, 'state')}" for each in services)))
    if trouble.endswith("(died)"):
        lines.append("  start it again with: watchtest watch")
    return "\n".join(lines)


def verdict(document: Document) -> str:
    """Return the verdict with its numbers; a provisional one says so."""
    return with_provisional(_verdict(document), _text(_dict(document, "provisional"), "message"))


def _verdict(document: Document) -> str:
    word, reason, counts = _text(document, "verdict"), _text(document, "reason"), _dict(document, "known_counts")
    total = sum(_number(counts, key) for key in ("passed", "failed", "error", "skipped", "xfailed"))
    red = _number(counts, "failed") + _number(counts, "error")
    match word:
        case "passed":
            return passed(total, _number(counts, "skipped"))
        case "failed":
            return f"failed {red} of {total}"
        case "error":
            return f"error: {reason}" if reason else "error"
        case _:
            return _joined(word.replace("_", " "), reason)


def passed(total: int, skipped: int) -> str:
    """Return `passed 12 tests, 1 skipped`."""
    return f"passed {tests(total - skipped)}" + (f", {skipped} skipped" if skipped else "")


def _activity(document: Document) -> str:
    word = _text(document, "activity")
    match word:
        case "idle":
            return ""
        case "running":
            progress = _dict(document, "progress")
            total = _number(progress, "total")
            return f"running {_number(progress, 'done')}/{total}" if total else "running"
        case "stopped":
            return "" if document.get("doubt") else "watcher stopped, code unchanged"
        case _:
            return word


def _code(document: Document) -> str:
    tree, lanes = _text(_dict(document, "code"), "tree"), _dict(document, "lanes")
    lane = next((name for name in ("save", "stage", "commit") if lanes.get(name)), "")
    return f"{lane} {tree[:7]}".strip() if tree else ""


def _failure_location(failure: Document) -> str:
    file = _text(failure, "file")
    return f"{file}:{_number(failure, 'line')}" if file else ""


def _age(document: Document, now: float) -> str:
    from datetime import datetime

    try:
        return age(now - datetime.fromisoformat(str(document.get("verdict_at"))).timestamp())
    except (ValueError, OverflowError):  # no verdict yet
        return ""


def _joined(*parts: str) -> str:
    return " · ".join(filter(None, parts))


def _text(holder: Document, key: str) -> str:
    value = holder.get(key)
    return one_line(value) if isinstance(value, str) else ""


def _number(holder: Document, key: str) -> int:
    value = holder.get(key)
    return value if isinstance(value, int) else 0


def _dict(holder: Document, key: str) -> Document:
    value = holder.get(key)
    return value if isinstance(value, dict) else {}


def _dicts(holder: Document, key: str) -> list[Document]:
    value = holder.get(key)
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
