"""Executes the tests of one run in a prepared box: all runners in turn, warm if that is safe, failures confirmed."""

from __future__ import annotations

import asyncio
import functools
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from watchtest.agent.in_pytest.pytest_command import NO_PYTEST, WARM_NOT_READY
from watchtest.boxes import protocols
from watchtest.boxes.channel import FREE_DISK_HINT
from watchtest.boxes.environment import Environment
from watchtest.core.events import ConfirmationBegan, Post, StartRun, TestsCollected, TestsEnded
from watchtest.core.model import All, Execution, Only, Result, Run, Selection, Snapshot, StopReason
from watchtest.core.policy import file_order
from watchtest.core.text import names
from watchtest.core.verdict import PYTEST_NO_TESTS, judge
from watchtest.core.warm_check import (
    confirms,
    doubtful_tests,
    passes_again,
    red_only_when_warm,
    red_tests,
    with_confirmed,
)
from watchtest.errors import ChannelLost, DiskFull, RunnerError, RunOverdue
from watchtest.runners.merge import merge
from watchtest.runners.python import PytestReader, PytestRunner, PythonRunner, UnittestRunner
from watchtest.runners.registry import AnyRunner
from watchtest.runners.runner import Invocation, InvocationEnd, ReportReader
from watchtest.selection import by_runner
from watchtest.selection.recorded_rows import RecordingRows
from watchtest.selection.selector import SelectionInput, Selector

log = logging.getLogger(__name__)
LOSSES_TO_BLAME = 3
DAMAGED = "the tests have changed or removed a file of the box itself"
BATCH_S = 0.05
"""Results are posted in batches: a new state per test would cost more than the test."""
PYTEST_USAGE = 4
QUERY_LIMIT_S = 60.0
"""The time limit when a runner queries its tool for dependencies."""

Warm = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class RunContext:
    """What a run is about: its snapshot, the box that holds it, and what the lane knew before."""

    session: protocols.BoxSession
    snapshot: Snapshot
    generation: int
    python: str
    environment: str
    """The name of the environment; whether warm runs can be trusted depends on it."""
    start: StartRun
    changed: frozenset[str]
    """The paths that differ from the last judged tree."""
    post: Post
    note: protocols.Note
    signal: protocols.StopSignal
    selection_input: SelectionInput
    condemn: Callable[[str], None] = lambda _reason: None
    """Has the box replaced before the next run, for this reason."""

    @property
    def run(self) -> Run:
        return self.start.run


@dataclass(slots=True)
class RepeatedLosses:
    """Counts how often in a row the box was lost while the same test was running, until that test is to blame.

    The engine, the user or another watcher may take the box away, too; then the run is simply repeated.
    """

    tree: str = ""
    tests: list[str] = field(default_factory=list)
    """The test that was running at each loss, as far as it is known."""

    def learn(self, context: RunContext) -> None:
        """Take over what the new agent has found out about the last loss."""
        if self.tree == context.snapshot.id and self.tests and context.session.lost_in:
            self.tests[-1] = context.session.lost_in
        context.session.lost_in = ""

    def forget(self) -> None:
        self.tests.clear()

    def judge(
        self,
        lost: ChannelLost,
        context: RunContext,
        reports: ReportReader,
        limits: protocols.JobLimits,
        duration_s: float,
    ) -> protocols.JobResult:
        """Return the result of a run that has ended or stopped its own box. Raises `lost` if that is not proved."""
        if context.signal.reason:
            raise lost
        current = reports.current if isinstance(reports, PytestReader) else ""
        knows_tests = isinstance(reports, PytestReader)
        stopped, reason = None, ""
        if isinstance(lost, RunOverdue):
            stopped = "timed_out"
            reason = f"the run took longer than {limits.run_s:g} s and could not be stopped: the box was killed"
        elif context.session.channel.was_stopped:
            reason = "the tests keep stopping the processes of the box: the box was killed"
        else:
            if self.tree != context.snapshot.id:
                self.tree, self.tests = context.snapshot.id, []
            self.tests.append(current)
            recent = self.tests[-LOSSES_TO_BLAME:]
            if not knows_tests or len(recent) < LOSSES_TO_BLAME or len(set(recent[:-1])) > 1:
                raise lost  # which test was running at the last one is not known for sure
            current = recent[0]
            where = "in this test" if current else "before the first test"
            reason = f"the processes of the box ended {LOSSES_TO_BLAME} times in a row {where}"
        self.forget()
        return protocols.JobResult(None, stopped, reason, "", "", duration_s, current=current)


