"""Any command: its exit code is one test, or its JUnit XML tells the tests. It runs whole, or not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from watchtest.core.model import Execution, Failure, Only, Outcome, Result
from watchtest.runners.command_report import ResultCollector
from watchtest.runners.junit import Unreadable, read_junit
from watchtest.runners.runner import REPORT, Change, Execute, Invocation, InvocationEnd, Undecidable, proof, some_of
from watchtest.runners.untrusted import text

WHOLE = "run"
SCRIPT = 'junit=$1; report=$2; shift 2; rm -f "$junit"; "$@"; code=$?; cat "$junit" >"$report" 2>/dev/null; exit $code'
"""What is left of an earlier run must not be taken for this one's."""
TAIL = 2000


@dataclass(frozen=True, slots=True)
class CommandRunner:
    """`command` is a shell command, or words without a shell."""

    command: str | tuple[str, ...]
    name: str = "command"
    folder: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    junit: str = ""
    """Path, relative to `folder`, of the JUnit XML that the command writes."""

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[Invocation, ...]:
        if isinstance(self.command, str):
            argv: tuple[str, ...] = (
                "sh",
                "-c",
                f'{self.command} "$@"' if self.args else self.command,
                "sh",
                *self.args,
            )
        else:
            argv = (*self.command, *self.args)
        if self.junit:
            argv = ("sh", "-c", SCRIPT, "sh", self.junit, REPORT, *argv)
        return (Invocation(argv, self.folder, self.env, tests=None if tests is None else frozenset(tests)),)

    def reader(self, invocation: Invocation, root: str) -> CommandReader:
        return CommandReader(self.name, invocation, root, self.junit)

    def claims(self, test: str) -> bool:
        return test.partition("::")[0] == self.name

    async def narrow(self, change: Change, execute: Execute) -> Only:
        """By the user's rules alone, and those that match have been obeyed before it is asked."""
        if all(where != self.name for _, _, where in change.rules):
            raise Undecidable("nobody can tell what a command depends on; a rule in watch.rules may name it")
        return proof((), [f"no rule names it for {some_of(change.paths)}"], change)


class CommandReader:
    """Of one command, read at its end."""

    def __init__(self, name: str, invocation: Invocation, root: str, junit: str) -> None:
        self._name = name
        self._invocation = invocation
        self._root = root
        self._junit = junit

    def take(self, rows: list[dict[str, Any]]) -> tuple[frozenset[str], tuple[Result, ...]]:
        return frozenset(), ()

    def execution(self, end: InvocationEnd) -> Execution:
        collected = ResultCollector()
        if not self._junit:
            return self._by_exit_code(end, collected)
        if not end.report:
            reason = f"it wrote no {self._junit}" + (f" (exit code {end.exit_code})" if end.exit_code else "")
            return collected.execution(end, self._name, reason=reason, is_whole=False)
        try:
            results = read_junit(end.report, self._name, self._root, self._invocation.folder)
        except Unreadable as error:
            return collected.execution(end, self._name, reason=f"{self._junit}: {error}", is_whole=False)
        for result in results:
            collected.promise(result.test)
            collected.add(result)
        return collected.execution(end, self._name)

    def _by_exit_code(self, end: InvocationEnd, collected: ResultCollector) -> Execution:
        test = f"{self._name}::{WHOLE}"
        if end.exit_code is not None and end.stopped is None and end.exit_code not in (126, 127):
            collected.promise(test)
            said = text(end.output)
            failure = Failure("exit code", f"exit code {end.exit_code}\n{said[-TAIL:]}".strip(), text=said)
            is_green = end.exit_code == 0
            outcome = Outcome.PASSED if is_green else Outcome.FAILED
            collected.add(Result(test, outcome, end.duration_s, None if is_green else failure))
        is_ended = end.exit_code is not None and end.stopped is None
        return collected.execution(end, self._name, is_whole=is_ended, current="" if is_ended else test)
