"""Vitest: `vitest run` with its JSON report for us and its usual one for people. Orders only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watchtest.runners import javascript
from watchtest.runners.base import REPORT, Order
from watchtest.runners.jestreport import JestReports

REPORTERS = ("--reporter=default", "--reporter=json", f"--outputFile.json={REPORT}", "--includeTaskLocation")


@dataclass(frozen=True, slots=True)
class VitestRunner:
    """One package, at `folder`."""

    name: str = "vitest"
    folder: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def orders(self, tests: tuple[str, ...] | None) -> tuple[Order, ...]:
        words: tuple[str, ...] = ()
        if tests is not None:
            files, names = javascript.selected(tests)
            inner = [file.removeprefix(self.folder).lstrip("/") for file in files]
            words = (*inner, *((f"--testNamePattern={names}",) if names else ()))
        argv = javascript.launched("vitest", "run", "--passWithNoTests", *REPORTERS, *self.args, *words)
        env = {"NO_COLOR": "1", **self.env}
        return (Order(argv, self.folder, env, tests=None if tests is None else frozenset(tests)),)

    def reports(self, order: Order, root: str) -> JestReports:
        return JestReports(self.name, order, root)

    def claims(self, test: str) -> bool:
        return javascript.is_file_of(self.folder, test)
