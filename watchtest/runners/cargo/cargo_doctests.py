"""Parses the text output of `cargo test --doc`: on a stable toolchain rustdoc writes no JSON. Starts nothing."""

from __future__ import annotations

import re

from watchtest.core.model import Execution, Failure, Outcome, Result
from watchtest.runners.command_report import FinalReader, ResultCollector
from watchtest.runners.runner import InvocationEnd
from watchtest.runners.untrusted import location, name, text

CRATE = re.compile(r"^\s+Doc-tests (\S+)$")
TEST = re.compile(r"^test (.+ \(line (\d{1,9})\)(?: - [a-z ]+)?) \.\.\. (ok|FAILED|ignored)(?:, .*)?$")
COUNT = re.compile(r"^running (\d+) tests?$")
RESULT = re.compile(r"^test result: ")
BLOCK = re.compile(r"^---- (.+) stdout ----$")
NO_LIBRARY = re.compile(r"^error: no library targets found in ", re.MULTILINE)
OUTCOMES = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}
NOISE = re.compile(r"^(Test executable failed.*|stderr:|stdout:|thread '.*|\s*)$")


class DoctestReader(FinalReader):
    """Reads the output of one `cargo test --doc`, in which crates differ only by their order."""

    def execution(self, end: InvocationEnd) -> Execution:
        collected = ResultCollector()
        output = text(end.output)
        if NO_LIBRARY.search(output):
            end = InvocationEnd(0, output=end.output, duration_s=end.duration_s)
        missing = self._read(output, collected)
        reason = (
            "" if missing == 0 else f"{missing} documentation test{'s were' if missing > 1 else ' was'} not reported"
        )
        if end.exit_code and not collected.has_red and not reason:
            errors = [line for line in output.splitlines() if line.startswith("error")]
            reason = errors[0] if errors else ""
        return collected.execution(end, self._tool, reason=reason, is_whole=missing == 0)

    def _read(self, output: str, collected: ResultCollector) -> int:
        """Collect the results. Returns how many tests were announced but not reported."""
        crate, announced, reported = "doc", 0, 0
        blocks = _blocks(output)
        prefix = f"{self._invocation.folder}/" if self._invocation.folder else ""
        for line in output.splitlines():
            if found := CRATE.match(line):
                crate = name(found[1])
            elif found := COUNT.match(line):
                announced += int(found[1]) if len(found[1]) < 9 else 0
            elif found := TEST.match(line):
                reported += 1
                id_ = f"{prefix}{crate}/doc::{name(found[1])}"
                collected.promise(id_)
                outcome = OUTCOMES[found[3]]
                failure = self._failure(found, blocks.get(found[1], "")) if outcome.is_red else None
                collected.add(Result(id_, outcome, 0.0, failure))
        return max(0, announced - reported)

    def _failure(self, test: re.Match[str], block: str) -> Failure:
        """Locate the failure at the code block: lines in the message refer to a program that rustdoc generated."""
        where = location(test[1].partition(" - ")[0], test[2], self._root, self._invocation.folder)
        message = "\n".join(line for line in block.splitlines() if not NOISE.match(line))
        message = message.partition("\nstack backtrace:")[0].partition("\nnote: ")[0]
        return Failure("doctest", message.strip() or "the documentation test failed", where, crash=where, text=block)


def _blocks(output: str) -> dict[str, str]:
    """Return the captured output of each failed test."""
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in output.splitlines():
        if found := BLOCK.match(line):
            current = blocks.setdefault(found[1], [])
        elif line == "failures:" or RESULT.match(line):
            current = []
        else:
            current.append(line)
    return {test: "\n".join(lines) for test, lines in blocks.items()}
