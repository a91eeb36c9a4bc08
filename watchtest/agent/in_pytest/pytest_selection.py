"""Restricts a pytest session to the tests of its order."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional


def files_of(tests: Optional[List[str]], root: str) -> List[str]:
    """Return the existing files of the selected tests; their other tests are deselected later."""
    if tests is None:
        return []
    files = sorted({test.partition("::")[0] for test in tests})
    return [os.path.join(root, file) for file in files if os.path.exists(os.path.join(root, file))]


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
        self._files = files_of(order["tests"], order["root"])
        self._filter = None if order["tests"] is None else TestFilter(order["tests"])
        self._collects_all = bool(order["collects_all"])

    def configure(self, config: Any) -> None:
        """Compute the prefix that makes pytest's ids, which are relative to its rootdir, relative to the workspace."""
        above = os.path.relpath(os.path.realpath(str(getattr(config, "rootpath", None) or config.rootdir)), self._root)
        self.prefix = "" if above == os.curdir else above.replace(os.sep, "/") + "/"

    def name(self, nodeid: str) -> str:
        return self.prefix + nodeid

    def __contains__(self, test: str) -> bool:
        return self._filter is None or test in self._filter

    def restrict(self, session: Any) -> None:
        """Collect only the files of selected tests."""
        if self._filter is not None and not self._collects_all:
            session.config.args = self._files

    def deselect(self, config: Any, items: List[Any]) -> None:
        """Deselect the collected tests that are not in the order."""
        deselected = [item for item in items if self.name(item.nodeid) not in self]
        if deselected:
            items[:] = [item for item in items if self.name(item.nodeid) in self]
            config.hook.pytest_deselected(items=deselected)
