"""What runs have imported, by interpreter, and what a warm process has to do without; kept for the next agent."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Tuple

from .preloaded_state import NO_PLUGIN


class Learned:
    def __init__(self, file: str) -> None:
        self._file = file
        self._modules: Dict[str, List[Tuple[str, bool]]] = {}
        self._avoid: List[str] = []
        try:
            with open(file) as stream:
                kept = json.load(stream)
            self._modules = {
                str(python): [(str(n), bool(r)) for n, r in rows] for python, rows in kept["modules"].items()
            }
            self._avoid = [str(name) for name in kept["avoid"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # nothing yet, or damaged: it is learned anew

    def of(self, python: str) -> Dict[str, Any]:
        return {"modules": self._modules.get(python, []), "avoid": self._avoid}

    def add(self, python: str, names: List[Any]) -> None:
        known = self._modules.setdefault(python, [])
        there = {name for name, _ in known}
        fresh = [(row[0], bool(row[1])) for row in names if _is_name(row) and row[0] not in there]
        # What could not be had in the warm process is told by every run again.
        fresh = [row for row in fresh if not any(row[0] == one or row[0].startswith(one + ".") for one in self._avoid)]
        if fresh:
            known += fresh
            self._keep()

    def avoid(self, names: List[Any], python: str = "") -> bool:
        """Whether that makes a difference: one of them is a plugin, or was learned from runs of this interpreter."""
        fresh = {str(name) for name in names} - set(self._avoid)
        learned = {name for name, _ in self._modules.get(python, [])}
        if python and not any(name in learned or name.startswith(NO_PLUGIN) for name in fresh):
            return False
        self._avoid = sorted({*self._avoid, *fresh})
        self._keep()
        return True

    def is_bare(self, python: str) -> bool:
        return not self._modules.get(python)

    def give_up(self, python: str) -> None:
        self._avoid = sorted({*self._avoid, *(name.partition(".")[0] for name, _ in self._modules.get(python, []))})
        self._modules[python] = []
        self._keep()

    def _keep(self) -> None:
        try:
            with open(self._file + ".new", "w") as stream:
                json.dump({"modules": self._modules, "avoid": self._avoid}, stream)
            os.replace(self._file + ".new", self._file)
        except OSError:
            pass  # a full disk: the next agent learns anew


def _is_name(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and len(row[0]) < 500
