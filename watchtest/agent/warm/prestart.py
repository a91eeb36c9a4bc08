"""Runs that are prestarted before the next change, and wait for their order at one of three points.

EARLY: only the settings of the project have been read. LATE: the first conftest files are loaded and the session has
begun. DEEP: it is about to read a file that is expected to change next; everything before it is collected and imported.

A prestarted run continues only if a run that began now would have reached the same state. So all that it has read must
be unchanged, and it must not have had a side effect: the first attempt to write, connect or start something ends it
beforehand. Each is used once. `Gate` is the side inside the run, `PrestartedRun` the agent's.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import PurePath
from typing import Any, Callable, Dict, List, Sequence, Tuple

from ..jobs import job_process, supervisor
from ..messages import receive, send
from .preloaded_state import PreloadedState, Stamp, stamp
from .side_effects import opened_for_reading, side_effect

EARLY, LATE, DEEP = "early", "late", "deep"
MAX_AGE_S = 600.0
"""Modules may have read the clock when they were imported."""
SETTINGS = frozenset(
    {"pytest.toml", ".pytest.toml", "pytest.ini", ".pytest.ini", "pyproject.toml", "tox.ini", "setup.cfg", "setup.py"}
)
ANSWER_LIMIT_S = 2.0
"""The time limit of one answer. A run may have to wait for three before it begins."""


class Gate:
    """Where a prestarted session waits for its order. Created before any code of the project runs.

    `expected`: the files before which a DEEP one waits.
    """

    def __init__(
        self,
        channel_fd: int,
        point: str,
        root: str,
        args: List[str],
        preloaded: PreloadedState,
        expected: Sequence[str],
    ) -> None:
        self._channel = socket.socket(fileno=channel_fd)
        self.point = point
        self._root = os.path.realpath(root)
        self._expected = frozenset(os.path.join(self._root, file) for file in expected)
        self._expected_names = frozenset(_module_name(file) for file in self._expected)
        self.on_reached: Callable[[], None] = lambda: None
        """Called when a DEEP one has reached its waiting point."""
        self._preloaded = preloaded
        self._read: Dict[str, Stamp] = {}
        self._packages: Dict[str, bool] = {}
        """Whether each `__init__.py` exists, which makes its folder a package. Its content only matters once read."""
        self._strict = [True]
        self._waiting_since = 0.0
        self.is_passed = False
        # pytest looks for its settings and for the first conftest files in and above its arguments.
        given = [os.path.join(self._root, arg.partition("::")[0]) for arg in args if not arg.startswith("-")]
        for folder in {folder for start in (self._root, *given) for folder in _with_parents(start)}:
            self._note(*(os.path.join(folder, name) for name in (*SETTINGS, "conftest.py")))
            self._note_package(folder)
        for entry in os.scandir(self._root):
            if entry.is_dir():
                self._note(os.path.join(entry.path, "conftest.py"))
                self._note_package(entry.path)
        sys.addaudithook(self._listener())

    def wait(self) -> Dict[str, Any]:
        """Wait for the order and return it. A session that is outdated by then exits here."""
        self._waiting_since = time.time()
        for module in list(sys.modules.values()):
            file = getattr(getattr(module, "__spec__", None), "origin", None)
            if isinstance(file, str) and file.startswith(self._root + os.sep):
                self._note(file)
        if signal.getitimer(signal.ITIMER_REAL)[0] or threading.active_count() > 1:
            self.give_up("a timer or a thread")  # it would continue while the session waits
        try:
            send(self._channel, {"parked": self.point})
            message, _ = receive(self._channel)
            stale = self._what_changed()
            send(self._channel, {"stale": stale} if stale else {"going": True})
        except (EOFError, OSError):
            os._exit(0)  # the agent has discarded this run
        if stale:
            os._exit(0)
        self._strict.clear()
        self._channel.close()
        self.is_passed = True
        order: Dict[str, Any] = message["order"]
        return order

    def _what_changed(self) -> str:
        if self.point != EARLY and not 0 <= time.time() - self._waiting_since < MAX_AGE_S:
            return "the time"
        if self.point != EARLY and time.localtime().tm_yday != time.localtime(self._waiting_since).tm_yday:
            return "the day"
        changed = (file for file, before in self._read.items() if stamp(file) != before)
        converted = (file for file, before in self._packages.items() if os.path.exists(file) != before)
        return next(changed, "") or next(converted, "") or self._preloaded.first_change()

    def about_to_read(self, file: str) -> None:
        if file in self._expected and not self.is_passed:
            self.on_reached()

    def _note(self, *files: str) -> None:
        for file in files:
            self._read.setdefault(file, stamp(file))

    def _note_package(self, folder: str) -> None:
        file = os.path.join(folder, "__init__.py")
        self._packages[file] = os.path.exists(file)

    def _listener(self) -> Callable[[str, Tuple[Any, ...]], None]:
        strict = self._strict

        # An audit hook cannot be removed, and some code makes an event of every id(). A plain function that checks a
        # list is the cheapest (measured: 0.15 us per event, a bound method 0.6 us).
        def on_event(event: str, arguments: Tuple[Any, ...]) -> None:
            if strict:
                self._on_event(event, arguments)

        return on_event

    def _on_event(self, event: str, arguments: Tuple[Any, ...]) -> None:
        # This precedes the search for the module. Another module of that name only makes it wait a little earlier.
        if event == "import" and str(arguments[0]).rpartition(".")[2] in self._expected_names:
            self._expected_names = frozenset()
            self.on_reached()
            return
        file = opened_for_reading(event, arguments)
        if file is not None and not file.startswith("/proc/self/"):
            self._note(file)
        effect = side_effect(event, arguments)
        if effect:
            self.give_up(effect)

    def give_up(self, why: str) -> None:
        """Exit: this session cannot be prestarted without others noticing it."""
        try:
            send(self._channel, {"noticeable": why[:400]})
        finally:
            os._exit(0)


def _module_name(file: str) -> str:
    folder, name = os.path.split(file)
    return os.path.basename(folder) if name == "__init__.py" else os.path.splitext(name)[0]


def _with_parents(path: str) -> Tuple[str, ...]:
    """Return the path and all folders above it."""
    return (path, *map(str, PurePath(path).parents))


class PrestartedRun:
    """`plugin_order`: what it was started with. `key`: if that changes, another one is needed."""

    def __init__(
        self,
        channel: socket.socket,
        ends: job_process.PipeEnds,
        point: str,
        plugin_order: Dict[str, Any],
        key: Tuple[Any, ...],
    ) -> None:
        self.ends = ends
        channel.settimeout(ANSWER_LIMIT_S)
        self._channel = channel
        self.key = key
        self._point = point
        self._fixed = fixed_parts(plugin_order, point)
        self._is_waiting = False
        self.was_noticeable = False

    def go(self, plugin_order: Dict[str, Any]) -> bool:
        """Let it continue with this order. If it cannot, discard it and return False."""
        try:
            is_usable = fixed_parts(plugin_order, self._point) == self._fixed and not self.has_ended()
            if is_usable and self._is_waiting:
                send(self._channel, {"order": plugin_order})
                message, _ = receive(self._channel)
                if message.get("going") is True:
                    os.write(self.ends.control, supervisor.GO)
                    self._channel.close()
                    return True
        except (EOFError, OSError, ValueError):
            pass
        self.discard()
        return False

    def has_ended(self) -> bool:
        """Read its messages so far, without blocking; return whether it has ended."""
        while not self._is_waiting and select.select([self._channel], [], [], 0)[0]:
            try:
                message, _ = receive(self._channel)
            except (EOFError, OSError, ValueError):
                return True
            self._is_waiting = "parked" in message
            self.was_noticeable = "noticeable" in message
        return False

    def discard(self) -> None:
        """Close its pipes: its supervisor notices and kills all of it."""
        self._channel.close()
        self.ends.close()


def fixed_parts(plugin_order: Dict[str, Any], point: str) -> List[Any]:
    """Return the parts of the order that cannot change once a session has reached this point."""
    parts = [plugin_order["args"], plugin_order["record"]]
    if point == DEEP:
        tests = plugin_order["tests"]
        files = None if tests is None else sorted({test.partition("::")[0] for test in tests})
        parts += [files, plugin_order["collects_all"]]
    return parts
