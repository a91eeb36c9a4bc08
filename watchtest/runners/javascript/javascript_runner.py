"""Runs JavaScript tests with Jest or Vitest, with a JSON report in addition to their usual text output."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from watchtest.core.model import Only
from watchtest.runners import runner
from watchtest.runners.javascript import related_tests
from watchtest.runners.javascript.jest_report import SEPARATOR, JestReader
from watchtest.runners.project_tree import DetectedProject, ProjectTree, in_folder

MANIFEST = "package.json"
TOOLS = ("vitest", "jest")
TEST_FILE = re.compile(r"(\.(test|spec)\.[cm]?[jt]sx?$)|(^|/)__tests__/[^/]+\.[cm]?[jt]sx?$")
LAUNCHER = (
    'tool=$1; shift; folder=$PWD; while :; do [ -x "$folder/node_modules/.bin/$tool" ] && '
    'exec "$folder/node_modules/.bin/$tool" "$@"; [ -n "$folder" ] || break; folder=${folder%/*}; done; '
    '[ -f .pnp.cjs ] && exec yarn run "$tool" "$@"; '
    'echo "$tool is not in node_modules of $PWD or above" >&2; exit 127'
)
"""Does the same as `npx --no-install`, without the half second that npm takes to start."""
TO_REPORT = f'exec >"$1"; shift; {LAUNCHER}'
"""Starts a tool whose stdout is the report."""


def detect(tree: ProjectTree, tool: str) -> Iterator[DetectedProject]:
    """Yield the packages that use this tool, without those below another one."""
    found: list[str] = []
    for folder in tree.folders_with(MANIFEST):
        is_inner = any(runner.is_below(folder, parent) for parent in found)
        if not is_inner and _tool_of(tree.read(in_folder(folder, MANIFEST))) == tool:
            found.append(folder)
            named = (path for path in tree.below(folder) if "test" in path or "spec" in path)
            has_tests = any(TEST_FILE.search(path) and "node_modules/" not in path for path in named)
            yield DetectedProject(folder, has_tests)


def _tool_of(manifest: bytes) -> str:
    """Return the tool that a package depends on; of two, the one that its test script starts."""
    try:
        found = json.loads(manifest.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return ""
    package: dict[str, Any] = found if isinstance(found, dict) else {}
    tables = [package.get(name) for name in ("devDependencies", "dependencies")]
    used = [tool for tool in TOOLS if any(isinstance(table, dict) and tool in table for table in tables)]
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    started = [tool for tool in used if isinstance(script, str) and re.search(rf"\b{tool}\b", script)]
    return next(iter(started or used), "")


def selected(tests: Sequence[str]) -> tuple[list[str], str]:
    """Return the files of these ids, and a regular expression for the names in them; "" if whole files are meant."""
    files = sorted({test.partition("::")[0] for test in tests})
    names = [test.partition("::")[2] for test in tests]
    if not all(names):
        return files, ""
    quoted = sorted({_quoted(name) for name in names})
    expression = f"^({'|'.join(quoted)})$"
    return files, expression if len(expression) < runner.FILTER_LIMIT else ""


def _quoted(name: str) -> str:
    """Quote a name. The tools join suite and test by one space; a title may contain our separator and line breaks."""
    parts = [re.sub(r"([\\.+*?()|\[\]{}^$/-])", r"\\\1", part) for part in name.split(SEPARATOR)]
    return "( | > )".join(parts).replace(" ", r"\s")


@dataclass(frozen=True, slots=True)
class JavaScriptRunner(runner.ToolRunner):
    """One package in `folder`."""

    COMMAND: ClassVar[tuple[str, ...]] = ()
    BEFORE_FILES: ClassVar[tuple[str, ...]] = ()
    """The argument that makes the tool take paths for files, not for patterns."""
    COLORS: ClassVar[Mapping[str, str]] = {"NO_COLOR": "1"}

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[runner.Invocation, ...]:
        words: tuple[str, ...] = ()
        if tests is not None:
            files, names = selected(tests)
            pattern = (f"--testNamePattern={names}",) if names else ()
            words = (*pattern, *self.BEFORE_FILES, *map(self._inner, files))
        argv = ("sh", "-c", LAUNCHER, "watchtest", *self.COMMAND, *self.args, *words)
        return (self._invocation(argv, None if tests is None else frozenset(tests)),)

    def reader(self, invocation: runner.Invocation, root: str) -> JestReader:
        return JestReader(self.name, invocation, root)

    def claims(self, test: str) -> bool:
        file = test.partition("::")[0]
        return file.endswith(related_tests.SUFFIXES) and runner.is_below(file, self.folder)

    def _inner(self, file: str) -> str:
        return file.removeprefix(self.folder).lstrip("/")

    def _invocation(self, argv: tuple[str, ...], tests: frozenset[str] | None = None) -> runner.Invocation:
        return runner.Invocation(argv, self.folder, {**self.COLORS, **self.env}, tests=tests)


@dataclass(frozen=True, slots=True)
class JestRunner(JavaScriptRunner):
    """Jest can list the tests that import a file."""

    name: str = "jest"
    COMMAND = ("jest", "--json", f"--outputFile={runner.REPORT}", "--testLocationInResults", "--passWithNoTests")
    BEFORE_FILES = ("--runTestsByPath",)
    COLORS = {"NO_COLOR": "1", "FORCE_COLOR": "0"}  # noqa: RUF012

    async def narrow(self, change: runner.Change, execute: runner.Execute) -> Only:
        async def query(*words: str) -> object:
            argv = ("sh", "-c", TO_REPORT, "watchtest", runner.REPORT, "jest", *self.args, *words)
            return related_tests.read(runner.report_of(await execute(self._invocation(argv)), "jest"))

        sources, snapshots = related_tests.sources_and_snapshots(change, self.folder)
        if not sources:
            return related_tests.affected({}, snapshots, self.folder, change)
        settings = await query("--showConfig")
        configs = related_tests.configs_of(settings)
        related_tests.check_visible(sources, configs, change)
        setup_files = related_tests.files_in_settings(settings, change.root)
        inner = {source: self._inner(source) for source in sources}
        listing = ("--json", "--listTests")
        if setup_files:
            # What setup files import affects every test, although no test imports it.
            as_tests = related_tests.as_tests(setup_files, configs[0], change.root)
            if len(configs) > 1 or await query(*listing, *as_tests, "--findRelatedTests", *inner.values()) != []:
                raise runner.Undecidable("a file changed that jest needs for every test")
        found = {source: await query(*listing, "--findRelatedTests", path) for source, path in inner.items()}
        return related_tests.affected(found, snapshots, self.folder, change)


@dataclass(frozen=True, slots=True)
class VitestRunner(JavaScriptRunner):
    """Vitest would run the tests that import a file, so a script of ours lists them."""

    name: str = "vitest"
    COMMAND = (
        *("vitest", "run", "--passWithNoTests", "--reporter=default", "--reporter=json"),
        *(f"--outputFile.json={runner.REPORT}", "--includeTaskLocation"),
    )

    async def narrow(self, change: runner.Change, execute: runner.Execute) -> Only:
        sources, snapshots = related_tests.sources_and_snapshots(change, self.folder)
        inner = [self._inner(source) for source in sources]
        found: object = {}
        if inner:
            words = (runner.REPORT, str(len(inner)), *inner, *self.args)
            argv = ("node", "--input-type=module", "-e", related_tests.VITEST, "--", *words)
            found = related_tests.read(runner.report_of(await execute(self._invocation(argv)), "vitest"))
        if not isinstance(found, dict) or found.keys() != set(inner):
            raise runner.Undecidable("vitest does not report on every changed file")
        by_path = dict(zip(sources, (found[path] for path in inner), strict=True))
        return related_tests.affected(by_path, snapshots, self.folder, change)
