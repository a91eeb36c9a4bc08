"""Notices tests that change what the box itself depends on: the agent's files, the virtualenv, Python, pytest.

Root in a box may change anything, so this is checked instead of prevented.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, Dict, Iterable, List, Optional, Tuple

Stamp = Optional[Tuple[int, int, int]]
LOADED_BY_TESTS = ("pytest", "_pytest", "pluggy", "os", "site", "encodings", "importlib")
LIMITS = [getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")]


class VitalFiles:
    """Compares files before and after a job. What changes between jobs, such as an upgrade of pytest, is no damage."""

    def __init__(self, files: Iterable[str]) -> None:
        self._always = list(files)
        self._of_tests: List[str] = []
        self._stamps: Dict[str, Stamp] = {}
        self._limits = _limits()

    def begin(self) -> None:
        """Note the state before a job."""
        self._stamps = {file: _stamp(file) for file in (*self._always, *self._of_tests)}

    def note_loaded(self, stamps: Any) -> None:
        """Also check these files, which the tests' own Python has loaded and described by `loaded_files`."""
        if isinstance(stamps, dict):
            found = {str(file): tuple(stamp) for file, stamp in stamps.items() if isinstance(stamp, list)}
            self._of_tests = list(found)
            self._stamps.update(found)

    def first_change(self) -> str:
        """Return what has changed since `begin`: a file, or the limits of the agent; "" if nothing has."""
        if _limits() != self._limits:
            return "the limits of its processes"
        return next((file for file, before in self._stamps.items() if _stamp(file) != before), "")


def files_below(folder: str) -> List[str]:
    """Return all Python files below the folder."""
    return [os.path.join(place, name) for place, _, names in os.walk(folder) for name in names if name.endswith(".py")]


def loaded_files() -> Dict[str, Stamp]:
    """Describe the files of this process without which no test can run, or whose change could turn red into green."""
    modules = [module for name, module in list(sys.modules.items()) if name.partition(".")[0] in LOADED_BY_TESTS]
    files = [sys.executable, *(getattr(module, "__file__", None) for module in modules)]
    return {file: _stamp(file) for file in files if isinstance(file, str)}


def _stamp(file: str) -> Stamp:
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def _limits() -> List[Tuple[int, int]]:
    return [resource.getrlimit(limit) for limit in LIMITS]
