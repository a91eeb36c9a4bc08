"""Runs `python -m unittest discover` in this process and writes the same rows as our pytest plugin.

It does not change how tests run, but removes those that are not in the order. `complete` makes the command for it.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
import unittest
from typing import Any, Dict, FrozenSet, List, Optional, Tuple

from .. import FOLDER, LOADER, rows
from ..failures import TEXT_LIMIT, FailureDescriber, cut
from ..rows import RowKind
from .unittest_loader import DiscoveryLoader, ScopeRecorder, is_skipped_module, keep_only, tests_of
from .unittest_result import ReportingResult, ResultReporter

NO_TESTS = 5
INTERRUPTED = 2
BROKEN = 3


def main(order_file: str) -> int:
    """Find and run tests as the order says; return an exit code like pytest's: 0, 1, 5 for no tests, else an error."""
    with open(order_file) as stream:
        order = json.load(stream)
    writer = rows.inherited_writer(order.get("running_test", ""))
    rows.dump_stacks_on_signal(rows.inherited_fd(rows.STACKS))
    sys.argv = [os.path.basename(sys.executable) + " -m unittest", "discover", *order["args"]]
    recorder = ScopeRecorder(order["root"], writer.send, order["record"])
    try:
        return Program(writer, order["root"], order["tests"], recorder).exit_code
    except KeyboardInterrupt:
        traceback.print_exc()
        return INTERRUPTED
    except Exception:  # noqa: BLE001  discovery failed: the start folder is missing, a module is loaded from elsewhere
        traceback.print_exc()
        text = cut(traceback.format_exc(), TEXT_LIMIT)
        writer.send(rows.InternalErrorRow(k=RowKind.INTERNAL_ERROR, text=text))
        return BROKEN
    finally:
        recorder.close()


class UnittestSelection:
    """The tests of the order. A file stands for all of its tests; None for all tests."""

    def __init__(self, tests: Optional[List[str]], root: str) -> None:
        self._tests = None if tests is None else frozenset(tests)
        self._root = root

    def files(self) -> Optional[FrozenSet[str]]:
        """Return the existing files of the selected tests; None for all."""
        if self._tests is None:
            return None
        files = {os.path.realpath(os.path.join(self._root, test.partition("::")[0])) for test in self._tests}
        return frozenset(filter(os.path.exists, files))

    def has(self, test: str) -> bool:
        return self._tests is None or test in self._tests or test.partition("::")[0] in self._tests

    def has_more_than(self, found: FrozenSet[str]) -> bool:
        """Return whether a selected test is missing although its file exists: another module may load it."""
        missing = {test.partition("::")[0] for test in (self._tests or frozenset()) - found if "::" in test}
        return any(os.path.exists(os.path.join(self._root, file)) for file in missing)


class Program(unittest.TestProgram):
    """unittest's own command, with our loader and a result class that reports."""

    test: Any
    testLoader: Any

    def __init__(self, writer: rows.RowWriter, root: str, tests: Optional[List[str]], recorder: ScopeRecorder) -> None:
        self._writer = writer
        self._recorder = recorder
        self._describer = FailureDescriber(root)
        self._selection = UnittestSelection(tests, root)
        self._found: List[Tuple[Any, str, str]] = []
        self.exit_code = BROKEN
        loader = DiscoveryLoader(self._describer, self._selection.files(), recorder)
        super().__init__(module=None, argv=list(sys.argv), testLoader=loader, exit=False)

    def createTests(self, *args: Any, **options: Any) -> None:
        super().createTests(*args, **options)
        loader: DiscoveryLoader = self.testLoader
        found = frozenset(loader.id_of(test) for test in tests_of(self.test) if loader.load_failure(test) is None)
        if loader.files is not None and self._selection.has_more_than(found):
            loader = self.testLoader = DiscoveryLoader(self._describer, None, self._recorder)
            super().createTests(*args, **options)
        self._select(loader)

    def _select(self, loader: DiscoveryLoader) -> None:
        """Report what cannot be loaded, remove tests that are not selected, announce the rest."""
        real = set()
        for test in tests_of(self.test):
            failure = loader.load_failure(test)
            if failure is not None:
                self._report_load_failure(test, failure.file, failure.error)
            elif not is_skipped_module(test):
                name = loader.id_of(test)
                real.add(id(test))
                if self._selection.has(name):
                    self._found.append((test, name, loader.file_of(test)))
        wanted = {id(test) for test, _, _ in self._found}
        keep_only(self.test, lambda test: id(test) in wanted or id(test) not in real)
        left = {id(test) for test in tests_of(self.test)}
        self._found = [found for found in self._found if id(found[0]) in left]
        loader.release_tests()
        self._recorder.report()
        self._writer.announce([name for _, name, _ in self._found])

    def _report_load_failure(self, test: Any, file: str, error: BaseException) -> None:
        text = str(test._exception)
        if "Traceback" not in text:
            text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        failure = self._describer.describe(error, file, text)
        name = self._describer.relative(file)
        self._writer.send(rows.CollectionErrorRow(k=RowKind.COLLECTION_ERROR, test=name, failure=failure))

    def runTests(self) -> None:
        reporter = ResultReporter(self._writer, self._describer, self._found, self._recorder)
        self._found = []

        class ReportedResult(ReportingResult):
            reported_by = reporter

        class ReportingRunner(unittest.TextTestRunner):
            resultclass = ReportedResult  # type: ignore[assignment]

        self.testRunner = ReportingRunner
        super().runTests()
        is_green = self.result.wasSuccessful()
        self.exit_code = 1 if not is_green else 0 if reporter.has_tests else NO_TESTS
        why = "stopped at the first failure (--failfast)" if self.failfast else "stopped by a test or a signal"
        withdrawn = why if self.result.shouldStop else ""
        self._writer.send(rows.FinishRow(k=RowKind.FINISH, exit_code=self.exit_code, withdrawn=withdrawn))


# Like `python -m`: the current folder comes first on sys.path, unless this Python runs in safe-path mode.
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


def complete(order: Dict[str, Any], home: str, running_test: str) -> None:
    """Turn {"unittest": {python, args, tests, folder, record}} into a command that runs in that folder, its `cwd`.

    The tests are passed in a file, because the length of arguments is limited.
    """
    request = order["unittest"]
    order_file = os.path.join(home, "unittest-order.json")
    with open(order_file, "w") as stream:
        fields = {name: request[name] for name in ("args", "tests", "record")}
        json.dump(dict(fields, root=_root(order["cwd"], request["folder"]), running_test=running_test), stream)
    order["argv"] = [request["python"], "-c", STUB, FOLDER, order_file]
    order["results"] = "pipe"


def _root(cwd: str, folder: str) -> str:
    """Return the workspace, to which test ids and locations are relative, wherever unittest runs."""
    depth = len([part for part in folder.split("/") if part not in ("", ".")])
    for _ in range(depth):
        cwd = os.path.dirname(cwd.rstrip("/"))
    return cwd
