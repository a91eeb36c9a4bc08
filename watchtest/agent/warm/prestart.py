"""A run that was begun ahead of its save, and waits: EARLY before anything of the project is read but its settings,
LATE when the first conftest files are loaded and the session has begun, DEEP where it is about to read a file that is
likely to change next, with all that comes before that collected and imported, in the very order of any other run.

It goes on only if a run that began now would be where it is. So whatever it has read must be as it was; and on its way
it may do nothing that others could notice: the first attempt to write, connect or start something ends it before that
has happened. It is used once: no two runs come out of one such session.

The agent's side of a run that was begun ahead and waits: what it is for, whether it is there, letting it go.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any, Callable, Dict, List, Protocol, Sequence, Tuple

from ..jobs import job_process as launch
from ..jobs import supervisor as supervise
from ..messages import hear, say
from .preloaded_state import Stamp, stamp
from .side_effects import noticed, read

EARLY, LATE, DEEP = "early", "late", "deep"
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
    """Where a session waits for its order. Made before anything of the project has had its chance.

    `awaited`: of a DEEP one, the files before which it waits.
    """

    def __init__(
        self, channel_fd: int, point: str, root: str, args: List[str], held: Held, awaited: Sequence[str] = ()
    ) -> None:
        self._channel = socket.socket(fileno=channel_fd)
        self.point = point
        self._awaited = frozenset(os.path.join(os.path.realpath(root), file) for file in awaited)
        self._names = frozenset(_module_name(file) for file in self._awaited)
        self.on_awaited: Callable[[], None] = lambda: None
        """Called at the place of a DEEP one, which has to wait then."""
        self._root = os.path.realpath(root)
        self._held = held
        self._read: Dict[str, Stamp] = {}
        self._packages: Dict[str, bool] = {}
        """Files that make a folder a package, and whether they are there: what is in them matters when it is read."""
        self._strict = [True]
        self._parked_at = 0.0
        self.is_passed = False
        # pytest looks for its settings, and for the first conftest files, in and above what it is given.
        given = [os.path.join(self._root, arg.partition("::")[0]) for arg in args if not arg.startswith("-")]
        for folder in {folder for start in (self._root, *given) for folder in _and_above(start)}:
            self._note(*(os.path.join(folder, name) for name in (*SETTINGS, "conftest.py")))
            self._note_package(folder)
        for entry in os.scandir(self._root):
            if entry.is_dir():
                self._note(os.path.join(entry.path, "conftest.py"))
                self._note_package(entry.path)
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
        self.is_passed = True
        order: Dict[str, Any] = words["order"]
        return order

    def _what_changed(self) -> str:
        if self.point != EARLY and not 0 <= time.time() - self._parked_at < OLDEST_S:
            return "the time"
        if self.point != EARLY and time.localtime().tm_yday != time.localtime(self._parked_at).tm_yday:
            return "the day"
        changed = (file for file, was in self._read.items() if stamp(file) != was)
        turned = (file for file, was in self._packages.items() if os.path.exists(file) != was)
        return next(changed, "") or next(turned, "") or self._held.first_change()

    def approach(self, file: str) -> None:
        """That file is about to be read."""
        if file in self._awaited and not self.is_passed:
            self.on_awaited()

    def _note(self, *files: str) -> None:
        for file in files:
            self._read.setdefault(file, stamp(file))

    def _note_package(self, folder: str) -> None:
        file = os.path.join(folder, "__init__.py")
        self._packages[file] = os.path.exists(file)

    def _listener(self) -> Callable[[str, Tuple[Any, ...]], None]:
        strict = self._strict

        # Who once listens does so for ever. A plain function with one look at a list is what costs least (measured:
        # 0.15 us an event, a bound method 0.6 us), and some code makes an event of every id().
        def on_event(event: str, arguments: Tuple[Any, ...]) -> None:
            if strict:
                self._judge(event, arguments)

        return on_event

    def _judge(self, event: str, arguments: Tuple[Any, ...]) -> None:
        # Before any finder has looked for it. Another module of that name only means to wait a little earlier.
        if event == "import" and str(arguments[0]).rpartition(".")[2] in self._names:
            self._names = frozenset()
            self.on_awaited()
            return
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


def _module_name(file: str) -> str:
    folder, name = os.path.split(file)
    return os.path.basename(folder) if name == "__init__.py" else os.path.splitext(name)[0]


def _and_above(path: str) -> Tuple[str, ...]:
    """The path and the folders that it lies in."""
    folders = [path]
    while os.path.dirname(folders[-1]) != folders[-1]:
        folders.append(os.path.dirname(folders[-1]))
    return tuple(folders)


ANSWER_LIMIT_S = 2.0


class Parked:
    """`plugin_order`: what it was begun with. `for_what`: all that makes another one necessary."""

    def __init__(
        self,
        channel: socket.socket,
        own: launch.Ends,
        point: str,
        plugin_order: Dict[str, Any],
        for_what: Tuple[Any, ...],
    ) -> None:
        self.own = own
        channel.settimeout(ANSWER_LIMIT_S)
        self._channel = channel
        self.for_what = for_what
        self._point = point
        self._fixed = fixed(plugin_order, point)
        self._is_there = False
        self.was_noticeable = False

    def goes(self, plugin_order: Dict[str, Any]) -> bool:
        """Let it go with this order. If it does not, it is gone for good."""
        try:
            if fixed(plugin_order, self._point) == self._fixed and not self.hear_of_its_end() and self._is_there:
                say(self._channel, {"order": plugin_order})
                words, _ = hear(self._channel)
                if words.get("going") is True:
                    os.write(self.own.control, supervise.GO)
                    self._channel.close()
                    return True
        except (EOFError, OSError, ValueError):
            pass
        self.discard()
        return False

    def hear_of_its_end(self) -> bool:
        """Take note of what it said so far, without waiting; whether it has ended."""
        while not self._is_there and select.select([self._channel], [], [], 0)[0]:
            try:
                words, _ = hear(self._channel)
            except (EOFError, OSError, ValueError):
                return True
            self._is_there = "parked" in words
            self.was_noticeable = "noticeable" in words
        return False

    def discard(self) -> None:
        """Its supervisor sees the pipe close, and ends all of it."""
        self._channel.close()
        self.own.close()


def fixed(plugin_order: Dict[str, Any], point: str) -> List[Any]:
    """What cannot change any more once a session has begun; nor, once it collects, which files it does that from."""
    parts = [plugin_order["args"], plugin_order["record"]]
    if point == DEEP:
        tests = plugin_order["tests"]
        files = None if tests is None else sorted({test.partition("::")[0] for test in tests})
        parts += [files, plugin_order["collects_all"]]
    return parts
