"""Go: `go test -json`, a module at a time. Orders only; goevents reads what it says.

Results that Go itself has cached are taken: it keeps them by content, and only those of packages that passed.
`args = ["-count=1"]` switches that off.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from watchtest.core.model import Only
from watchtest.runners.go import go_packages as gopackages
from watchtest.runners.go.go_events import GoReports
from watchtest.runners.project_tree import DetectedProject, ProjectTree
from watchtest.runners.runner import REPORT, Ask, Change, Order, told

MANIFEST = "go.mod"
SCRIPT = r"""go list -m -f '{{printf "{\"Module\":%q,\"Dir\":%q}" .Path .Dir}}' || exit; exec go test -json "$@" """
"""The modules come first: only they tell in which folder a package lies."""
NAME = re.compile(r"(Test|Example|Fuzz|Benchmark)[^a-z]|(Test|Example|Fuzz|Benchmark)$")
CARGO = re.compile(r"(^|/)(lib|doc|(bin|test|example|bench)/[^/]+)$")
LONGEST_FILTER = 100_000


def detect(tree: ProjectTree) -> Iterator[DetectedProject]:
    for folder in tree.folders_with(MANIFEST):
        yield DetectedProject(folder, any(path.endswith("_test.go") for path in tree.below(folder)))


@dataclass(frozen=True, slots=True)
class GoRunner:
    """One module, at `folder`."""

    name: str = "go"
    folder: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = 300.0
    """What the box allows a run: Go ends a package a little earlier, and then says where each goroutine is."""

    def orders(self, tests: tuple[str, ...] | None) -> tuple[Order, ...]:
        packages: tuple[str, ...] = ("./...",)
        filters: tuple[str, ...] = ()
        if tests is not None:
            packages = tuple(sorted({self._package(test) for test in tests}))
            filters = _filters(tests)
        limit = f"-timeout={max(1, int(self.timeout_s - min(5, self.timeout_s / 10)))}s"
        argv = ("sh", "-c", SCRIPT, "go", limit, *filters, *self.args, *packages)
        selected = None if tests is None else frozenset(tests)
        return (Order(argv, self.folder, self.env, has_rows=True, tests=selected),)

    def reports(self, order: Order, root: str) -> GoReports:
        return GoReports(self.name, order, root)

    def claims(self, test: str) -> bool:
        package, separator, name = test.partition("::")
        if self.folder and package != self.folder and not package.startswith(self.folder + "/"):
            return False
        if separator:
            return NAME.match(name) is not None
        return "." not in package.rpartition("/")[2].lstrip(".") and CARGO.search(package) is None

    async def narrow(self, change: Change, ask: Ask) -> Only:
        flags = gopackages.listing_flags(self.args)
        argv = ("sh", "-c", gopackages.LISTING, "go", REPORT, *flags, "-f", gopackages.TEMPLATE)
        end = await ask(Order(argv, self.folder, self.env))
        return gopackages.affected(told(end, "go list"), change)

    def _package(self, test: str) -> str:
        folder = test.partition("::")[0]
        inner = folder.removeprefix(self.folder).strip("/") if self.folder else folder
        return "./" + inner if inner not in ("", ".") else "."


def _filters(tests: tuple[str, ...]) -> tuple[str, ...]:
    """`-run` for the top-level tests of these ids; a lone subtest by its whole path. None where a package is meant."""
    names = [test.partition("::")[2] for test in tests]
    if not all(names):
        return ()
    if len(names) == 1:
        expression = "/".join(f"^{_quoted(part)}$" for part in names[0].split("/"))
    else:
        expression = "^(" + "|".join(sorted({_quoted(name.partition("/")[0]) for name in names})) + ")$"
    return (f"-run={expression}",) if len(expression) < LONGEST_FILTER else ()


def _quoted(word: str) -> str:
    return re.sub(r"([\\.+*?()|\[\]{}^$])", r"\\\1", word)
