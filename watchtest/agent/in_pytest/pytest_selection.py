"""Which tests a pytest session was asked for, and how it comes to run no others. Neither reports nor records."""

from __future__ import annotations

import os
from typing import Any, Dict, List, Optional


def files_of(tests: Optional[List[str]], root: str) -> List[str]:
    """The files of the selected tests, those that are still there; their other tests are deselected below."""
    if tests is None:
        return []
    files = sorted({test.partition("::")[0] for test in tests})
    return [os.path.join(root, file) for file in files if os.path.exists(os.path.join(root, file))]


class Selected:
    """The tests that were asked for, each by its id or by what it lies in: function, class, file or folder."""

    def __init__(self, asked: List[str]) -> None:
        self._asked = frozenset(asked)

    def __contains__(self, test: str) -> bool:
        if test in self._asked:
            return True
        file, _, inner = test.partition("::")
        parts, names = file.split("/"), inner.partition("[")[0].split("::")
        wider = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        wider += ["::".join([file, *names[:count]]) for count in range(1, len(names) + 1)]
        return "." in self._asked or not self._asked.isdisjoint(wider)


class Asked:
    """What an order says of tests, obeyed in one process: of the session itself, or of a worker of it."""

    def __init__(self, order: Dict[str, Any], prefix: str = "") -> None:
        self.prefix = prefix
        self._root = os.path.realpath(order["root"])
        self._files = files_of(order["tests"], order["root"])
        self._selected = None if order["tests"] is None else Selected(order["tests"])
        self._collects_all = bool(order["collects_all"])

    def configure(self, config: Any) -> None:
        """Ids are relative to the root of the workspace, and pytest's own to what it takes for its root."""
        above = os.path.relpath(os.path.realpath(str(getattr(config, "rootpath", None) or config.rootdir)), self._root)
        self.prefix = "" if above == os.curdir else above.replace(os.sep, "/") + "/"

    def name(self, nodeid: str) -> str:
        return self.prefix + nodeid

    def __contains__(self, test: str) -> bool:
        return self._selected is None or test in self._selected

    def restrict(self, session: Any) -> None:
        """Let only files be collected that hold tests which are asked for."""
        if self._selected is not None and not self._collects_all:
            session.config.args = self._files

    def leave_out(self, config: Any, items: List[Any]) -> None:
        """Of what was collected, what is not asked for."""
        left_out = [item for item in items if self.name(item.nodeid) not in self]
        if left_out:
            items[:] = [item for item in items if self.name(item.nodeid) in self]
            config.hook.pytest_deselected(items=left_out)
