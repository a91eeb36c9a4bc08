"""Rows that tell what became of tests: how they are written to the agent's pipe, and how an exception is described.

Runs inside the project's own Python. Bounded: whatever a test raises or prints, a row stays small.
"""

from __future__ import annotations

import faulthandler
import json
import linecache
import os
import signal
from os import getpid, write
from os.path import isfile, realpath, relpath
from typing import Any, Dict, Iterator, List, Optional, Tuple

TEXT_LIMIT = 64 * 1024
MESSAGE_LIMIT = 4 * 1024
SOURCE_LIMIT = 400
IDS_A_ROW = 500
KEPT_LIMIT = 32 * 1024
ENCODE = json.JSONEncoder(separators=(",", ":")).encode


class Rows:
    """The agent's pipe. A fork of the test process has no say."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._pid = getpid()
        self._kept = bytearray()

    def send(self, row: Dict[str, Any]) -> None:
        """At once."""
        self.keep(row)
        self.flush()

    def keep(self, row: Dict[str, Any]) -> None:
        """Until the next one is sent: for what nobody waits for."""
        self._kept += ENCODE(row).encode("ascii") + b"\n"
        if len(self._kept) > KEPT_LIMIT:
            self.flush()

    def flush(self) -> None:
        data = memoryview(bytes(self._kept))
        self._kept.clear()
        while data and getpid() == self._pid:
            data = data[write(self._fd, data) :]

    def promise(self, tests: List[str]) -> None:
        """Every test that is about to run."""
        for start in range(0, len(tests), IDS_A_ROW):
            self.send({"k": "collected", "tests": tests[start : start + IDS_A_ROW]})
        self.send({"k": "collection_end"})


def own_fd(name: str) -> int:
    """A pipe the agent gave us; neither it nor its name goes on to what the tests start."""
    fd = int(os.environ.pop(name))
    os.set_inheritable(fd, False)
    return fd


def listen_for_stacks(fd: int) -> None:
    """The stacks of all threads go there when the agent asks for them."""
    number = signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
    faulthandler.register(number, file=fd, all_threads=True)


class Describer:
    """Says of an exception where in the project it came from. `root` is the workspace."""

    def __init__(self, root: str) -> None:
        self._root = realpath(root)

    def describe(self, error: BaseException, test_file: str, text: str, title: str = "") -> Dict[str, Any]:
        """`test_file`: the file of the test. `text`: the whole report; `title` goes before the message."""
        failure: Dict[str, Any] = {
            "message": cut(title + message_of(error), MESSAGE_LIMIT),
            "text": cut(text, TEXT_LIMIT),
            "output": "",
        }
        failure.update(self.places(error, test_file))
        return failure

    def places(self, error: BaseException, test_file: str, line: int = 1) -> Dict[str, Any]:
        """From the traceback itself: what it was, and where. `line`: of the test, if none of the project's is in it."""
        places: Dict[str, Any] = {"kind": type(error).__name__}
        try:
            own = [(file, line, trace) for file, line, trace in _frames(error) if self.is_own(file)]
            places.update(self.deepest([frame[:2] for frame in own], test_file, line))
            if own:
                shown = _last_in(own, realpath(test_file))
                places.update(column=_column(shown[2]), function=function_of(own[-1][2]))
        except Exception:  # noqa: BLE001  a strange traceback is no reason to break the user's tests
            pass
        return places

    def deepest(self, frames: List[Tuple[str, int]], test_file: str, line: int = 1) -> Dict[str, Any]:
        """Of these: the deepest in the test's own file, which is shown, and the deepest in the workspace."""
        test_file = realpath(test_file)
        own = [frame for frame in frames if self.is_own(frame[0])]
        if not own:
            return self.place(test_file, line) if isfile(test_file) else {}
        places = self.place(*_last_in(own, test_file))
        places["crash"] = {"file": self.relative(own[-1][0]), "line": own[-1][1]}
        return places

    def place(self, file: str, line: int) -> Dict[str, Any]:
        source = linecache.getline(file, line).strip()
        return {"file": self.relative(file), "line": line, "source_line": cut(source, SOURCE_LIMIT)}

    def is_own(self, file: str) -> bool:
        return file.startswith(self._root + os.sep) and os.sep + "site-packages" + os.sep not in file

    def relative(self, file: str) -> str:
        return relpath(realpath(file), self._root).replace(os.sep, "/")


def _frames(error: BaseException) -> Iterator[Tuple[str, int, Any]]:
    """From the outermost to the deepest; of a syntax error the line that is wrong comes last."""
    trace = error.__traceback__
    while trace is not None:
        yield realpath(trace.tb_frame.f_code.co_filename), trace.tb_lineno, trace
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename:
        yield realpath(error.filename), error.lineno or 1, None


def _last_in(frames: List[Any], file: str) -> Any:
    """The last frame in that file; if there is none, the last of all."""
    return ([frame for frame in frames if frame[0] == file] or frames)[-1]


def function_of(trace: Any) -> str:
    """The function that a frame of a traceback is in, with its class where this Python knows it (3.11 on)."""
    code = trace.tb_frame.f_code if trace is not None else None
    return cut(str(getattr(code, "co_qualname", None) or getattr(code, "co_name", "")), SOURCE_LIMIT)


def message_of(error: BaseException) -> str:
    try:
        words = str(error)
    except Exception:  # noqa: BLE001  its own __str__ is the project's code, and may be what is broken
        words = "<it has no words>"
    return "{}: {}".format(type(error).__name__, words)


def cut(text: str, limit: int) -> str:
    """Head and tail, with the count of what was left out between them."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return "{}\n[... {} characters left out ...]\n{}".format(text[:half], len(text) - 2 * half, text[-half:])


def _column(trace: Any) -> Optional[int]:
    """1-based, where this Python knows it (3.11 on)."""
    positions = getattr(trace.tb_frame.f_code, "co_positions", None) if trace is not None else None
    if positions is None:
        return None
    for index, (line, _, column, _) in enumerate(positions()):
        if index == trace.tb_lasti // 2:
            return column + 1 if column is not None and line == trace.tb_lineno else None
    return None