@dataclass(slots=True)
class TestExecutor:
    """Selects and executes the tests of one lane, and remembers whether warm runs in its box can be trusted."""

    environment: Environment
    limits: protocols.JobLimits
    warm: Warm
    choose: Callable[[Snapshot], tuple[AnyRunner, ...]]
    """Returns the runners for a snapshot; blocks."""
    selector: Selector
    """Learns from every run what the tests depend on."""
    is_given: bool = False
    """The user has configured the runners, so each of them must run. The tool of a detected runner may be missing."""
    _trusted: set[str] = field(default_factory=set)
    """Environments in which a cold run has confirmed a warm one."""
    _unsound: set[str] = field(default_factory=set)
    """Environments in which a cold run has contradicted a warm one."""
    _hung: set[str] = field(default_factory=set)
    """Environments in which the last run was warm and hung: the next one is cold, to see whether that helps."""
    _noted: set[str] = field(default_factory=set)
    _trials: by_runner.TriedEnvironments = field(default_factory=by_runner.TriedEnvironments)
    _losses: RepeatedLosses = field(default_factory=RepeatedLosses)
    _lacking: set[tuple[str, str]] = field(default_factory=set)
    """Pairs of an environment and a runner whose tool is missing there. Runs of all tests try it again."""

    async def select(self, context: RunContext) -> Selection:
        """Return the tests that must run, with a proof that the others need not.

        Python tests are selected by their recorded dependencies; other runners query their tools.
        """
        inputs = context.selection_input
        is_as_before = self._trials.are_as_before(inputs)
        self._trials.add(inputs)
        runners = await asyncio.to_thread(self.choose, context.snapshot)
        others = [runner for runner in runners if not isinstance(runner, PythonRunner)]
        if not others or inputs.base is None or not self.selector.is_recording:
            return await self.selector.select(inputs)
        python = [runner for runner in runners if isinstance(runner, PythonRunner)]
        # With a plugin, pytest may find tests in files of any type.
        default = python[0].name if python else by_runner.NOBODY
        owned = by_runner.group_by_runner(runners, inputs.known_tests | inputs.must_run, default)
        if owned[by_runner.NOBODY]:
            return All(because=f"there is no longer a runner for {names(owned[by_runner.NOBODY])}")
        parts: list[by_runner.RunnerSelection] = []
        if python:
            known = frozenset[str]().union(*(owned[runner.name] for runner in python))
            own = replace(inputs, known_tests=known, must_run=inputs.must_run & known)
            selection = await self.selector.select(own)
            parts.append(by_runner.RunnerSelection(tuple(one.name for one in python), known, selection))
        for runner in others:
            known = owned[runner.name]
            if (context.environment, runner.name) in self._lacking and not known:
                continue
            if is_as_before:
                change = by_runner.change_of(
                    inputs.base, inputs.snapshot, known, self.environment.root, self.selector.patterns
                )
                ask = functools.partial(self._query, context)
                parts.append(await by_runner.select_for_runner(runner, change, ask))
            else:
                unknown = All(because="its tests have not run in this environment yet")
                parts.append(by_runner.RunnerSelection((runner.name,), known, unknown))
        return by_runner.join_selections(parts, inputs.must_run) if parts else All(because="no test tool is available")

    async def _query(self, context: RunContext, invocation: Invocation) -> InvocationEnd:
        """Run a command in the box by which a runner finds out what a change affects."""
        if context.signal.is_set:
            return InvocationEnd(None, stopped="cancelled", reason="the run was stopped")
        limit_s = min(QUERY_LIMIT_S, self.limits.run_s)
        limits = protocols.JobLimits(limit_s, limit_s, self.limits.grace_s)
        variables = {**self.environment.variables, **invocation.env}
        what = protocols.Command(invocation.argv, invocation.folder)
        job = protocols.JobSpec(what, limits, variables, self.environment.path_first, requires=context.generation)
        end = await context.session.run(job, lambda _rows: None, lambda _text: None, context.signal.job_stops)
        return _invocation_end(end)

    async def execute(self, context: RunContext) -> Execution:
        """Run the selected tests with all runners and return what they reported."""
        self._trials.add(context.selection_input)
        runners = await asyncio.to_thread(self.choose, context.snapshot)
        run = context.run
        context.post(TestsCollected(run.lane, time.time(), run.id, frozenset()))
        executions: list[Execution] = []
        missing: list[RunnerError] = []
        first = next((runner for runner in runners if isinstance(runner, PytestRunner)), None)
        for runner, tests in _shares(runners, run):
            # There is only one warm process.
            may_be_warm = runner is first and context.environment not in self._unsound | self._hung
            try:
                async for execution in self._executions(runner, tests, context, may_be_warm):
                    executions.append(replace(execution, runner=runner.name if len(runners) > 1 else ""))
                    if execution.stopped is not None:
                        whole = merge(executions)
                        # The remaining runners have not collected their tests.
                        return whole if len(runners) == 1 else replace(whole, has_collected=False)
                self._lacking.discard((context.environment, runner.name))
            except RunnerError as error:
                if self.is_given or len(runners) == 1:
                    raise
                missing.append(error)
                self._lacking.add((context.environment, runner.name))
                self._note_once(
                    f"{runner.name} cannot run, although the project has tests for it: {error}", context.note
                )
        if not executions and missing:
            raise missing[0]
        return _marked_if_needless(merge(executions), run)

    async def _executions(
        self, runner: AnyRunner, tests: tuple[str, ...] | None, context: RunContext, may_be_warm: bool
    ) -> AsyncIterator[Execution]:
        """Yield one execution per command, as long as the caller wants more."""
        match runner:
            case PytestRunner():
                yield await self._pytest(runner, tests, context, may_be_warm)
            case UnittestRunner():
                recording = self.selector.is_recording
                command = protocols.UnittestCommand(context.python, runner.args, tests, runner.folder, recording)
                yield (await self._run_job(command, PytestReader("unittest"), context, runner.env))[0]
            case _:
                for invocation in runner.invocations(tests):
                    what = protocols.Command(invocation.argv, invocation.folder, invocation.has_rows)
                    reader = runner.reader(invocation, self.environment.root)
                    yield (await self._run_job(what, reader, context, invocation.env))[0]

    # -- pytest: warm runs and their confirmation ----------------------------------------------------

    async def _pytest(
        self, runner: PytestRunner, tests: tuple[str, ...] | None, context: RunContext, may_be_warm: bool
    ) -> Execution:
        only = context.run.selection if isinstance(context.run.selection, Only) else None
        command = protocols.PytestCommand(
            context.python,
            runner.arguments,
            tests,
            runner.folder,
            order=file_order(context.start.latest_results, context.changed),
            is_warm=may_be_warm and self.warm != "off",
            record=self.selector.is_recording,
            first=only.first if only else (),
            collects_all=only is not None and only.collects_all,
        )
        execution, end = await self._run_job(command, PytestReader(), context, runner.env)
        if end.exit_code == NO_PYTEST and not execution.promised:
            raise RunnerError(
                f"pytest is not installed in the box ({context.python})",
                hint="`watchtest exec -- pip install pytest`, or add that command to box.setup",
            )
        if runner.workers > 1 and end.exit_code == PYTEST_USAGE and "-n" in end.output:
            raise RunnerError(
                f"runner.workers = {runner.workers} needs pytest-xdist, which is not in the box",
                hint="`watchtest exec -- pip install pytest-xdist`, or add it to the project's test dependencies",
            )
        if end.cold_because:
            self._report_cold_start(end.cold_because, context.note)
        self._hung.discard(context.environment)
        if end.is_warm and execution.stopped is StopReason.TIMED_OUT:
            self._hung.add(context.environment)
        return await self._confirm_failures(runner, command, execution, context) if end.is_warm else execution

    def _report_cold_start(self, reason: str, note: protocols.Note) -> None:
        """Report a cold start: every time with `warm = "on"`, otherwise once per reason unless it is just startup."""
        log.info("cold start: %s", reason)
        text = f"cold start: {reason}"
        if self.warm == "on":
            note(text)
        elif reason != WARM_NOT_READY:
            self._note_once(text, note)

    def _note_once(self, text: str, note: protocols.Note) -> None:
        if text not in self._noted:
            self._noted.add(text)
            note(text)

    async def _confirm_failures(
        self, runner: PytestRunner, command: protocols.PytestCommand, warm: Execution, context: RunContext
    ) -> Execution:
        """Repeat failures that the warm process may have caused in a fresh process, whose results count."""
        is_trusted = context.environment in self._trusted
        tests = doubtful_tests(warm, context.start.knowledge.results, is_trusted)
        if tests == () or warm.stopped is not None:
            return warm
        log.info("run %s: %s again in a fresh process", context.run.id, "all" if tests is None else f"{len(tests)}")
        context.post(ConfirmationBegan(context.run.lane, time.time(), context.run.id, len(red_tests(warm)) or 1))
        if tests is not None:
            some = replace(command, tests=tests, is_warm=False)
            cold, _ = await self._run_job(some, PytestReader(), context, runner.env, is_check=True)
            if cold.stopped is not None:
                return replace(cold, has_collected=False)  # this run collected only the doubtful tests
            settled = with_confirmed(warm, cold)
            if settled is not None:
                self._trusted.add(context.environment)
                return settled
        # Tests that pass alone may fail together with others, so the same run is repeated in a fresh process.
        again = replace(command, is_warm=False)
        cold, _ = await self._run_job(again, PytestReader(), context, runner.env, is_check=True)
        only_warm = red_only_when_warm(warm, cold)
        if cold.stopped is None and confirms(cold, warm):
            self._trusted.add(context.environment)
        elif cold.stopped is None and not context.signal.is_set:
            if await self._is_flaky(runner, command, only_warm, context):
                return replace(cold, by_chance=only_warm)
            if not context.signal.is_set:
                self._report_unsound_warm_run(only_warm, warm, context)
        return cold

    async def _is_flaky(
        self, runner: PytestRunner, command: protocols.PytestCommand, only_warm: tuple[str, ...], context: RunContext
    ) -> bool:
        """Return whether the tests that failed only when warm pass in a second warm run, so that they are flaky."""
        unseen = replace(
            context, post=lambda _event: None
        )  # this run checks watchtest itself, so its results are not shown
        again, end = await self._run_job(command, PytestReader(), unseen, runner.env)
        is_flaky = end.is_warm and passes_again(again, only_warm)
        if is_flaky:
            context.note(f"flaky: {_names(only_warm)} failed, and passed when the same run was repeated")
        return is_flaky

    def _report_unsound_warm_run(self, only_warm: tuple[str, ...], warm: Execution, context: RunContext) -> None:
        self._unsound.add(context.environment)
        context.note(
            f"a bug in watchtest: {_names(only_warm)} failed in a warm run and not in a cold one. The cold run counts,"
            " and runs stay cold until the environment changes. Please report it; the log has the details"
        )
        if not only_warm:
            log.warning("broken only when warm: %s\n%s", judge(warm).reason, warm.raw_output)
        for test in only_warm:
            result = warm.results.get(test)
            text = result.failure.text if result is not None and result.failure is not None else warm.reason
            log.warning("red only when warm: %s\n%s", test, text)

    # -- one command in the box ------------------------------------------------------------------------

    async def _run_job(
        self,
        what: protocols.Command | protocols.PytestCommand | protocols.UnittestCommand,
        reports: ReportReader,
        context: RunContext,
        env: Mapping[str, str] = MappingProxyType({}),
        *,
        is_check: bool = False,
    ) -> tuple[Execution, protocols.JobResult]:
        run = context.run
        if context.signal.reason and context.signal.job_stops.empty():
            # An earlier job of this run received the stop request and finished anyway; this one must not run.
            context.signal.job_stops.put_nowait(context.signal.reason is StopReason.KILLED)
        variables = {**self.environment.variables, **env}
        job = protocols.JobSpec(what, self.limits, variables, self.environment.path_first, requires=context.generation)
        recordings = RecordingRows()
        with ExitStack() as stack:
            batch = _Batch(run, context.post, is_check)
            stack.callback(batch.flush)

            def take(rows: list[dict[str, Any]]) -> None:
                recordings.take(rows)
                promised, results = reports.take(rows)
                if promised:
                    context.post(TestsCollected(run.lane, time.time(), run.id, promised))
                batch.add(results)

            began, has_lost_box = time.monotonic(), False
            self._losses.learn(context)
            try:
                end = await context.session.run(job, take, lambda _text: None, context.signal.job_stops)
                self._losses.forget()
            except ChannelLost as lost:
                end = self._losses.judge(lost, context, reports, self.limits, time.monotonic() - began)
                has_lost_box = True
            self.selector.end(context.selection_input, recordings)
            execution = reports.execution(_invocation_end(end))
            execution = replace(execution, has_lost_box=has_lost_box)
            if end.damage:
                context.note(f"{DAMAGED}: {end.damage}")
                context.condemn(f"{DAMAGED} ({end.damage})")
            batch.add(tuple(result for test, result in execution.results.items() if test not in batch.seen))
        if end.full_disk and end.exit_code != 0:
            # The failures may be caused by the full disk, not by the code.
            raise DiskFull(
                f"the disk of the box is full ({end.full_disk}), so the run proves nothing", hint=FREE_DISK_HINT
            )
        return execution, end


