"""Reads the rows of `go test -json`. Starts nothing.

A test is only known once it starts. If the process of a package ends early (a panic, os.Exit, a signal), some tests
remain unknown, so such a run never counts as complete.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from watchtest.core.model import Execution, Failure, Outcome, Result, StopReason
from watchtest.runners.command_report import TEST_LIMIT, ToolReader
from watchtest.runners.go import go_output
from watchtest.runners.runner import Invocation, InvocationEnd
from watchtest.runners.untrusted import first_line, inside, name, seconds, text

OUTPUT_LIMIT = 128 * 1024
OUTCOMES = {"pass": Outcome.PASSED, "fail": Outcome.FAILED, "skip": Outcome.SKIPPED}
FRAME = re.compile(r"^\s*(=== (RUN|PAUSE|CONT|NAME)\b|--- (FAIL|PASS|SKIP): )")
UNBUILT = re.compile(r"^FAIL\s+(\S+) \[(build|setup) failed\]$", re.MULTILINE)


@dataclass(slots=True)
class _Output:
    """What a test or a package printed: the last OUTPUT_LIMIT characters."""

    lines: deque[go_output.OutputLine] = field(default_factory=deque)
    size: int = 0

    def add(self, row: dict[str, Any]) -> None:
        line = text(row.get("Output"))
        if not line or FRAME.match(line):
            return
        is_error = str(row.get("OutputType", "")).startswith("error")
        self.lines.append(go_output.OutputLine(line, is_error))
        self.size += len(line)
        while self.size > OUTPUT_LIMIT and len(self.lines) > 1:
            self.size -= len(self.lines.popleft().text)

    def all(self) -> str:
        return "".join(line.text for line in self.lines)


@dataclass(slots=True)
class _PackageRun:
    folder: str
    output: _Output = field(default_factory=_Output)
    running: dict[str, _Output] = field(default_factory=dict)
    """Tests that have started but not ended, in the order of their start."""
    red: set[str] = field(default_factory=set)
    is_over: bool = False


class GoReader(ToolReader):
    """Reads the rows of one `go test`."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        super().__init__(tool, invocation, root)
        self._modules: dict[str, str] = {}
        self._packages: dict[str, _PackageRun] = {}
        self._build: dict[str, _Output] = {}
        self._broken = ""
        """Why a process ended early, in one line."""
        self._has_timed_out = False

    def _take_row(self, row: dict[str, Any]) -> None:
        if isinstance(row.get("Module"), str) and "Action" not in row:
            self._modules.setdefault(name(row["Module"]), text(row.get("Dir")))
        elif row.get("Action") in ("build-output", "build-fail"):
            path = name(row.get("ImportPath"))
            if path and len(self._build) < TEST_LIMIT:
                self._build.setdefault(path, _Output()).add(row)
        elif package := name(row.get("Package")):
            self._take_test_row(package, row)

    def _take_test_row(self, path: str, row: dict[str, Any]) -> None:
        if path not in self._packages and len(self._packages) >= TEST_LIMIT:
            return
        package = self._packages.setdefault(path, _PackageRun(self._folder_of(path)))
        action, test = text(row.get("Action")), name(row.get("Test"))
        if not test:
            if action == "output":
                package.output.add(row)
            elif action in OUTCOMES:
                self._end_package(package, row)
            return
        output = package.running.get(test)
        if action == "run":
            package.running.setdefault(test, _Output())
            self._collected.promise(f"{package.folder}::{test}")
        elif action == "output" and output is not None:
            output.add(row)
        elif action in OUTCOMES and output is not None:
            del package.running[test]
            outcome = OUTCOMES[action]
            failure = self._failure(package, test, output) if outcome is Outcome.FAILED else None
            self._add(package, test, outcome, failure, seconds(row.get("Elapsed")))

    def _add(
        self, package: _PackageRun, test: str, outcome: Outcome, failure: Failure | None, duration_s: float = 0.0
    ) -> None:
        self._collected.add(Result(f"{package.folder}::{test}", outcome, duration_s, failure))
        if outcome.is_red:
            package.red.add(test)

    def _failure(self, package: _PackageRun, test: str, output: _Output) -> Failure:
        panic = go_output.panic(output.all(), self._root, package.folder)
        subtests = sorted(name for name in package.red if name.startswith(test + "/"))
        if panic is not None:
            self._break(package, test, panic)
            # The panic of a subtest is printed as output of the test around it, which fails last.
            for subtest in subtests:
                if self._is_silent(package, subtest):
                    self._add(package, subtest, Outcome.FAILED, panic)
            return panic
        failure = go_output.failure(tuple(output.lines), package.folder)
        return self._subtests_failure(package, subtests) if subtests and not failure.message else failure

    def _is_silent(self, package: _PackageRun, test: str) -> bool:
        result = self._collected.results.get(f"{package.folder}::{test}")
        return result is None or result.failure is None or result.failure.kind == go_output.SILENT

    def _subtests_failure(self, package: _PackageRun, subtests: list[str]) -> Failure:
        first = self._collected.results.get(f"{package.folder}::{subtests[0]}")
        where = first.failure.where if first and first.failure else None
        count = f"{len(subtests)} subtest{'s' if len(subtests) > 1 else ''} failed"
        return Failure(kind="subtests", message=f"{count}: {', '.join(subtests)[:2000]}", where=where)

    def _end_package(self, package: _PackageRun, row: dict[str, Any]) -> None:
        """End a package. Tests that are still running ended with their process."""
        package.is_over = True
        if row.get("Action") != "fail":
            return
        for test, output in package.running.items():
            failure = go_output.panic(output.all(), self._root, package.folder)
            if failure is not None:
                self._break(package, test, failure)
                self._add(package, test, Outcome.FAILED, failure)
        if package.running and not package.red:
            # Nothing was printed, so blame the test that started last.
            test, output = list(package.running.items())[-1]
            last = go_output.without_result(output.all()) or go_output.without_result(package.output.all())
            failure = Failure(kind="crashed", message=f"the test process ended while it ran\n{last}".strip())
            self._break(package, test, failure)
            self._add(package, test, Outcome.ERROR, failure)
        if "FailedBuild" in row:
            build = self._build.get(text(row.get("FailedBuild")))
            failure = go_output.build_failure(build.all() if build else "", self._root, self._folder)
            self._collected.error(package.folder, failure)
        elif not package.red:
            printed = package.output.all()
            message = go_output.without_result(printed) or "it failed outside its tests"
            failure = go_output.panic(printed, self._root, package.folder) or Failure(
                kind="package failed", message=message, text=printed
            )
            self._collected.error(package.folder, failure)

    def _break(self, package: _PackageRun, test: str, failure: Failure) -> None:
        is_timeout = failure.kind == go_output.TIMED_OUT
        if not self._broken or (is_timeout and not self._has_timed_out):
            first = failure.message.partition("\n")[0]
            self._broken = f"{failure.kind} in {package.folder}::{test}: {first}"
        self._has_timed_out |= is_timeout

    def execution(self, end: InvocationEnd) -> Execution:
        for found in UNBUILT.finditer(end.output):  # rows only since Go 1.24
            package = self._folder_of(name(found[1]))
            # The build may have failed in a dependency of this package.
            block = go_output.block_of(end.output, name(found[1])) or end.output
            self._collected.error(package, go_output.build_failure(block, self._root, self._folder))
        open_ = [package for package in self._packages.values() if not package.is_over]
        running = [f"{package.folder}::{test}" for package in open_ for test in package.running]
        broken = self._broken
        if not self._packages and not self._collected.errors and end.exit_code:
            broken = f"{self._tool} exited with {end.exit_code}: {first_line(end.output)}"
        if open_ and not broken and end.exit_code is not None:
            broken = f"{self._tool} ended while {open_[0].folder} was running"
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
        """Return the folder of a package in the longest matching module, or else its import path, which is unique."""
        for module in sorted(self._modules, key=len, reverse=True):
            if package == module or package.startswith(module + "/"):
                base = "." if self._modules[module] == self._root else inside(self._modules[module], self._root, "")
                inner = package[len(module) + 1 :]
                if base is not None:
                    return inner or "." if base == "." else f"{base}/{inner}".rstrip("/")
        return package
