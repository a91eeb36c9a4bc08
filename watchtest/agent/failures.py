"""Describes exceptions of tests as the `failure` field of a row: the message, and where in the project it happened.

Runs inside the project's own Python. Bounded: whatever a test raises or prints, a description stays small.
"""

from __future__ import annotations

import linecache
import os
from os.path import isfile, realpath, relpath
from typing import Any, Iterator, List, Optional, Tuple

from .rows import Crash, FailureRow

TEXT_LIMIT = 64 * 1024
MESSAGE_LIMIT = 4 * 1024
SOURCE_LIMIT = 400


class FailureDescriber:
    """Describes exceptions in terms of the workspace `root`."""

    def __init__(self, root: str) -> None:
        self._root = realpath(root)

    def describe(self, error: BaseException, test_file: str, text: str, title: str = "") -> FailureRow:
        """Describe an error of a test in `test_file`; `text` is the full report, `title` precedes the message."""
        failure = self.locate(error, test_file)
        failure["message"] = cut(title + message_of(error), MESSAGE_LIMIT)
        failure["text"] = cut(text, TEXT_LIMIT)
        failure["output"] = ""
        return failure

    def locate(self, error: BaseException, test_file: str, line: int = 1) -> FailureRow:
        """Return kind and location of an error, from its traceback.

        `line`: where the test begins, used if no frame of the traceback is in the project.
        """
        failure: FailureRow = {"kind": type(error).__name__}
        try:
            own = [(file, line, trace) for file, line, trace in _frames(error) if self.is_own(file)]
            failure.update(self.deepest([frame[:2] for frame in own], test_file, line))
            if own:
                shown = _last_in(own, realpath(test_file))
                failure["column"], failure["function"] = _column(shown[2]), function_of(own[-1][2])
        except Exception:  # noqa: BLE001  a strange traceback must not break the user's tests
            pass
        return failure

    def deepest(self, frames: List[Tuple[str, int]], test_file: str, line: int = 1) -> FailureRow:
        """Locate the deepest of these frames in the test's own file, and as `crash` the deepest in the workspace."""
        test_file = realpath(test_file)
        own = [frame for frame in frames if self.is_own(frame[0])]
        if not own:
            return self.location(test_file, line) if isfile(test_file) else {}
        failure = self.location(*_last_in(own, test_file))
        failure["crash"] = Crash(file=self.relative(own[-1][0]), line=own[-1][1])
        return failure

    def location(self, file: str, line: int) -> FailureRow:
        source = linecache.getline(file, line).strip()
        return {"file": self.relative(file), "line": line, "source_line": cut(source, SOURCE_LIMIT)}

    def is_own(self, file: str) -> bool:
        return file.startswith(self._root + os.sep) and os.sep + "site-packages" + os.sep not in file

    def relative(self, file: str) -> str:
        return relpath(realpath(file), self._root).replace(os.sep, "/")


def _frames(error: BaseException) -> Iterator[Tuple[str, int, Any]]:
    """Yield file, line and traceback entry from the outermost to the deepest; last, the line of a syntax error."""
    trace = error.__traceback__
    while trace is not None:
        yield realpath(trace.tb_frame.f_code.co_filename), trace.tb_lineno, trace
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        yield realpath(error.filename), error.lineno or 1, None


def _last_in(frames: List[Any], file: str) -> Any:
    """Return the last frame in that file, or the last of all if there is none."""
    return ([frame for frame in frames if frame[0] == file] or frames)[-1]


def function_of(trace: Any) -> str:
    """Return the function of a traceback entry, with its class from Python 3.11 on."""
    code = trace.tb_frame.f_code if trace is not None else None
    return cut(str(getattr(code, "co_qualname", None) or getattr(code, "co_name", "")), SOURCE_LIMIT)


def message_of(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # noqa: BLE001  __str__ may be broken code of the project
        text = "<no message: __str__ failed>"
    return "{}: {}".format(type(error).__name__, text)


def cut(text: str, limit: int) -> str:
    """Return head and tail of a long text, with the number of omitted characters between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return "{}\n[... {} characters left out ...]\n{}".format(text[:half], len(text) - 2 * half, text[-half:])


def _column(trace: Any) -> Optional[int]:
    """Return the 1-based column of a traceback entry; None before Python 3.11."""
    positions = getattr(trace.tb_frame.f_code, "co_positions", None) if trace is not None else None
    if positions is None:
        return None
    for index, (line, _, column, _) in enumerate(positions()):
        if index == trace.tb_lasti // 2:
            return column + 1 if column is not None and line == trace.tb_lineno else None
    return None
