"""The tests of one run, in a box that is ready: every runner in its turn, warm where that is safe, red made sure of."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal

from watchtest.agent.in_pytest.pytest_command import WARM_NOT_READY
from watchtest.boxes.channel import FREE_DISK_HINT
from watchtest.boxes.environment import Environment
from watchtest.boxes.protocols import (
    BoxSession,
    Command,
    JobLimits,
    JobResult,
    JobSpec,
    Note,
    PytestCommand,
    StopSignal,
    UnittestCommand,
)
from watchtest.core.events import Post, StartRun, TestsCollected, TestsEnded
from watchtest.core.merge import merge
from watchtest.core.model import All, Execution, Only, Result, Run, Selection, Snapshot, StopReason
from watchtest.core.policy import file_order
from watchtest.core.verdict import judge
from watchtest.core.warm_check import confirms, doubtful_tests, passes_again, red_only_when_warm, with_confirmed
from watchtest.errors import DiskFull, RunnerError
from watchtest.runners.pytest import NO_PYTEST, PytestRunner
from watchtest.runners.registry import AnyRunner
from watchtest.runners.runner import Invocation, InvocationEnd, ReportReader, Runner
from watchtest.runners.unittest import UnittestRunner
from watchtest.selection.by_runner import (
    NOBODY,
    RunnerSelection,
    TriedEnvironments,
    change_of,
    group_by_runner,
    join_selections,
    select_for_runner,
)
from watchtest.selection.recorded_rows import RecordingRows
from watchtest.selection.selector import SelectionInput, Selector

log = logging.getLogger(__name__)
BATCH_S = 0.05
"""Results are handed on in batches: a state a test would cost more than the test."""
NAMES_SHOWN = 3
PYTEST_USAGE = 4
ASKING_LIMIT_S = 60.0
"""For a question about what depends on what."""
NO_TESTS = 5

Warm = Literal["auto", "on", "off"]


@dataclass(frozen=True, slots=True)
class RunContext:
    """One run, in a box at its very snapshot."""

    session: BoxSession
    snapshot: Snapshot
    generation: int
    python: str
    environment: str
    """The name of the environment: what was found out about warm runs holds for it."""
    start: StartRun
    changed: frozenset[str]
    """What differs from the tree of the last verdict."""
    post: Post
    note: Note
    wish: StopSignal
    selection_input: SelectionInput
    """What a selection goes by."""

    @property
    def run(self) -> Run:
        return self.start.run


@dataclass(slots=True)
class TestExecutor:
    """The runners of one lane, and what is known of warm runs in its box."""

    root: str
    """Where the workspace lies in the box, as seen from inside."""
    environment: Environment
    limits: JobLimits
    warm: Warm
    choose: Callable[[Snapshot], tuple[AnyRunner, ...]]
    """The runners of a workspace in this state; blocking."""
    selector: Selector
    """Learns from every run what its tests touch."""
    is_given: bool = False
    """The user has named the runners: each of them has to run. One that was only found may lack its tool."""
    _trusted: set[str] = field(default_factory=set)
    """Environments in which a cold run has confirmed a warm one."""
    _unsound: set[str] = field(default_factory=set)
    """Environments in which one has not."""
    _hung: set[str] = field(default_factory=set)
    """Environments in which the last run hung, and was a warm one: the next shows whether that was the reason."""
    _said: set[str] = field(default_factory=set)
    _trials: TriedEnvironments = field(default_factory=TriedEnvironments)
    _lacking: set[tuple[str, str]] = field(default_factory=set)
    """Environments, each with the name of a runner whose tool is not there. Runs of everything try it again."""

    async def select(self, context: RunContext) -> Selection:
        """What has to run; a proof that all the others need not. The Python tests by what was recorded of them."""
        inputs = context.selection_input
        is_as_before = self._trials.are_as_before(inputs)
        self._trials.add(inputs)
        runners = await asyncio.to_thread(self.choose, context.snapshot)
        others = [runner for runner in runners if not isinstance(runner, PytestRunner | UnittestRunner)]
        if not others or inputs.base is None or not self.selector.is_recording:
            return await self.selector.select(inputs)
        python = [runner for runner in runners if isinstance(runner, PytestRunner | UnittestRunner)]
        # Files of any kind may hold tests for Python, by a plugin.
        owned = group_by_runner(runners, inputs.known | inputs.must_run, python[0].name if python else NOBODY)
        if owned[NOBODY]:
            return All(because=f"no runner is there any more for {_names(tuple(sorted(owned[NOBODY])))}")
        parts: list[RunnerSelection] = []
        if python:
            known = frozenset[str]().union(*(owned[runner.name] for runner in python))
            own = replace(inputs, known=known, must_run=inputs.must_run & known)
            parts.append(RunnerSelection(tuple(one.name for one in python), known, await self.selector.select(own)))
        for runner in others:
            change = change_of(inputs.base, inputs.snapshot, owned[runner.name], self.root, self.selector.patterns)
            if (context.environment, runner.name) in self._lacking and not change.known:
                continue
            if is_as_before:
                parts.append(
                    await select_for_runner(runner, change, lambda invocation: self._asked(invocation, context))
                )
            else:
                unknown = All(because="nothing is known yet of its tests in this environment")
                parts.append(RunnerSelection((runner.name,), change.known, unknown))
        return join_selections(parts, inputs.must_run) if parts else All(because="no tool is there to run a test")

    async def _asked(self, invocation: Invocation, context: RunContext) -> InvocationEnd:
        """A question of a runner, put to the box before the tests run."""
        if context.wish.is_set:
            return InvocationEnd(None, stopped="cancelled", reason="the run was stopped")
        limit_s = min(ASKING_LIMIT_S, self.limits.run_s)
        limits = JobLimits(limit_s, limit_s, self.limits.grace_s)
        variables = {**self.environment.variables, **invocation.env}
        what = Command(invocation.argv, invocation.folder)
        job = JobSpec(what, limits, variables, self.environment.path_first, requires=context.generation)
        end = await context.session.run(job, lambda _rows: None, lambda _text: None, context.wish.job_stops)
        return _ended(end)

    async def execute(self, context: RunContext) -> Execution:
        """Everything that the runners said, believed by nobody yet."""
        self._trials.add(context.selection_input)
        runners = await asyncio.to_thread(self.choose, context.snapshot)
        run = context.run
        context.post(TestsCollected(run.lane, time.time(), run.id, frozenset()))
        executions: list[Execution] = []
        missing: list[RunnerError] = []
        first = next((runner for runner in runners if isinstance(runner, PytestRunner)), None)
        for runner, tests in _shares(runners, run):
            # There is one process to fork from.
            may_be_warm = runner is first and context.environment not in self._unsound | self._hung
            try:
                async for execution in self._all_of(runner, tests, context, may_be_warm):
                    executions.append(replace(execution, runner=runner.name if len(runners) > 1 else ""))
                    if execution.stopped is not None:
                        whole = merge(executions)
                        # What the runners behind it would have found, nobody knows.
                        return whole if len(runners) == 1 else replace(whole, has_collected=False)
                self._lacking.discard((context.environment, runner.name))
            except RunnerError as error:
                if self.is_given or len(runners) == 1:
                    raise
                missing.append(error)
                self._lacking.add((context.environment, runner.name))
                self._say_once(
                    f"{runner.name} does not run, though the project has tests for it: {error}", context.note
                )
        if not executions and missing:
            raise missing[0]
        return _or_needless(merge(executions), run)

    async def _all_of(
        self, runner: AnyRunner, tests: tuple[str, ...] | None, context: RunContext, may_be_warm: bool
    ) -> AsyncIterator[Execution]:
        """One a command; who has heard enough asks for no more."""
        match runner:
            case PytestRunner():
                yield await self._pytest(runner, tests, context, may_be_warm)
            case UnittestRunner():
                wish = UnittestCommand(context.python, runner.args, tests, runner.folder, self.selector.is_recording)
                yield (await self._one(wish, runner.reader(), context, runner.env))[0]
            case _:
                for invocation in runner.invocations(tests):
                    yield await self._command(runner, invocation, context)

    async def _command(self, runner: Runner, invocation: Invocation, context: RunContext) -> Execution:
        what = Command(invocation.argv, invocation.folder, invocation.has_rows)
        return (await self._one(what, runner.reader(invocation, self.root), context, invocation.env))[0]

    # -- pytest: warm, and sure ----------------------------------------------------------------------

    async def _pytest(
        self, runner: PytestRunner, tests: tuple[str, ...] | None, context: RunContext, may_be_warm: bool
    ) -> Execution:
        wish = PytestCommand(
            context.python,
            runner.arguments,
            tests,
            runner.folder,
            order=file_order(context.start.latest_results, context.changed),
            is_warm=may_be_warm and self.warm != "off",
            record=self.selector.is_recording,
            first=_first(context.run),
            collects_all=_collects_all(context.run),
        )
        execution, end = await self._one(wish, runner.reader(), context, runner.env)
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
            self._say_why_cold(end.cold_because, context.note)
        self._hung.discard(context.environment)
        if end.is_warm and execution.stopped is StopReason.TIMED_OUT:
            self._hung.add(context.environment)
        return await self._made_sure(runner, wish, execution, context) if end.is_warm else execution

    def _say_why_cold(self, reason: str, note: Note) -> None:
        """Every time to those who insist; else once each, and that a process is getting ready is not worth a word."""
        log.info("a cold run: %s", reason)
        text = f"a cold run, slower than need be: {reason}"
        if self.warm == "on":
            note(text)
        elif reason != WARM_NOT_READY:
            self._say_once(text, note)

    def _say_once(self, text: str, note: Note) -> None:
        if text not in self._said:
            self._said.add(text)
            note(text)

    async def _made_sure(
        self, runner: PytestRunner, wish: PytestCommand, warm: Execution, context: RunContext
    ) -> Execution:
        """Red that could be of our own making is only red when a fresh process says so, too."""
        is_trusted = context.environment in self._trusted
        tests = doubtful_tests(warm, context.start.knowledge.results, is_trusted)
        if tests == () or warm.stopped is not None:
            return warm
        log.info("run %s: %s again in a fresh process", context.run.id, "all" if tests is None else f"{len(tests)}")
        if tests is not None:
            some = replace(wish, tests=tests, is_warm=False)
            cold, _ = await self._one(some, runner.reader(), context, runner.env, is_check=True)
            if cold.stopped is not None:
                return replace(cold, has_collected=False)  # it was to look for a few of the tests
            settled = with_confirmed(warm, cold)
            if settled is not None:
                self._trusted.add(context.environment)
                return settled
        # What passes by itself may still fail among the others: only the same run in a fresh process can tell.
        again = replace(wish, is_warm=False)
        cold, _ = await self._one(again, runner.reader(), context, runner.env, is_check=True)
        only_warm = red_only_when_warm(warm, cold)
        if cold.stopped is None and confirms(cold, warm):
            self._trusted.add(context.environment)
        elif cold.stopped is None and not context.wish.is_set:
            if await self._is_by_chance(runner, wish, only_warm, context):
                return replace(cold, by_chance=only_warm)
            if not context.wish.is_set:
                self._admit(only_warm, warm, context)
        return cold

    async def _is_by_chance(
        self, runner: PytestRunner, wish: PytestCommand, only_warm: tuple[str, ...], context: RunContext
    ) -> bool:
        """Whether warmth is not to blame: what failed passes in another run that is just as warm."""
        unseen = replace(context, post=lambda _event: None)  # it says something of us, and nothing of the code
        again, end = await self._one(wish, runner.reader(), unseen, runner.env)
        is_by_chance = end.is_warm and passes_again(again, only_warm)
        if is_by_chance:
            context.note(f"flaky: {_names(only_warm)} failed, and passed when the same run was repeated")
        return is_by_chance

    def _admit(self, only_warm: tuple[str, ...], warm: Execution, context: RunContext) -> None:
        self._unsound.add(context.environment)
        context.note(
            f"a defect of watchtest: {_names(only_warm)} failed in a warm run and not in a cold one; the cold one"
            " counts, and runs stay cold until the environment changes. Please report it: the log has the details"
        )
        if not only_warm:
            log.warning("broken only when warm: %s\n%s", judge(warm).reason, warm.raw_output)
        for test in only_warm:
            result = warm.results.get(test)
            text = result.failure.text if result is not None and result.failure is not None else warm.reason
            log.warning("red only when warm: %s\n%s", test, text)

    # -- one command in the box ------------------------------------------------------------------------

    async def _one(
        self,
        what: Command | PytestCommand | UnittestCommand,
        reports: ReportReader,
        context: RunContext,
        env: Mapping[str, str] = MappingProxyType({}),
        *,
        is_check: bool = False,
    ) -> tuple[Execution, JobResult]:
        run = context.run
        if context.wish.stop and context.wish.job_stops.empty():
            # It was taken by a job that came to its end all the same; the run is not to go on with another.
            context.wish.job_stops.put_nowait(context.wish.stop is StopReason.KILLED)
        variables = {**self.environment.variables, **env}
        job = JobSpec(what, self.limits, variables, self.environment.path_first, requires=context.generation)
        recordings = RecordingRows()
        with _batches(run, context.post, is_check) as batch:

            def take(rows: list[dict[str, Any]]) -> None:
                recordings.take(rows)
                promised, results = reports.take(rows)
                if promised:
                    context.post(TestsCollected(run.lane, time.time(), run.id, promised))
                batch.add(results)

            end = await context.session.run(job, take, lambda _text: None, context.wish.job_stops)
            self.selector.end(context.selection_input, recordings)
            execution = reports.execution(_ended(end))
            batch.add(tuple(result for test, result in execution.results.items() if test not in batch.seen))
        if end.full_disk and end.exit_code != 0:
            # Whatever is red now may be so for want of room; that is not the code's fault.
            raise DiskFull(
                f"no room is left in the box, in {end.full_disk}: the run proves nothing", hint=FREE_DISK_HINT
            )
        return execution, end


def _or_needless(execution: Execution, run: Run) -> Execution:
    """Of what was selected for sure nothing is there any more: then there is nothing to run."""
    is_proof = isinstance(run.selection, Only) and run.selection.is_proof
    is_empty = execution.exit_code == NO_TESTS and not execution.promised and not execution.collection_errors
    return replace(execution, is_needless=True) if is_proof and is_empty and execution.has_collected else execution


def _first(run: Run) -> tuple[str, ...]:
    return run.selection.first if isinstance(run.selection, Only) else ()


def _collects_all(run: Run) -> bool:
    return isinstance(run.selection, Only) and run.selection.collects_all


def _shares(runners: tuple[AnyRunner, ...], run: Run) -> Iterator[tuple[AnyRunner, tuple[str, ...] | None]]:
    """Each runner with the tests that are its own. What nobody claims goes to Python, or to the first, to be missed."""
    if not isinstance(run.selection, Only):
        yield from ((runner, None) for runner in runners)
        return
    shares: dict[int, list[str]] = {}
    heir = next((index for index, runner in enumerate(runners) if isinstance(runner, PytestRunner | UnittestRunner)), 0)
    for test in run.selection.tests:
        owner = next((index for index, runner in enumerate(runners) if runner.claims(test)), heir)
        shares.setdefault(owner, []).append(test)
    for index, runner in enumerate(runners):
        if runner.name in run.selection.whole:
            yield runner, None
        elif index in shares:
            yield runner, tuple(shares[index])


def _names(tests: tuple[str, ...]) -> str:
    if not tests:
        return "the run as a whole"
    more = f" and {len(tests) - NAMES_SHOWN} more" if len(tests) > NAMES_SHOWN else ""
    return ", ".join(tests[:NAMES_SHOWN]) + more


def _ended(end: JobResult) -> InvocationEnd:
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
    """Results on their way to the inbox, held back for at most BATCH_S."""

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
            self.flush()  # red is shown as soon as it is seen
        elif self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(BATCH_S, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiting:
            results, self._waiting = tuple(self._waiting), []
            self._post(TestsEnded(self._run.lane, time.time(), self._run.id, results, self._is_check))


@contextmanager
def _batches(run: Run, post: Post, is_check: bool) -> Iterator[_Batch]:
    batch = _Batch(run, post, is_check)
    try:
        yield batch
    finally:
        batch.flush()
