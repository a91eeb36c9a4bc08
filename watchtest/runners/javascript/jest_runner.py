"""Jest: `jest --json` beside its usual text. Orders only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watchtest.core.model import Only
from watchtest.runners.javascript import javascript_tools as javascript
from watchtest.runners.javascript import related_tests as related
from watchtest.runners.javascript.jest_report import JestReader
from watchtest.runners.runner import REPORT, Change, Execute, Invocation, Undecidable, report_of

REPORTERS = ("--json", f"--outputFile={REPORT}", "--testLocationInResults", "--passWithNoTests")


@dataclass(frozen=True, slots=True)
class JestRunner:
    """One package, at `folder`."""

    name: str = "jest"
    folder: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[Invocation, ...]:
        words: tuple[str, ...] = ()
        if tests is not None:
            files, names = javascript.selected(tests)
            inner = [file.removeprefix(self.folder).lstrip("/") for file in files]
            pattern = (f"--testNamePattern={names}",) if names else ()
            words = (*pattern, "--runTestsByPath", *inner)
        argv = javascript.launched("jest", *REPORTERS, *self.args, *words)
        return (Invocation(argv, self.folder, self._env, tests=None if tests is None else frozenset(tests)),)

    def reader(self, invocation: Invocation, root: str) -> JestReader:
        return JestReader(self.name, invocation, root)

    def claims(self, test: str) -> bool:
        return javascript.is_file_of(self.folder, test)

    async def narrow(self, change: Change, execute: Execute) -> Only:
        async def tell(*words: str) -> object:
            argv = ("sh", "-c", related.TO_REPORT, "watchtest", REPORT, "jest", *self.args, *words)
            return related.read(report_of(await execute(Invocation(argv, self.folder, self._env)), "jest"))

        sources, snapshots = related.asked_of(change, self.folder)
        if not sources:
            return related.affected({}, snapshots, self.folder, change)
        settings = await tell("--showConfig")
        configs = related.configs_of(settings)
        related.must_be_in_view(sources, configs, change)
        machinery = related.machinery(settings, change.root)
        inner = {source: source.removeprefix(self.folder).lstrip("/") for source in sources}
        listing = ("--json", "--listTests")
        if machinery:
            # What setup files import concerns every test, and no test imports it.
            as_tests = related.as_tests(machinery, configs[0], change.root)
            if len(configs) > 1 or await tell(*listing, *as_tests, "--findRelatedTests", *inner.values()) != []:
                raise Undecidable("a file changed that jest needs for every test")
        found = {source: await tell(*listing, "--findRelatedTests", path) for source, path in inner.items()}
        return related.affected(found, snapshots, self.folder, change)

    @property
    def _env(self) -> Mapping[str, str]:
        return {"NO_COLOR": "1", "FORCE_COLOR": "0", **self.env}
