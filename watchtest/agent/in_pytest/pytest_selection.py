"""Restricts a pytest session to the tests of its order."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional

import pytest

from ..rows import short_id


class TestFilter:
    """A set of tests, given by their ids or by what contains them: function, class, file or folder."""

    def __init__(self, names: List[str]) -> None:
        self._names = frozenset(names)

    def __contains__(self, test: str) -> bool:
        if test in self._names:
            return True
        file, _, inner = test.partition("::")
        parts, names = file.split("/"), inner.partition("[")[0].split("::")
        containers = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        containers += ["::".join([file, *names[:count]]) for count in range(1, len(names) + 1)]
        return "." in self._names or not self._names.isdisjoint(containers)


class TestSelection:
    """The tests of an order, applied in one process: the session itself, or one of its workers."""

    def __init__(self, order: Dict[str, Any], prefix: str = "") -> None:
        self.prefix = prefix
        self._root = os.path.realpath(order["root"])
        self._filter = None if order["tests"] is None else TestFilter(order["tests"])
        self._is_restricted = self._filter is not None and not order["collects_all"]
        self._files = {test.partition("::")[0] for test in order["tests"] or ()}
        self._folders = {"", *(file[:end] for file in self._files for end in range(len(file)) if file[end] == "/")}
        """The folders on the way to a selected file."""

    def configure(self, config: Any) -> None:
        """Compute the prefix that makes pytest's ids, which are relative to its rootdir, relative to the workspace."""
        above = os.path.relpath(os.path.realpath(str(getattr(config, "rootpath", None) or config.rootdir)), self._root)
        self.prefix = "" if above == os.curdir else above.replace(os.sep, "/") + "/"

    def name(self, nodeid: str) -> str:
        return short_id(self.prefix + nodeid)

    def __contains__(self, test: str) -> bool:
        return self._filter is None or test in self._filter

    def leaves_out(self, path: str) -> bool:
        """Return whether no selected test is in this file or folder, so that it need not be collected.

        pytest looks for the other files as ever. As arguments, it would collect them even if the project ignores them.
        """
        if self._filter is None or not self._is_restricted:
            return False
        below = os.path.relpath(path, self._root).replace(os.sep, "/")
        folder, _, name = below.rpartition("/")
        if below in ("", os.curdir) or below.startswith("../") or below in self._folders:
            return False
        # What makes the folder a package.
        is_package = name == "__init__.py" and folder in self._folders
        return not is_package and below not in self._files and below not in self._filter

    def deselect(self, config: Any, items: List[Any]) -> None:
        """Deselect the collected tests that are not in the order."""
        deselected = [item for item in items if self.name(item.nodeid) not in self]
        if deselected:
            items[:] = [item for item in items if self.name(item.nodeid) in self]
            config.hook.pytest_deselected(items=deselected)


class SelectedFiles:
    """A plugin that keeps pytest from collecting files without selected tests."""

    _selection: TestSelection

    if hasattr(pytest, "version_tuple"):  # from 7.0

        @pytest.hookimpl(tryfirst=True)
        def pytest_ignore_collect(self, collection_path: Any) -> Optional[bool]:
            return self._selection.leaves_out(str(collection_path)) or None
    else:

        @pytest.hookimpl(tryfirst=True)
        def pytest_ignore_collect(self, path: Any) -> Optional[bool]:  # type: ignore[misc]
            return self._selection.leaves_out(str(path)) or None
