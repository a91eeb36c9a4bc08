"""The rows of `go test -json` as results. Parses; starts nothing.

Which tests there are is only known when they begin. A package whose process ended early (a panic, os.Exit, a signal)
leaves tests behind that nobody has heard of, so such a run is never a whole one.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from watchtest.core.model import Execution, Failure, Outcome, Result, StopReason
from watchtest.runners.command_report import TEST_LIMIT, ResultCollector
from watchtest.runners.go import go_output as go_output
from watchtest.runners.runner import Invocation, InvocationEnd
from watchtest.runners.untrusted import first_line, inside, name, seconds, text

OUTPUT_LIMIT = 128 * 1024
ENDS = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}
FRAME = re.compile(r"^\s*(=== (RUN|PAUSE|CONT|NAME)\b|--- (FAIL|PASS|SKIP): )")
UNBUILT = re.compile(r"^FAIL\s+(\S+) \[(build|setup) failed\]$", re.MULTILINE)


@dataclass(slots=True)
class _Words:
    """What a test or a package printed: the last OUTPUT_LIMIT letters."""

    lines: deque[go_output.Line] = field(default_factory=deque)
    size: int = 0

    def add(self, row: dict[str, Any]) -> None:
        said = text(row.get("Output"))
        if not said or FRAME.match(said):
            return
        is_error = str(row.get("OutputType", "")).startswith("error")
        self.lines.append(go_output.Line(said, is_error))
        self.size += len(said)
        while self.size > OUTPUT_LIMIT and len(self.lines) > 1:
            self.size -= len(self.lines.popleft().text)

    def all(self) -> str:
        return "".join(line.text for line in self.lines)


@dataclass(slots=True)
class _Package:
    folder: str
    words: _Words = field(default_factory=_Words)
    running: dict[str, _Words] = field(default_factory=dict)
    """Tests that have begun and not ended, in their invocation."""
    red: set[str] = field(default_factory=set)
    is_over: bool = False


class GoReader:
    """Of one `go test`."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        self._tool = tool
        self._root = root
        self._folder = invocation.folder
        self._collected = ResultCollector()
        self._modules: dict[str, str] = {}
        self._packages: dict[str, _Package] = {}
        self._build: dict[str, _Words] = {}
        self._broken = ""
        """Why a process ended before its time, in one line."""
        self._has_timed_out = False

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        promised: set[str] = set()
        results: list[Result] = []
        for row in rows:
            if isinstance(row.get("Module"), str) and "Action" not in row:
                self._modules.setdefault(name(row["Module"]), text(row.get("Dir")))
            elif row.get("Action") in ("build-output", "build-fail"):
                self._built(row)
            elif package := name(row.get("Package")):
                self._told(package, row, promised, results)
        return frozenset(promised), tuple(result for result in results if self._collected.add(result))

    def _built(self, row: dict[str, Any]) -> None:
        path = name(row.get("ImportPath"))
        if path and len(self._build) < TEST_LIMIT:
            self._build.setdefault(path, _Words()).add(row)

    def _told(self, path: str, row: dict[str, Any], promised: set[str], results: list[Result]) -> None:
        if path not in self._packages and len(self._packages) >= TEST_LIMIT:
            return
        package = self._packages.setdefault(path, _Package(self._folder_of(path)))
        action, test = text(row.get("Action")), name(row.get("Test"))
        if not test:
            if action == "output":
                package.words.add(row)
            elif action in ENDS:
                results += self._ended(package, row)
            return
        words = package.running.get(test)
        if action == "run":
            package.running.setdefault(test, _Words())
            if self._collected.promise(f"{package.folder}::{test}"):
                promised.add(f"{package.folder}::{test}")
        elif action == "output" and words is not None:
            words.add(row)
        elif action in ENDS and words is not None:
            del package.running[test]
            results += self._finished(package, test, words, ENDS[action], seconds(row.get("Elapsed")))

    def _finished(
        self, package: _Package, test: str, words: _Words, outcome: Outcome, duration_s: float
    ) -> list[Result]:
        id_ = f"{package.folder}::{test}"
        if outcome is not Outcome.FAILED:
            return [Result(id_, outcome, duration_s)]
        package.red.add(test)
        panic = go_output.panic(words.all(), self._root, package.folder)
        if panic is not None:
            self._break(package, test, panic)
            # A subtest that panicked says so in the name of the test around it, which fails last.
            silent = [one for one in package.red if one.startswith(test + "/") and self._is_silent(package, one)]
            inner = [Result(f"{package.folder}::{one}", Outcome.FAILED, 0.0, panic) for one in silent]
            return [*inner, Result(id_, outcome, duration_s, panic)]
        below = sorted(one for one in package.red if one.startswith(test + "/"))
        failure = go_output.failure(tuple(words.lines), package.folder)
        if below and not failure.message:
            failure = self._because_of(package, below)
        return [Result(id_, outcome, duration_s, failure)]

    def _is_silent(self, package: _Package, test: str) -> bool:
        known = self._collected.results.get(f"{package.folder}::{test}")
        return known is None or known.failure is None or known.failure.kind == go_output.SILENT

    def _because_of(self, package: _Package, below: list[str]) -> Failure:
        known = self._collected.results.get(f"{package.folder}::{below[0]}")
        where = known.failure.where if known and known.failure else None
        count = f"{len(below)} subtest{'s' if len(below) > 1 else ''} failed"
        return Failure(kind="subtests", message=f"{count}: {', '.join(below)[:2000]}", where=where)

    def _ended(self, package: _Package, row: dict[str, Any]) -> list[Result]:
        """A package is through. Tests that still ran were torn from their process."""
        package.is_over = True
        if row.get("Action") != "fail":
            return []
        results: list[Result] = []
        for test, words in package.running.items():
            said = words.all()
            failure = go_output.panic(said, self._root, package.folder)
            if failure is not None:
                self._break(package, test, failure)
                package.red.add(test)
                results.append(Result(f"{package.folder}::{test}", Outcome.FAILED, 0.0, failure))
        if package.running and not package.red:
            # Nothing was said: the one that began last was at work.
            test, words = list(package.running.items())[-1]
            said = go_output.without_result(words.all()) or go_output.without_result(package.words.all())
            failure = Failure(kind="crashed", message=f"the test process ended while it ran\n{said}".strip())
            self._break(package, test, failure)
            package.red.add(test)
            results.append(Result(f"{package.folder}::{test}", Outcome.ERROR, 0.0, failure))
        if "FailedBuild" in row:
            self._unbuilt(package.folder, text(row.get("FailedBuild")))
        elif not package.red:
            said = package.words.all()
            failure = go_output.panic(said, self._root, package.folder) or Failure(
                kind="package failed",
                message=go_output.without_result(said) or "it failed outside its tests",
                text=said,
            )
            self._collected.error(package.folder, failure)
        return results

    def _break(self, package: _Package, test: str, failure: Failure) -> None:
        is_timeout = failure.kind == go_output.TIMED_OUT
        if not self._broken or (is_timeout and not self._has_timed_out):
            first = failure.message.partition("\n")[0]
            self._broken = f"{failure.kind} in {package.folder}::{test}: {first}"
        self._has_timed_out |= is_timeout

    def _unbuilt(self, folder: str, import_path: str) -> None:
        words = self._build.get(import_path)
        said = words.all() if words else ""
        self._collected.error(folder, go_output.build_failure(said, self._root, self._folder))

    def execution(self, end: InvocationEnd) -> Execution:
        for found in UNBUILT.finditer(end.output):  # before Go 1.24 these are no rows
            package = self._folder_of(name(found[1]))
            # It may be another package, which this one needs, that could not be built.
            block = go_output.block_of(end.output, name(found[1])) or end.output
            self._collected.error(package, go_output.build_failure(block, self._root, self._folder))
        open_ = [path for path, package in self._packages.items() if not package.is_over]
        running = [
            f"{package.folder}::{test}"
            for package in self._packages.values()
            for test in package.running
            if not package.is_over
        ]
        broken = self._broken
        if not self._packages and not self._collected.errors and end.exit_code:
            broken = f"{self._tool} exited with {end.exit_code}: {first_line(end.output)}"
        if open_ and not broken and end.exit_code is not None:
            broken = f"{self._tool} ended in the midst of {self._packages[open_[0]].folder}"
        return self._collected.execution(
            end,
            self._tool,
            reason=broken,
            is_whole=not open_ and not self._broken,
            stopped=StopReason.TIMED_OUT if self._has_timed_out else None,
            current=running[-1] if running else "",
            withdrawn=self._broken,
        )

    def _folder_of(self, package: str) -> str:
        """The folder of a package, by the longest module that holds it; else its import path, which is unique too."""
        for module in sorted(self._modules, key=len, reverse=True):
            if package == module or package.startswith(module + "/"):
                base = "." if self._modules[module] == self._root else inside(self._modules[module], self._root, "")
                inner = package[len(module) + 1 :]
                if base is not None:
                    return inner or "." if base == "." else f"{base}/{inner}".rstrip("/")
        return package
