"""Runs any command as a whole: its exit code counts as one test, or its JUnit XML lists the tests."""

from __future__ import annotations

from dataclasses import dataclass

from watchtest.core.model import Execution, Failure, Only, Outcome, Result
from watchtest.core.text import names
from watchtest.runners import runner
from watchtest.runners.command_report import ToolReader
from watchtest.runners.junit import InvalidJUnit, read_junit
from watchtest.runners.untrusted import text

WHOLE = "run"
SCRIPT = 'junit=$1; report=$2; shift 2; rm -f "$junit"; "$@"; code=$?; cat "$junit" >"$report" 2>/dev/null; exit $code'
"""Removes the report of an earlier run first, so that it cannot be taken for this one's."""
TAIL = 2000


@dataclass(frozen=True, slots=True)
class CommandRunner(runner.ToolRunner):
    """`command` is a shell command, or a list of arguments that is run without a shell."""

    name: str = "command"
    command: str | tuple[str, ...] = ()
    junit: str = ""
    """The path, relative to `folder`, of the JUnit XML that the command writes."""

    def invocations(self, tests: tuple[str, ...] | None) -> tuple[runner.Invocation, ...]:
        if isinstance(self.command, str):
            script = f'{self.command} "$@"' if self.args else self.command
            argv: tuple[str, ...] = ("sh", "-c", script, "sh", *self.args)
        else:
            argv = (*self.command, *self.args)
        if self.junit:
            argv = ("sh", "-c", SCRIPT, "sh", self.junit, runner.REPORT, *argv)
        return (runner.Invocation(argv, self.folder, self.env, tests=None if tests is None else frozenset(tests)),)

    def reader(self, invocation: runner.Invocation, root: str) -> CommandReader:
        return CommandReader(self.name, invocation, root, self.junit)

    def claims(self, test: str) -> bool:
        return test.partition("::")[0] == self.name

    async def narrow(self, change: runner.Change, execute: runner.Execute) -> Only:
        """Decide by the user's rules alone. The caller has already checked that no rule matches."""
        if all(where != self.name for _, _, where in change.rules):
            raise runner.Undecidable("the dependencies of a command are unknown; a rule in watch.rules can name them")
        return runner.proof((), [f"no rule names it for {names(change.paths)}"], change)


class CommandReader(ToolReader):
    """Reads the exit code or the JUnit XML of one command."""

    def __init__(self, tool: str, invocation: runner.Invocation, root: str, junit: str) -> None:
        super().__init__(tool, invocation, root)
        self._junit = junit

    def execution(self, end: runner.InvocationEnd) -> Execution:
        if not self._junit:
            return self._by_exit_code(end)
        if not end.report:
            reason = f"it wrote no {self._junit}" + (f" (exit code {end.exit_code})" if end.exit_code else "")
            return self._collected.execution(end, self._tool, reason=reason, is_whole=False)
        try:
            results = read_junit(end.report, self._tool, self._root, self._folder)
        except InvalidJUnit as error:
            return self._collected.execution(end, self._tool, reason=f"{self._junit}: {error}", is_whole=False)
        for result in results:
            self._collected.promise(result.test)
            self._collected.add(result)
        return self._collected.execution(end, self._tool)

    def _by_exit_code(self, end: runner.InvocationEnd) -> Execution:
        test = f"{self._tool}::{WHOLE}"
        is_ended = end.exit_code is not None and end.stopped is None
        if is_ended and end.exit_code not in (126, 127):
            self._collected.promise(test)
            output, failure = text(end.output), None
            if end.exit_code:
                message = f"exit code {end.exit_code}\n{output[-TAIL:]}".strip()
                failure = Failure("exit code", message, text=output)
            outcome = Outcome.FAILED if failure else Outcome.PASSED
            self._collected.add(Result(test, outcome, end.duration_s, failure))
        return self._collected.execution(end, self._tool, is_whole=is_ended, current="" if is_ended else test)
