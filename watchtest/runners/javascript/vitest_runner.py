"""Runs JavaScript tests with `vitest run`, with a JSON report in addition to its usual text output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watchtest.core.model import Only
from watchtest.runners.javascript import javascript_tools, related_tests
from watchtest.runners.javascript.jest_report import JestReader
from watchtest.runners.runner import REPORT, Change, Execute, Invocation, Undecidable, report_of

REPORTERS = ("--reporter=default", "--reporter=json", f"--outputFile.json={REPORT}", "--includeTaskLocation")


@dataclass(frozen=True, slots=True)
class VitestRunner:
    """One package in `folder`."""

    name: str = "vitest"
    folder: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[Invocation, ...]:
        words: tuple[str, ...] = ()
        if tests is not None:
            files, names = javascript_tools.selected(tests)
            inner = [file.removeprefix(self.folder).lstrip("/") for file in files]
            words = (*inner, *((f"--testNamePattern={names}",) if names else ()))
        argv = javascript_tools.launched("vitest", "run", "--passWithNoTests", *REPORTERS, *self.args, *words)
        env = {"NO_COLOR": "1", **self.env}
        return (Invocation(argv, self.folder, env, tests=None if tests is None else frozenset(tests)),)

    def reader(self, invocation: Invocation, root: str) -> JestReader:
        return JestReader(self.name, invocation, root)

    def claims(self, test: str) -> bool:
        return javascript_tools.is_file_of(self.folder, test)

    async def narrow(self, change: Change, execute: Execute) -> Only:
        sources, snapshots = related_tests.sources_and_snapshots(change, self.folder)
        inner = [source.removeprefix(self.folder).lstrip("/") for source in sources]
        found: object = {}
        if inner:
            words = (REPORT, str(len(inner)), *inner, *self.args)
            argv = ("node", "--input-type=module", "-e", related_tests.VITEST, "--", *words)
            end = await execute(Invocation(argv, self.folder, {"NO_COLOR": "1", **self.env}))
            found = related_tests.read(report_of(end, "vitest"))
        if not isinstance(found, dict) or found.keys() != set(inner):
            raise Undecidable("vitest does not report on every changed file")
        by_path = dict(zip(sources, (found[path] for path in inner), strict=True))
        return related_tests.affected(by_path, snapshots, self.folder, change)
