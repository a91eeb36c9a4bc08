"""Prints a status document: as one line or as a block. Pure; treats every text of the document as untrusted."""

from __future__ import annotations

from watchtest.core.text import age, count, one_line, tests

TYPE_CHECKING = False  # importing typing would take longer than the rest of `watchtest status --line`
if TYPE_CHECKING:
    from typing import Any

    Document = dict[str, Any]

SIGNS = {"passed": "✔", "failed": "✘", "error": "✘", "no_tests": "○", "unknown": "?"}
COLOURS = {"passed": "32", "failed": "31", "error": "31"}
SHOWN_FAILURES = 10


def line(document: Document, trouble: str, now: float) -> str:
    """Return `✔ passed 12 tests · save 3f2a91c · 0.8s ago`. `trouble` says why the document may be outdated."""
    summary = f"{verdict(document)}{_rest(_first_location(document), _code(document), _age(document, now))}"
    if trouble:
        return f"! {trouble[:-1]}; last known: {summary})" if trouble.endswith(")") else f"! {trouble} · {summary}"
    return f"{_sign(document)} {summary}{_rest(_activity(document), _pending(document))}"


def block(document: Document, trouble: str, now: float, *, has_colour: bool) -> str:
    """Return the line, then the failures, then problems with their hints, the box and its services."""
    head = line(document, trouble, now)
    colour = "33" if trouble else COLOURS.get(str(document.get("verdict")), "33")
    lines = [f"\x1b[1;{colour}m{head}\x1b[0m" if has_colour else head]
    failures = [failure for failure in _list(document.get("failures")) if isinstance(failure, dict)]
    for failure in failures[:SHOWN_FAILURES]:
        lines.append("  " + "  ".join(part for part in (_failure_location(failure), _text(failure.get("id"))) if part))
        lines += [f"      {_text(failure.get(key))}" for key in ("source_line", "message") if _text(failure.get(key))]
    left = _number(document, "failures_total") - len(failures[:SHOWN_FAILURES])
    if left > 0:
        lines.append(f"  and {left} more: watchtest status --json")
    problem = _dict(document.get("problem"))
    lines += [f"  {_text(problem.get(key))}" for key in ("message", "hint") if _text(problem.get(key))]
    box = _dict(document.get("box"))
    if box:
        lines.append("  box: " + _joined(_text(box.get("engine")), _text(box.get("id"))[:12], _text(box.get("state"))))
    services = [service for service in _list(box.get("services")) if isinstance(service, dict)]
    if services:
        named = (f"{_text(service.get('name'))} {_text(service.get('state'))}" for service in services)
        lines.append("  services: " + _joined(*named))
    if trouble.endswith("(died)"):
        lines.append("  start it again with: watchtest watch")
    return "\n".join(lines)


def verdict(document: Document) -> str:
    """Return the verdict with its numbers."""
    word = _text(document.get("verdict"))
    counts = _dict(document.get("known_counts"))
    total = sum(_number(counts, key) for key in ("passed", "failed", "error", "skipped", "xfailed"))
    red = _number(counts, "failed") + _number(counts, "error")
    reason = _text(document.get("reason"))
    match word:
        case "passed":
            skipped = _number(counts, "skipped")
            return f"passed {tests(total - skipped)}" + (f", {skipped} skipped" if skipped else "")
        case "failed":
            return f"failed {red} of {total}"
        case "error":
            return f"error{f' {red} of {total}' if red else ''}{_rest(reason)}"
        case "no_tests":
            return f"no tests{_rest(reason)}"
        case _:
            return f"{word}{_rest(reason)}"


def _activity(document: Document) -> str:
    word = _text(document.get("activity"))
    match word:
        case "idle":
            return ""
        case "running":
            progress = _dict(document.get("progress"))
            total = _number(progress, "total")
            return f"running {_number(progress, 'done')}/{total}" if total else "running"
        case "stopped":
            return "watcher stopped"
        case "degraded":
            return f"degraded: {_text(_dict(document.get('problem')).get('message'))}"
        case _:
            return word


def _pending(document: Document) -> str:
    changes = _number(_dict(document.get("pending")), "changes")
    return f"{count(changes, 'change')} pending" if changes else ""


def _code(document: Document) -> str:
    tree = _text(_dict(document.get("code")).get("tree"))
    lanes = _dict(document.get("lanes"))
    lane = next((name for name in ("save", "stage", "commit") if lanes.get(name)), "")
    return f"{lane} {tree[:7]}".strip() if tree else ""


def _first_location(document: Document) -> str:
    failures = _list(document.get("failures"))
    return _failure_location(_dict(failures[0])) if failures else ""


def _failure_location(failure: Document) -> str:
    file = _text(failure.get("file"))
    return f"{file}:{_number(failure, 'line')}" if file else ""


def _age(document: Document, now: float) -> str:
    from datetime import datetime

    try:
        return age(now - datetime.fromisoformat(str(document.get("verdict_at"))).timestamp())
    except (ValueError, OverflowError):  # no verdict yet
        return ""


def _sign(document: Document) -> str:
    return SIGNS.get(str(document.get("verdict")), "?")


def _rest(*parts: str) -> str:
    return "".join(f" · {part}" for part in parts if part)


def _joined(*parts: str) -> str:
    return " · ".join(part for part in parts if part)


def _text(value: object) -> str:
    return one_line(value) if isinstance(value, str) else ""


def _number(holder: Document, key: str) -> int:
    value = holder.get(key)
    return value if isinstance(value, int) else 0


def _dict(value: object) -> Document:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []
