"""Runs Rust tests with cargo: unit and integration tests with libtest's JSON, documentation tests with text output.

On a stable toolchain libtest writes JSON only in a process with RUSTC_BOOTSTRAP=1. The compiler must not see this
variable, or build scripts would see it and everything would be built again. So only the test binaries get it, from a
wrapper that also reports which binary starts and how it ended.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

from watchtest.core.model import Only
from watchtest.runners import runner
from watchtest.runners.cargo import cargo_crates
from watchtest.runners.cargo.cargo_events import CargoReader, DoctestReader
from watchtest.runners.project_tree import DetectedProject, ProjectTree, in_folder

MANIFEST = "Cargo.toml"
RUST_TEST = re.compile(rb"#\[(\w+::)*test\b|#\[rstest")
SOURCE_LIMIT = 300
WRAPPER = (
    r"""printf '\n{"watchtest":"begin","binary":"%s"}\n' "${1##*/}"; RUSTC_BOOTSTRAP=1 "$@"; code=$?; """
    r"""printf '\n{"watchtest":"end","code":%d}\n' "$code"; exit "$code" """.rstrip()
)
CONFIG = f'target."cfg(all())".runner={json.dumps(["sh", "-c", WRAPPER, "watchtest"])}'
BUILD = ("--no-fail-fast", "--message-format=json", "--config", CONFIG)
JSON = ("-Z", "unstable-options", "--format", "json", "--report-time")
DOC = "doc"
TARGET = re.compile(r"(?P<crate>[A-Za-z0-9_-]+)/(?P<target>lib|doc|(bin|test|example|bench)/[^/:]+)")


def detect(tree: ProjectTree) -> Iterator[DetectedProject]:
    """Yield workspaces and packages, without the packages that are members of a workspace found before."""
    workspaces: list[tuple[str, list[str]]] = []
    for folder in tree.folders_with(MANIFEST):
        workspace = _toml(tree.read(in_folder(folder, MANIFEST))).get("workspace")
        if workspace is None and any(_has_member(top, excluded, folder) for top, excluded in workspaces):
            continue
        if isinstance(workspace, dict):
            excluded = workspace.get("exclude")
            globs = [one for one in excluded if isinstance(one, str)] if isinstance(excluded, list) else []
            workspaces.append((folder, globs))
        yield DetectedProject(folder, not tree.has_python_tests or _has_tests(tree, folder))


def _has_member(top: str, excluded: list[str], folder: str) -> bool:
    if not runner.is_below(folder, top):
        return False
    inner = folder.removeprefix(top).lstrip("/")
    return not any(fnmatchcase(inner, glob) or runner.is_below(inner, glob.rstrip("/")) for glob in excluded if glob)


def _has_tests(tree: ProjectTree, folder: str) -> bool:
    """Look for tests in the sources of a Python project, where Rust is mostly an extension.

    An extension module that only Python can load cannot be linked as a test binary.
    """
    if b"extension-module" in tree.read(in_folder(folder, MANIFEST)):
        return False
    sources = (path for path in tree.below(folder) if path.endswith(".rs"))
    return any(RUST_TEST.search(tree.read(path)) for path in islice(sources, SOURCE_LIMIT))


def _toml(content: bytes) -> dict[str, Any]:
    """Parse a manifest. An invalid one is empty: cargo itself reports the error better."""
    try:
        return tomllib.loads(content.decode("utf-8", "replace"))
    except ValueError:
        return {}


@dataclass(frozen=True, slots=True)
class CargoRunner(runner.ToolRunner):
    """One package or workspace in `folder`. Test ids are `<crate>/<target>::<path of the test>`."""

    name: str = "cargo"

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[runner.Invocation, ...]:
        if tests is None:
            return self._tests(("--workspace",), (), None), self._docs(None)
        docs = [test for test in tests if self._target(test)[1] == DOC]
        others = [test for test in tests if self._target(test)[1] != DOC]
        invocations: list[runner.Invocation] = []
        if others:
            names = tuple(test.partition("::")[2] for test in others)
            is_short = all(names) and sum(map(len, names)) < runner.FILTER_LIMIT
            invocations.append(self._tests(self._packages(others), names if is_short else (), frozenset(others)))
        if docs:
            # Always all of them: their names contain line numbers, which change with any line added above.
            invocations.append(self._docs(frozenset(docs)))
        return tuple(invocations)

    def reader(self, invocation: runner.Invocation, root: str) -> runner.ReportReader:
        reader = CargoReader if invocation.has_rows else DoctestReader
        return reader(self.name, invocation, root)

    def claims(self, test: str) -> bool:
        return self._target(test)[0] != ""

    async def narrow(self, change: runner.Change, execute: runner.Execute) -> Only:
        argv = ("sh", "-c", cargo_crates.METADATA, "cargo", runner.REPORT)
        end = await execute(runner.Invocation(argv, self.folder, self.env))
        return cargo_crates.affected(runner.report_of(end, "cargo metadata"), self.folder, change)

    def _tests(
        self, packages: tuple[str, ...], names: tuple[str, ...], tests: frozenset[str] | None
    ) -> runner.Invocation:
        own, theirs = self._arguments()
        exact = ("--exact", *sorted(set(names))) if names else ()
        argv = ("cargo", "test", *packages, "--tests", *BUILD, *own, "--", *JSON, *theirs, *exact)
        return runner.Invocation(argv, self.folder, self.env, has_rows=True, tests=tests)

    def _docs(self, tests: frozenset[str] | None) -> runner.Invocation:
        own, theirs = self._arguments()
        # Both streams as one, because only stderr names the crate that comes next.
        argv = ("sh", "-c", 'exec cargo test "$@" 2>&1', "cargo", "--workspace", "--doc", "--no-fail-fast", *own)
        return runner.Invocation((*argv, "--color=never", "--", *theirs), self.folder, self.env, tests=tests)

    def _arguments(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the user's arguments for cargo and, after `--`, for the tests."""
        if "--" not in self.args:
            return self.args, ()
        at = self.args.index("--")
        return self.args[:at], self.args[at + 1 :]

    def _packages(self, tests: list[str]) -> tuple[str, ...]:
        crates = sorted({self._target(test)[0] for test in tests} - {""})
        return tuple(word for crate in crates for word in ("--package", crate))

    def _target(self, test: str) -> tuple[str, str]:
        """Return the crate and target of an id; empty if it is not one of ours."""
        path = test.partition("::")[0]
        if self.folder:
            if not path.startswith(self.folder + "/"):
                return "", ""
            path = path.removeprefix(self.folder + "/")
        found = TARGET.fullmatch(path)
        return (found["crate"], found["target"]) if found else ("", "")
