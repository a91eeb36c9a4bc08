"""unittest's own discovery, extended to remember the file of each test, so that tests get the same ids as in pytest.

With a selection, it imports only the files of the selected tests. `ScopeRecorder` begins and ends the scopes of such a
run: files, tests, and the fixtures of classes and modules.
"""

from __future__ import annotations

import os
import sys
import unittest
from contextlib import contextmanager
from typing import Any, Callable, Dict, FrozenSet, Iterator, NamedTuple, Optional, Tuple, Type
from unittest.loader import TestLoader, _FailedTest  # type: ignore[attr-defined]

from ..failures import FailureDescriber
from ..record.recorder import start_recording
from ..record.scopes import FILE, TEST, Send
from ..rows import short_id


class ScopeRecorder:
    """Begins and ends scopes. Does nothing unless recording is wanted and possible."""

    def __init__(self, root: str, send: Send, is_wanted: bool) -> None:
        self._recorder = start_recording(root, send) if is_wanted else None

    @contextmanager
    def file_scope(self, file: Optional[str]) -> Iterator[None]:
        """Attribute what happens inside this block to every test of that file."""
        own = self._recorder.scopes.own(file) if self._recorder is not None and file else ""
        if self._recorder is None or not own:
            yield
            return
        self._recorder.scopes.begin(FILE + own)
        try:
            yield
        finally:
            self._recorder.scopes.end(FILE + own)

    def begin(self, test: str) -> None:
        if self._recorder is not None:
            self._recorder.scopes.begin(TEST + test)

    def end(self, test: str) -> None:
        if self._recorder is not None:
            self._recorder.end_test(TEST + test)

    def report(self) -> None:
        if self._recorder is not None:
            self._recorder.scopes.report()

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()

    def suite_class(self) -> Type[unittest.TestSuite]:
        """Return a TestSuite that attributes the fixtures of classes and modules to their file."""
        recorder = self

        class Suite(unittest.TestSuite):
            def _handleClassSetUp(self, test: Any, result: Any) -> None:
                with recorder.file_scope(_file_of(type(test))):
                    super()._handleClassSetUp(test, result)  # type: ignore[misc]

            def _handleModuleFixture(self, test: Any, result: Any) -> None:
                with recorder.file_scope(_file_of(type(test))):
                    super()._handleModuleFixture(test, result)  # type: ignore[misc]

            def _tearDownPreviousClass(self, test: Any, result: Any) -> None:
                with recorder.file_scope(_file_of(getattr(result, "_previousTestClass", None))):
                    super()._tearDownPreviousClass(test, result)  # type: ignore[misc]

            def _handleModuleTearDown(self, result: Any) -> None:
                with recorder.file_scope(_file_of(getattr(result, "_previousTestClass", None))):
                    super()._handleModuleTearDown(result)  # type: ignore[misc]

        return Suite


