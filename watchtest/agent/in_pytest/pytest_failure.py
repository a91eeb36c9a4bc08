"""Why a test failed, from pytest's own reports: where in the project, with which words, and what it had said.

Runs inside the project's own pytest, but imports nothing of it.
"""

from __future__ import annotations

from os.path import join, realpath
from typing import Any, Dict, Iterable, Iterator, List, Tuple

from ..rows import MESSAGE_LIMIT, TEXT_LIMIT, Describer, cut, message_of

OUTPUT_LIMIT = 60 * 1024
TITLE_LIMIT = 200


class Failures:
    """An exception is only there while its report is made; what it tells is noted on the report, for later."""

    def __init__(self, root: str) -> None:
        self._root = realpath(root)
        self._describer = Describer(root)

    def note(self, report: Any, error: BaseException, node: Any) -> None:
        file = str(getattr(node, "path", None) or node.fspath)
        report.watchtest_places = self._describer.places(error, file, _line_of(node))

    def note_collection(self, report: Any, collector: Any) -> None:
        call = getattr(report, "call", None)
        if not report.failed or call is None or call.excinfo is None:
            return
        # pytest wraps what an import raised, and renders it without places.
        error = call.excinfo.value
        is_wrapped = isinstance(error, collector.CollectError) and error.__cause__ is not None
        self.note(report, error.__cause__ if is_wrapped else error, collector)
        if is_wrapped:
            report.watchtest_message = message_of(error.__cause__)

    def describe(self, report: Any, nodeid: str) -> Dict[str, Any]:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = cut(report.longreprtext, TEXT_LIMIT)
        message = getattr(report, "watchtest_message", None) or (
            crash.message if crash is not None else _last_line(text)
        )
        failure = dict(getattr(report, "watchtest_places", None) or self._places_of_text(report, nodeid))
        failure["message"] = cut(message, MESSAGE_LIMIT)
        failure.setdefault("kind", _kind_of(failure["message"]))
        failure["text"] = text
        failure["output"] = "\n".join(_sections(report.sections))
        return failure

    def _places_of_text(self, report: Any, nodeid: str) -> Dict[str, Any]:
        """From the rendered report: all there is for tests of xdist's workers."""
        locations = [entry.reprfileloc for entry in _entries(report.longrepr) if getattr(entry, "reprfileloc", None)]
        frames = [(realpath(join(self._root, str(spot.path))), spot.lineno) for spot in locations]
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None:
            frames.append((realpath(str(crash.path)), crash.lineno))
        return self._describer.deepest(frames, join(self._root, nodeid.partition("::")[0]), _line_of(report))


def _line_of(what: Any) -> int:
    """Where a test begins, by its node or its report: all there is of one that fails before any of its code runs."""
    _, line, _ = getattr(what, "location", None) or (None, None, None)
    return (line or 0) + 1


def _entries(longrepr: Any) -> Iterable[Any]:
    for element in getattr(longrepr, "chain", None) or [(getattr(longrepr, "reprtraceback", None),)]:
        for entry in getattr(element[0], "reprentries", ()):
            yield entry


def _sections(sections: List[Tuple[str, str]]) -> Iterator[str]:
    """They share the room: were it cut again, the count of what was left out would be lost."""
    for title, content in sections:
        yield "--- {} ---".format(cut(title, TITLE_LIMIT))
        yield cut(content, OUTPUT_LIMIT // len(sections))


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _kind_of(message: str) -> str:
    head = message.partition(":")[0].strip()
    return head if head.replace(".", "").replace("_", "").isalnum() else "Error"
