"""Runs Go tests with `go test -json`, one module at a time.

Results from Go's own cache are accepted: it is keyed by content and only holds packages that passed.
`args = ["-count=1"]` disables it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from watchtest.core.model import Only
from watchtest.runners.go import go_packages
from watchtest.runners.go.go_events import GoReader
from watchtest.runners.project_tree import DetectedProject, ProjectTree
from watchtest.runners.runner import FILTER_LIMIT, REPORT, Change, Execute, Invocation, ToolRunner, report_of

MANIFEST = "go.mod"
SCRIPT = r"""go list -m -f '{{printf "{\"Module\":%q,\"Dir\":%q}" .Path .Dir}}' || exit; exec go test -json "$@" """
"""The modules are listed first, because they are needed to find the folder of a package."""
NAME = re.compile(r"(Test|Example|Fuzz|Benchmark)[^a-z]|(Test|Example|Fuzz|Benchmark)$")


def detect(tree: ProjectTree) -> Iterator[DetectedProject]:
    for folder in tree.folders_with(MANIFEST):
        yield DetectedProject(folder, any(path.endswith("_test.go") for path in tree.below(folder)))


@dataclass(frozen=True, slots=True)
class GoRunner(ToolRunner):
    """One module in `folder`."""

    name: str = "go"
    timeout_s: float = 300.0
    """The box's limit of a run. Go ends a package a little earlier, and then prints the stacks of all goroutines."""

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[Invocation, ...]:
        packages: tuple[str, ...] = ("./...",)
        filters: tuple[str, ...] = ()
        if tests is not None:
            packages = tuple(sorted({self._package(test) for test in tests}))
            filters = _filters(tests)
        limit = f"-timeout={max(1, int(self.timeout_s - min(5, self.timeout_s / 10)))}s"
        argv = ("sh", "-c", SCRIPT, "go", limit, *filters, *self.args, *packages)
        selected = None if tests is None else frozenset(tests)
        return (Invocation(argv, self.folder, self.env, has_rows=True, tests=selected),)

    def reader(self, invocation: Invocation, root: str) -> GoReader:
        return GoReader(self.name, invocation, root)

    def claims(self, test: str) -> bool:
        package, separator, name = test.partition("::")
        if self.folder and package != self.folder and not package.startswith(self.folder + "/"):
            return False
        if separator:
            return NAME.match(name) is not None
        return "." not in package.rpartition("/")[2].lstrip(".")

    async def narrow(self, change: Change, execute: Execute) -> Only:
        flags = go_packages.listing_flags(self.args)
        argv = ("sh", "-c", go_packages.LISTING, "go", REPORT, *flags, "-f", go_packages.TEMPLATE)
        end = await execute(Invocation(argv, self.folder, self.env))
        return go_packages.affected(report_of(end, "go list"), change)

    def _package(self, test: str) -> str:
        folder = test.partition("::")[0]
        inner = folder.removeprefix(self.folder).strip("/") if self.folder else folder
        return "./" + inner if inner not in ("", ".") else "."


def _filters(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Return `-run` for the top-level tests of these ids, or for a single subtest; none if a whole package is meant."""
    names = [test.partition("::")[2] for test in tests]
    if not all(names):
        return ()
    if len(names) == 1:
        expression = "/".join(f"^{_quoted(part)}$" for part in names[0].split("/"))
    else:
        expression = "^(" + "|".join(sorted({_quoted(name.partition("/")[0]) for name in names})) + ")$"
    return (f"-run={expression}",) if len(expression) < FILTER_LIMIT else ()


def _quoted(word: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", word)
