"""The text of `cargo test --doc` as results: rustdoc has no JSON on a stable toolchain. Parses; starts nothing."""

from __future__ import annotations

import re
from typing import Any

from watchtest.core.model import Execution, Failure, Outcome, Result
from watchtest.runners.command_report import ResultCollector
from watchtest.runners.runner import Invocation, InvocationEnd
from watchtest.runners.untrusted import name, place, text

CRATE = re.compile(r"^\s+Doc-tests (\S+)$")
TEST = re.compile(r"^test (.+ \(line (\d{1,9})\)(?: - [a-z ]+)?) \.\.\. (ok|FAILED|ignored)(?:, .*)?$")
COUNT = re.compile(r"^running (\d+) tests?$")
RESULT = re.compile(r"^test result: ")
BLOCK = re.compile(r"^---- (.+) stdout ----$")
NO_LIBRARY = re.compile(r"^error: no library targets found in ", re.MULTILINE)
OUTCOMES = {"ok": Outcome.PASSED, "FAILED": Outcome.FAILED, "ignored": Outcome.SKIPPED}
NOISE = re.compile(r"^(Test executable failed.*|stderr:|stdout:|thread '.*|\s*)$")


class DoctestReader:
    """Of one `cargo test --doc`, read at its end: crates may share stdout, their invocation alone tells them apart."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        self._tool = tool
        self._invocation = invocation
        self._root = root

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        return frozenset(), ()

    def execution(self, end: InvocationEnd) -> Execution:
        collected = ResultCollector()
        said = text(end.output)
        if NO_LIBRARY.search(said):
            end = InvocationEnd(0, output=end.output, duration_s=end.duration_s)
        missing = self._read(said, collected)
        reason = "" if missing == 0 else f"{missing} documentation tests were not reported"
        if end.exit_code and not collected.has_red and not reason:
            errors = [line for line in said.splitlines() if line.startswith("error")]
            reason = errors[0] if errors else ""
        return collected.execution(end, self._tool, reason=reason, is_whole=missing == 0)

    def _read(self, said: str, collected: ResultCollector) -> int:
        """How many tests were announced and not report_of of."""
        crate, announced, report_of = "doc", 0, 0
        blocks = _blocks(said)
        prefix = f"{self._invocation.folder}/" if self._invocation.folder else ""
        for line in said.splitlines():
            if found := CRATE.match(line):
                crate = name(found[1])
            elif found := COUNT.match(line):
                announced += int(found[1]) if len(found[1]) < 9 else 0
            elif found := TEST.match(line):
                report_of += 1
                id_ = f"{prefix}{crate}/doc::{name(found[1])}"
                collected.promise(id_)
                outcome = OUTCOMES[found[3]]
                failure = self._failure(found, blocks.get(found[1], "")) if outcome.is_red else None
                collected.add(Result(id_, outcome, 0.0, failure))
        return max(0, announced - report_of)

    def _failure(self, test: re.Match[str], said: str) -> Failure:
        """Its lines are those of a program that rustdoc made: the place is that of the block."""
        where = place(test[1].partition(" - ")[0], test[2], self._root, self._invocation.folder)
        message = "\n".join(line for line in said.splitlines() if not NOISE.match(line))
        message = message.partition("\nstack backtrace:")[0].partition("\nnote: ")[0]
        return Failure("doctest", message.strip() or "the documentation test failed", where, crash=where, text=said)


def _blocks(said: str) -> dict[str, str]:
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in said.splitlines():
        if found := BLOCK.match(line):
            current = blocks.setdefault(found[1], [])
        elif line == "failures:" or RESULT.match(line):
            current = []
        else:
            current.append(line)
    return {test: "\n".join(lines) for test, lines in blocks.items()}
