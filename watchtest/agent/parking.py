"""A run that was begun ahead of its save, and waits: EARLY before anything of the project is read but its settings,
LATE when the first conftest files are loaded and the session has begun.

It goes on only if a run that began now would be where it is. So whatever it has read must be as it was; and on its way
it may do nothing that others could notice: the first attempt to write, connect or start something ends it before that
has happened. It is used once: no two runs come out of one such session.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Protocol, Tuple

from .held import Stamp, stamp
from .noticing import noticed, read
from .words import hear, say

EARLY, LATE = "early", "late"
OLDEST_S = 600.0
"""Modules may have looked at the clock when they were imported."""
SETTINGS = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
    "setup.py",
)


class Held(Protocol):
    def first_change(self) -> str: ...


class Gate:
    """Where a session waits for its order. Made before anything of the project has had its chance."""

    def __init__(self, channel_fd: int, point: str, root: str, args: List[str], held: Held) -> None:
        self._channel = socket.socket(fileno=channel_fd)
        self.point = point
        self._root = os.path.realpath(root)
        self._held = held
        self._read: Dict[str, Stamp] = {}
        self._strict = [True]
        self._parked_at = 0.0
        # pytest looks for its settings, and for the first conftest files, in and above what it is given.
        given = [os.path.join(self._root, arg.partition("::")[0]) for arg in args if not arg.startswith("-")]
        for folder in {folder for start in (self._root, *given) for folder in _and_above(start)}:
            self._note(*(os.path.join(folder, name) for name in (*SETTINGS, "conftest.py", "__init__.py")))
        for entry in os.scandir(self._root):
            if entry.is_dir():
                self._note(os.path.join(entry.path, "conftest.py"), os.path.join(entry.path, "__init__.py"))
        sys.addaudithook(self._listener())

    def wait(self) -> Dict[str, Any]:
        """Until it may go on: the order. A session that is outdated ends here."""
        self._parked_at = time.time()
        for module in list(sys.modules.values()):
            file = getattr(getattr(module, "__spec__", None), "origin", None)
            if isinstance(file, str) and file.startswith(self._root + os.sep):
                self._note(file)
        if signal.getitimer(signal.ITIMER_REAL)[0] or threading.active_count() > 1:
            self.leave("a timer or a thread")  # would go on while the session waits
        try:
            say(self._channel, {"parked": self.point})
            words, _ = hear(self._channel)
            stale = self._what_changed()
            say(self._channel, {"stale": stale} if stale else {"going": True})
        except (EOFError, OSError):
            os._exit(0)  # nobody wants it any more
        if stale:
            os._exit(0)
        self._strict.clear()
        self._channel.close()
        order: Dict[str, Any] = words["order"]
        return order

    def _what_changed(self) -> str:
        if self.point == LATE and not 0 <= time.time() - self._parked_at < OLDEST_S:
            return "the time"
        if self.point == LATE and time.localtime().tm_yday != time.localtime(self._parked_at).tm_yday:
            return "the day"
        return next((file for file, was in self._read.items() if stamp(file) != was), "") or self._held.first_change()

    def _note(self, *files: str) -> None:
        for file in files:
            self._read.setdefault(file, stamp(file))

    def _listener(self) -> Callable[[str, Tuple[Any, ...]], None]:
        strict = self._strict

        # Who once listens does so for ever. A plain function with one look at a list is what costs least (measured:
        # 0.15 us an event, a bound method 0.6 us), and some code makes an event of every id().
        def on_event(event: str, arguments: Tuple[Any, ...]) -> None:
            if strict:
                self._judge(event, arguments)

        return on_event

    def _judge(self, event: str, arguments: Tuple[Any, ...]) -> None:
        file = read(event, arguments)
        if file is not None and not file.startswith("/proc/self/"):
            self._note(file)
        what = noticed(event, arguments)
        if what:
            self.leave(what)

    def leave(self, what: str) -> None:
        try:
            say(self._channel, {"noticeable": what[:400]})
        finally:
            os._exit(0)


def _and_above(path: str) -> Tuple[str, ...]:
    """The path and the folders that it lies in."""
    folders = [path]
    while os.path.dirname(folders[-1]) != folders[-1]:
        folders.append(os.path.dirname(folders[-1]))
    return tuple(folders)