def _marked_if_needless(execution: Execution, run: Run) -> Execution:
    """Mark the execution as needless if none of the tests of a proven selection exists any more."""
    is_proof = isinstance(run.selection, Only) and run.selection.is_proof
    is_empty = execution.exit_code == PYTEST_NO_TESTS and not execution.promised and not execution.collection_errors
    return replace(execution, is_needless=True) if is_proof and is_empty and execution.has_collected else execution


def _shares(runners: tuple[AnyRunner, ...], run: Run) -> Iterator[tuple[AnyRunner, tuple[str, ...] | None]]:
    """Yield each runner with its tests. Unclaimed tests go to a Python runner, or else to the first one."""
    if not isinstance(run.selection, Only):
        yield from ((runner, None) for runner in runners)
        return
    shares: dict[int, list[str]] = {}
    default = next((index for index, runner in enumerate(runners) if isinstance(runner, PythonRunner)), 0)
    for test in run.selection.tests:
        owner = next((index for index, runner in enumerate(runners) if runner.claims(test)), default)
        shares.setdefault(owner, []).append(test)
    for index, runner in enumerate(runners):
        if runner.name in run.selection.whole:
            yield runner, None
        elif index in shares:
            yield runner, tuple(shares[index])


def _names(tests: tuple[str, ...]) -> str:
    return names(tests) if tests else "the whole run"


def _invocation_end(end: protocols.JobResult) -> InvocationEnd:
    return InvocationEnd(
        exit_code=end.exit_code,
        stopped=end.stopped,
        reason=end.reason,
        output=end.output,
        stacks=end.stacks,
        duration_s=end.duration_s,
        current=end.current,
        report=end.report,
    )


class _Batch:
    """Collects results and posts them after at most BATCH_S."""

    def __init__(self, run: Run, post: Post, is_check: bool) -> None:
        self._run = run
        self._post = post
        self._is_check = is_check
        self._waiting: list[Result] = []
        self._timer: asyncio.TimerHandle | None = None
        self.seen: set[str] = set()

    def add(self, results: tuple[Result, ...]) -> None:
        self._waiting += results
        self.seen.update(result.test for result in results)
        if any(result.outcome.is_red for result in results):
            self.flush()  # failures are shown immediately
        elif self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            results, self._waiting = tuple(self._waiting), []
            self._post(TestsEnded(self._run.lane, time.time(), self._run.id, results, self._is_check))
