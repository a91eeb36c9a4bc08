"""Describes why a test failed, from pytest's own reports: location, message and captured output.

Runs inside the project's own pytest, but does not import it.
"""

from __future__ import annotations

from os.path import join, realpath
from typing import Any, Iterable, Iterator, List, Tuple

from ..failures import MESSAGE_LIMIT, TEXT_LIMIT, FailureDescriber, cut, message_of
from ..rows import FailureRow

OUTPUT_LIMIT = 60 * 1024
TITLE_LIMIT = 200


class PytestFailures:
    """Notes the location of an exception on its report: the exception itself is only available while that is made."""

    def __init__(self, root: str) -> None:
        self._root = realpath(root)
        self._describer = FailureDescriber(root)

    def note(self, report: Any, error: BaseException, node: Any) -> None:
        file = str(getattr(node, "path", None) or node.fspath)
        report.watchtest_location = self._describer.locate(error, file, _line_of(node))

    def note_collection(self, report: Any, collector: Any) -> None:
        call = getattr(report, "call", None)
        if not report.failed or call is None or call.excinfo is None:
            return
        # pytest wraps the error of an import, and renders it without locations.
        error = call.excinfo.value
        is_wrapped = isinstance(error, collector.CollectError) and error.__cause__ is not None
        self.note(report, error.__cause__ if is_wrapped else error, collector)
        if is_wrapped:
            report.watchtest_message = message_of(error.__cause__)

    def describe(self, report: Any, nodeid: str) -> FailureRow:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = cut(report.longreprtext, TEXT_LIMIT)
        message = getattr(report, "watchtest_message", None) or (
            crash.message if crash is not None else _marked_line(text)
        )
        noted: FailureRow = getattr(report, "watchtest_location", None) or self._locate_by_text(report, nodeid)
        failure = noted.copy()
        failure["message"] = cut(message, MESSAGE_LIMIT)
        failure.setdefault("kind", _kind_of(failure["message"]))
        failure["text"] = text
        failure["output"] = "\n".join(_sections(report.sections))
        return failure

    def _locate_by_text(self, report: Any, nodeid: str) -> FailureRow:
        """Locate a failure by its rendered report, which is all that xdist's workers send."""
        locations = [entry.reprfileloc for entry in _entries(report.longrepr) if getattr(entry, "reprfileloc", None)]
        frames = [(realpath(join(self._root, str(location.path))), location.lineno) for location in locations]
        crash = getattr(report.longrepr, "reprcrash", None)
        if crash is not None:
            frames.append((realpath(str(crash.path)), crash.lineno))
        return self._describer.deepest(frames, join(self._root, nodeid.partition("::")[0]), _line_of(report))


def _line_of(node_or_report: Any) -> int:
    """Return the line where a test begins, for a test that fails before any of its code runs."""
    _, line, _ = getattr(node_or_report, "location", None) or (None, None, None)
    return (line or 0) + 1


def _entries(longrepr: Any) -> Iterable[Any]:
    for element in getattr(longrepr, "chain", None) or [(getattr(longrepr, "reprtraceback", None),)]:
        yield from getattr(element[0], "reprentries", ())


def _sections(sections: List[Tuple[str, str]]) -> Iterator[str]:
    """Yield the lines of all sections, which share OUTPUT_LIMIT."""
    for title, content in sections:
        yield "--- {} ---".format(cut(title, TITLE_LIMIT))
        yield cut(content, OUTPUT_LIMIT // len(sections))


def _marked_line(text: str) -> str:
    """Return the first line that pytest marks as the error, as for a missing fixture, or else the last line."""
    lines = [line for line in text.splitlines() if line.strip()]
    marked = [line[1:].strip() for line in lines if line.startswith("E   ")]
    return (marked or lines[-1:] or [""])[0]


def _kind_of(message: str) -> str:
    head = message.partition(":")[0].strip()
    return head if head.replace(".", "").replace("_", "").isalnum() else "Error"
