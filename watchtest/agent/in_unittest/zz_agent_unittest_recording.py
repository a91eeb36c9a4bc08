"""The scopes of a run of unittest: files that are loaded, tests, and what classes and modules set up around them."""

from __future__ import annotations

import os
import sys
import unittest
from contextlib import contextmanager
from typing import Any, Iterator, Optional, Type

from ..module_origins import of_project
from ..record.recorder import Recorder
from ..record.scopes import FILE, TEST, Send


class Recording:
    """With nobody who listens, it does nothing."""

    def __init__(self, root: str, send: Send, is_wanted: bool) -> None:
        recorder = Recorder(root, send) if is_wanted else None
        self._recorder: Optional[Recorder] = recorder if recorder is not None and recorder.start() else None
        self._send = send

    @contextmanager
    def of_file(self, file: Optional[str]) -> Iterator[None]:
        """What happens in here belongs to every test of that file."""
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
            if not self._recorder.is_undisturbed:
                self._recorder.scopes.top.opaque.add("takes the place of whoever listens")  # type: ignore[attr-defined]
            self._recorder.scopes.end(TEST + test)
            self._recorder.scopes.tell(TEST + test)

    def has_collected(self) -> None:
        if self._recorder is not None:
            self._recorder.scopes.tell()

    def close(self) -> None:
        if self._recorder is not None:
            self._recorder.stop()
            self._recorder.scopes.tell()
            self._send(of_project(self._recorder.scopes.own))

    def suite(self) -> Type[unittest.TestSuite]:
        """unittest's own, whose fixtures of classes and modules belong to the file they are for."""
        recording = self

        class Suite(unittest.TestSuite):
            def _handleClassSetUp(self, test: Any, result: Any) -> None:
                with recording.of_file(_file_of(type(test))):
                    super()._handleClassSetUp(test, result)  # type: ignore[misc]

            def _handleModuleFixture(self, test: Any, result: Any) -> None:
                with recording.of_file(_file_of(type(test))):
                    super()._handleModuleFixture(test, result)  # type: ignore[misc]

            def _tearDownPreviousClass(self, test: Any, result: Any) -> None:
                with recording.of_file(_file_of(getattr(result, "_previousTestClass", None))):
                    super()._tearDownPreviousClass(test, result)  # type: ignore[misc]

            def _handleModuleTearDown(self, result: Any) -> None:
                with recording.of_file(_file_of(getattr(result, "_previousTestClass", None))):
                    super()._handleModuleTearDown(result)  # type: ignore[misc]

        return Suite


def _file_of(kind: Any) -> Optional[str]:
    file = getattr(sys.modules.get(getattr(kind, "__module__", "")), "__file__", None)
    return os.path.realpath(file) if isinstance(file, str) else None
