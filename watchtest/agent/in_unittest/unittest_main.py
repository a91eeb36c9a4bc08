"""Our eyes inside the project's own unittest: what was found, what became of each test, and why.

Runs `python -m unittest discover` in this very process and writes the rows that our pytest plugin writes. Changes
nothing about how the tests run, but leaves out those that were not asked for.

How unittest is started under our eyes, so that it behaves as `python -m unittest discover` does. Starts nothing.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import unittest
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

from .. import FOLDER, LOADER
from ..rows import TEXT_LIMIT, Describer, Rows, cut, listen_for_stacks, own_fd
from .unittest_loader import Loader, Recording, is_skipped_module, keep_only, tests_of
from .unittest_result import Result, Telling

NO_TESTS = 5
INTERRUPTED = 2
BROKEN = 3


def main(order_file: str) -> int:
    """Find and run tests as the order says; the exit code is as pytest's: 0, 1, 5 for no tests, else an error."""
    with open(order_file) as stream:
        order = json.load(stream)
    rows = Rows(own_fd("WATCHTEST_RESULTS_FD"))
    listen_for_stacks(own_fd("WATCHTEST_STACKS_FD"))
    sys.argv = [os.path.basename(sys.executable) + " -m unittest", "discover", *order["args"]]
    recording = Recording(order["root"], rows.send, order["record"])
    try:
        return Program(rows, order["root"], order["tests"], recording).exit_code
    except KeyboardInterrupt:
        traceback.print_exc()
        return INTERRUPTED
    except Exception:  # noqa: BLE001  discovery itself failed: a start folder that is none, a module of another place
        traceback.print_exc()
        rows.send({"k": "internal_error", "text": cut(traceback.format_exc(), TEXT_LIMIT)})
        return BROKEN
    finally:
        recording.close()


class Selection:
    """The tests that were asked for. A file stands for all of its tests; None for all there are."""

    def __init__(self, tests: Optional[List[str]], root: str) -> None:
        self._tests = None if tests is None else frozenset(tests)
        self._root = root

    def files(self) -> Optional[FrozenSet[str]]:
        """Those that are still there."""
        if self._tests is None:
            return None
        files = {os.path.realpath(os.path.join(self._root, test.partition("::")[0])) for test in self._tests}
        return frozenset(filter(os.path.exists, files))

    def has(self, test: str) -> bool:
        return self._tests is None or test in self._tests or test.partition("::")[0] in self._tests

    def has_more_than(self, found: FrozenSet[str]) -> bool:
        """Whether a test is missing whose file is there: some other module may be what loads it."""
        missing = {test.partition("::")[0] for test in (self._tests or frozenset()) - found if "::" in test}
        return any(os.path.exists(os.path.join(self._root, file)) for file in missing)


class Program(unittest.TestProgram):
    """unittest's own command, with our loader and a result that tells."""

    test: Any
    testLoader: Any

    def __init__(self, rows: Rows, root: str, tests: Optional[List[str]], recording: Recording) -> None:
        self._rows = rows
        self._recording = recording
        self._describer = Describer(root)
        self._selection = Selection(tests, root)
        self._found: List[Tuple[Any, str, str]] = []
        self.exit_code = BROKEN
        loader = Loader(self._describer, self._selection.files(), recording)
        super().__init__(module=None, argv=list(sys.argv), testLoader=loader, exit=False)

    def createTests(self, *args: Any, **options: Any) -> None:
        super().createTests(*args, **options)
        loader: Loader = self.testLoader
        found = frozenset(loader.id_of(test) for test in tests_of(self.test) if loader.unloadable(test) is None)
        if loader.files is not None and self._selection.has_more_than(found):
            loader = self.testLoader = Loader(self._describer, None, self._recording)
            super().createTests(*args, **options)
        self._examine(loader)

    def _examine(self, loader: Loader) -> None:
        """Say what cannot be loaded, leave out what was not asked for, promise the rest."""
        real = set()
        for test in tests_of(self.test):
            broken = loader.unloadable(test)
            if broken is not None:
                self._report_unloadable(test, broken.file, broken.error)
            elif not is_skipped_module(test):
                name = loader.id_of(test)
                real.add(id(test))
                if self._selection.has(name):
                    self._found.append((test, name, loader.file_of(test)))
        wanted = {id(test) for test, _, _ in self._found}
        keep_only(self.test, lambda test: id(test) in wanted or id(test) not in real)
        left = {id(test) for test in tests_of(self.test)}
        self._found = [found for found in self._found if id(found[0]) in left]
        loader.forget()
        self._recording.has_collected()
        self._rows.promise([name for _, name, _ in self._found])

    def _report_unloadable(self, test: Any, file: str, error: BaseException) -> None:
        words = str(test._exception)
        text = (
            words
            if "Traceback" in words
            else "".join(traceback.format_exception(type(error), error, error.__traceback__))
        )
        failure = self._describer.describe(error, file, text)
        self._rows.send({"k": "collection_error", "test": self._describer.relative(file), "failure": failure})

    def runTests(self) -> None:
        telling = Telling(self._rows, self._describer, self._found, self._recording)
        self._found = []

        class WatchedResult(Result):
            watched_by = telling

        class WatchingRunner(unittest.TextTestRunner):
            resultclass = WatchedResult  # type: ignore[assignment]

        is_empty = not telling.has_tests
        self.testRunner = WatchingRunner
        super().runTests()
        is_good = self.result.wasSuccessful()
        self.exit_code = 1 if not is_good else NO_TESTS if is_empty else 0
        withdrawn = "stopped at the first failure (--failfast)" if self.failfast else "stopped by a test or a signal"
        self._rows.send(
            {"k": "finish", "exit_code": self.exit_code, "withdrawn": withdrawn if self.result.shouldStop else ""}
        )


# First on the path is the current folder, as for `python -m`, unless this Python was told not to.
STUB = (
    """\
import importlib, importlib.util, os, sys
folder, order_file = sys.argv[1:3]
if not getattr(sys.flags, 'safe_path', False):
    sys.path[0] = os.getcwd()
"""
    + LOADER
    + """\
sys.exit(importlib.import_module('watchtest_agent.in_unittest.unittest_main').main(order_file))
"""
)


def complete(order: Dict[str, Any], home: str) -> None:
    """Turn {"unittest": {python, args, tests, folder, record}} into a command that runs in that folder, its `cwd`.

    The tests go by file: an argument has its limits.
    """
    wish = order["unittest"]
    order_file = os.path.join(home, "unittest-order.json")
    with open(order_file, "w") as stream:
        json.dump(
            {
                "args": wish["args"],
                "tests": wish["tests"],
                "root": _root(order["cwd"], wish["folder"]),
                "record": wish["record"],
            },
            stream,
        )
    order["argv"] = [wish["python"], "-c", STUB, FOLDER, order_file]
    order["results"] = "pipe"


def _root(cwd: str, folder: str) -> str:
    """The workspace: test ids and places are relative to it, wherever unittest runs."""
    depth = len([part for part in folder.split("/") if part not in ("", ".")])
    for _ in range(depth):
        cwd = os.path.dirname(cwd.rstrip("/"))
    return cwd