def _file_of(kind: Any) -> Optional[str]:
    file = getattr(sys.modules.get(getattr(kind, "__module__", "")), "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else None


class LoadFailure(NamedTuple):
    """A module that could not be loaded, and the error."""

    file: str
    error: BaseException


class DiscoveryLoader(TestLoader):
    def __init__(self, describer: FailureDescriber, files: Optional[FrozenSet[str]], recorder: ScopeRecorder) -> None:
        super().__init__()
        self.suiteClass = recorder.suite_class()
        self._recorder = recorder
        self.files = files
        """Absolute real paths; None: all."""
        self._describer = describer
        self._paths: Dict[str, str] = {}
        self._raised: Dict[str, BaseException] = {}
        self._modules: Dict[int, Tuple[Any, Any]] = {}
        """By id(test): the test, so that it stays alive, and the module it was loaded for."""

    # -- steps of discovery ------------------------------------------------------------------------

    def _match_path(self, path: str, full_path: str, pattern: str) -> bool:
        if self.files is not None and os.path.realpath(full_path) not in self.files:
            return False
        return bool(super()._match_path(path, full_path, pattern))

    def _get_name_from_path(self, path: str) -> str:
        name = str(super()._get_name_from_path(path))  # type: ignore[misc]
        self._paths[name] = path
        return name

    def _get_module_from_name(self, name: str) -> Any:
        try:
            with self._recorder.file_scope(self._paths.get(name)):
                return super()._get_module_from_name(name)  # type: ignore[misc]
        except unittest.SkipTest:
            raise
        except BaseException as error:
            # unittest keeps only the text of the error, not its traceback.
            self._raised[name] = error
            raise

    def loadTestsFromModule(self, module: Any, *args: Any, **options: Any) -> Any:
        with self._recorder.file_scope(getattr(module, "__file__", None)):
            suite = super().loadTestsFromModule(module, *args, **options)
        for test in tests_of(suite if suite is not None else ()):
            self._modules.setdefault(id(test), (test, module))
        return suite

    def release_tests(self) -> None:
        """Drop all references to tests, so that only the suite keeps them alive."""
        self._modules.clear()

    # -- results of discovery ----------------------------------------------------------------------

    def load_failure(self, test: Any) -> Optional[LoadFailure]:
        """Return the failure that unittest represents by this placeholder; None if it is a real test."""
        if not isinstance(test, _FailedTest):
            return None
        name = test._testMethodName
        module = sys.modules.get(name)
        file = self._paths.get(name) or getattr(module, "__file__", None) or name
        if os.path.isdir(file):
            file = os.path.join(file, "__init__.py")
        return LoadFailure(file, self._raised.get(name) or test._exception)

    def file_of(self, test: unittest.TestCase) -> str:
        """Return the file of the module it was loaded for, if that has its class; else that of its class."""
        _, module = self._modules.get(id(test), (test, None))
        doctest = getattr(test, "_dt_test", None)
        own = getattr(doctest, "filename", None) or _file_of_module(sys.modules.get(type(test).__module__))
        function = getattr(test, "_testFunc", None)
        if function is not None:
            own = getattr(getattr(function, "__code__", None), "co_filename", own)
        loaded_for = _file_of_module(module)
        has_class = module is not None and getattr(module, type(test).__name__, None) is type(test)
        if loaded_for and (has_class or not (own and self._describer.is_own(os.path.realpath(own)))):
            return loaded_for
        return own or loaded_for or type(test).__module__

    def id_of(self, test: unittest.TestCase) -> str:
        file = self._describer.relative(self.file_of(test))
        if hasattr(test, "_dt_test") or hasattr(test, "_testFunc"):
            return "{}::{}".format(file, test.id())
        name = getattr(test, "_testMethodName", None) or test.id()
        return short_id("::".join([file, *type(test).__qualname__.split("."), name]))


def tests_of(suite: Any) -> Iterator[Any]:
    """Yield every test of a suite, however deeply nested."""
    if not is_suite(suite):
        yield suite
        return
    for test in suite:
        yield from tests_of(test)


def keep_only(suite: Any, is_wanted: Callable[[Any], bool]) -> None:
    """Remove all other tests in place: the suite may be of a custom class that does more than running its tests."""
    tests = getattr(suite, "_tests", None)
    if not isinstance(tests, list):
        return  # a custom suite: we cannot remove tests, so all of them run
    for test in tests:
        if is_suite(test):
            keep_only(test, is_wanted)
    tests[:] = [test for test in tests if is_suite(test) or is_wanted(test)]


def is_suite(test: Any) -> bool:
    """Distinguish suites from tests as unittest itself does."""
    try:
        iter(test)
    except TypeError:
        return False
    return True


def is_skipped_module(test: Any) -> bool:
    """Return whether this is unittest's placeholder for a module that raised SkipTest."""
    return type(test).__name__ == "ModuleSkipped" and type(test).__module__ == "unittest.loader"


def _file_of_module(module: Any) -> Optional[str]:
    file = getattr(module, "__file__", None)
    return file if isinstance(file, str) else None
