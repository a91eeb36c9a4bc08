"""Runs JavaScript tests with `jest --json`, in addition to its usual text output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watchtest.core.model import Only
from watchtest.runners.javascript import javascript_tools, related_tests
from watchtest.runners.javascript.jest_report import JestReader
from watchtest.runners.runner import REPORT, Change, Execute, Invocation, Undecidable, report_of

REPORTERS = ("--json", f"--outputFile={REPORT}", "--testLocationInResults", "--passWithNoTests")


@dataclass(frozen=True, slots=True)
class JestRunner:
    """One package in `folder`."""

    name: str = "jest"
    folder: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[Invocation, ...]:
        words: tuple[str, ...] = ()
        if tests is not None:
            files, names = javascript_tools.selected(tests)
            inner = [file.removeprefix(self.folder).lstrip("/") for file in files]
            pattern = (f"--testNamePattern={names}",) if names else ()
            words = (*pattern, "--runTestsByPath", *inner)
        argv = javascript_tools.launched("jest", *REPORTERS, *self.args, *words)
        return (Invocation(argv, self.folder, self._env, tests=None if tests is None else frozenset(tests)),)

    def reader(self, invocation: Invocation, root: str) -> JestReader:
        return JestReader(self.name, invocation, root)

    def claims(self, test: str) -> bool:
        return javascript_tools.is_file_of(self.folder, test)

    async def narrow(self, change: Change, execute: Execute) -> Only:
        async def query(*words: str) -> object:
            argv = ("sh", "-c", related_tests.TO_REPORT, "watchtest", REPORT, "jest", *self.args, *words)
            return related_tests.read(report_of(await execute(Invocation(argv, self.folder, self._env)), "jest"))

        sources, snapshots = related_tests.sources_and_snapshots(change, self.folder)
        if not sources:
            return related_tests.affected({}, snapshots, self.folder, change)
        settings = await query("--showConfig")
        configs = related_tests.configs_of(settings)
        related_tests.check_visible(sources, configs, change)
        setup_files = related_tests.files_in_settings(settings, change.root)
        inner = {source: source.removeprefix(self.folder).lstrip("/") for source in sources}
        listing = ("--json", "--listTests")
        if setup_files:
            # What setup files import affects every test, although no test imports it.
            as_tests = related_tests.as_tests(setup_files, configs[0], change.root)
            if len(configs) > 1 or await query(*listing, *as_tests, "--findRelatedTests", *inner.values()) != []:
                raise Undecidable("a file changed that jest needs for every test")
        found = {source: await query(*listing, "--findRelatedTests", path) for source, path in inner.items()}
        return related_tests.affected(found, snapshots, self.folder, change)

    @property
    def _env(self) -> Mapping[str, str]:
        return {"NO_COLOR": "1", "FORCE_COLOR": "0", **self.env}
