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

from watchtest.boxes.channel import FREE_ROOM
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
from watchtest.core.events import Collected, Post, StartRun, TestsEnded
from watchtest.core.merge import merge
from watchtest.core.model import All, Execution, Only, Result, Run, Selection, Snapshot, Stop
from watchtest.core.policy import file_order
from watchtest.core.verdict import judge
from watchtest.core.warm_check import confirms, differing, doubtful, is_over, settle
from watchtest.errors import DiskFull, RunnerError
from watchtest.runners.pytest import NO_PYTEST, Pytest
from watchtest.runners.registry import AnyRunner
from watchtest.runners.runner import Ended, Order, Reports, Runner
from watchtest.runners.unittest import Unittest
from watchtest.selection.by_runner import NOBODY, Part, Trials, change_of, joined, owners, part_of
from watchtest.selection.recorded_rows import Recordings
from watchtest.selection.selector import Selector, Situation

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
class Occasion:
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
    situation: Situation
    """What a selection goes by."""

    @property
    def run(self) -> Run:
        return self.start.run


@dataclass(slots=True)
class Testing:
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
    _trials: Trials = field(default_factory=Trials)
    _lacking: set[tuple[str, str]] = field(default_factory=set)
    """Environments, each with the name of a runner whose tool is not there. Runs of everything try it again."""

    async def select(self, occasion: Occasion) -> Selection:
        """What has to run; a proof that all the others need not. The Python tests by what was recorded of them."""
        situation = occasion.situation
        is_as_before = self._trials.are_as_before(situation)
        self._trials.add(situation)
        runners = await asyncio.to_thread(self.choose, occasion.snapshot)
        others = [runner for runner in runners if not isinstance(runner, Pytest | Unittest)]
        if not others or situation.base is None or not self.selector.is_recording:
            return await self.selector.select(situation)
        python = [runner for runner in runners if isinstance(runner, Pytest | Unittest)]
        # Files of any kind may hold tests for Python, by a plugin.
        owned = owners(runners, situation.known | situation.unsure, python[0].name if python else NOBODY)
        if owned[NOBODY]:
            return All(because=f"no runner is there any more for {_names(tuple(sorted(owned[NOBODY])))}")
        parts: list[Part] = []
        if python:
            known = frozenset[str]().union(*(owned[runner.name] for runner in python))
            own = replace(situation, known=known, unsure=situation.unsure & known)
            parts.append(Part(tuple(one.name for one in python), known, await self.selector.select(own)))
        for runner in others:
            change = change_of(
                situation.base, situation.snapshot, owned[runner.name], self.root, self.selector.patterns
            )
            if (occasion.environment, runner.name) in self._lacking and not change.known:
                continue
            if is_as_before:
                parts.append(await part_of(runner, change, lambda order: self._asked(order, occasion)))
            else:
                unknown = All(because="nothing is known yet of its tests in this environment")
                parts.append(Part((runner.name,), change.known, unknown))
        return joined(parts, situation.unsure) if parts else All(because="no tool is there to run a test")

    async def _asked(self, order: Order, occasion: Occasion) -> Ended:
        """A question of a runner, put to the box before the tests run."""
        if occasion.wish.is_set:
            return Ended(None, stopped="cancelled", reason="the run was stopped")
        limit_s = min(ASKING_LIMIT_S, self.limits.run_s)
        limits = JobLimits(limit_s, limit_s, self.limits.grace_s)
        variables = {**self.environment.variables, **order.env}
        what = Command(order.argv, order.folder)
        job = JobSpec(what, limits, variables, self.environment.path_first, requires=occasion.generation)
        end = await occasion.session.run(job, lambda _rows: None, lambda _text: None, occasion.wish.job_stops)
        return _ended(end)

    async def execute(self, occasion: Occasion) -> Execution:
        """Everything that the runners said, believed by nobody yet."""
        self._trials.add(occasion.situation)
        runners = await asyncio.to_thread(self.choose, occasion.snapshot)
        run = occasion.run
        occasion.post(Collected(run.lane, time.time(), run.id, frozenset()))
        executions: list[Execution] = []
        missing: list[RunnerError] = []
        first = next((runner for runner in runners if isinstance(runner, Pytest)), None)
        for runner, tests in _shares(runners, run):
            # There is one process to fork from.
            may_be_warm = runner is first and occasion.environment not in self._unsound | self._hung
            try:
                async for execution in self._all_of(runner, tests, occasion, may_be_warm):
                    executions.append(replace(execution, runner=runner.name if len(runners) > 1 else ""))
                    if execution.stopped is not None:
                        whole = merge(executions)
                        # What the runners behind it would have found, nobody knows.
                        return whole if len(runners) == 1 else replace(whole, has_collected=False)
                self._lacking.discard((occasion.environment, runner.name))
            except RunnerError as error:
                if self.is_given or len(runners) == 1:
                    raise
                missing.append(error)
                self._lacking.add((occasion.environment, runner.name))
                self._say_once(
                    f"{runner.name} does not run, though the project has tests for it: {error}", occasion.note
                )
        if not executions and missing:
            raise missing[0]
        return _or_needless(merge(executions), run)

    async def _all_of(
        self, runner: AnyRunner, tests: tuple[str, ...] | None, occasion: Occasion, may_be_warm: bool
    ) -> AsyncIterator[Execution]:
        """One a command; who has heard enough asks for no more."""
        match runner:
            case Pytest():
                yield await self._pytest(runner, tests, occasion, may_be_warm)
            case Unittest():
                wish = UnittestCommand(occasion.python, runner.args, tests, runner.folder, self.selector.is_recording)
                yield (await self._one(wish, runner.reports(), occasion, runner.env))[0]
            case _:
                for order in runner.orders(tests):
                    yield await self._command(runner, order, occasion)

    async def _command(self, runner: Runner, order: Order, occasion: Occasion) -> Execution:
        what = Command(order.argv, order.folder, order.has_rows)
        return (await self._one(what, runner.reports(order, self.root), occasion, order.env))[0]

    # -- pytest: warm, and sure ----------------------------------------------------------------------

    async def _pytest(
        self, runner: Pytest, tests: tuple[str, ...] | None, occasion: Occasion, may_be_warm: bool
    ) -> Execution:
        wish = PytestCommand(
            occasion.python,
            runner.arguments,
            tests,
            runner.folder,
            order=file_order(occasion.start.known, occasion.changed),
            is_warm=may_be_warm and self.warm != "off",
            record=self.selector.is_recording,
            first=_first(occasion.run),
            collects_all=_collects_all(occasion.run),
        )
        execution, end = await self._one(wish, runner.reports(), occasion, runner.env)
        if end.exit_code == NO_PYTEST and not execution.promised:
            raise RunnerError(
                f"pytest is not installed in the box ({occasion.python})",
                hint="`watchtest exec -- pip install pytest`, or add that command to box.setup",
            )
        if runner.workers > 1 and end.exit_code == PYTEST_USAGE and "-n" in end.output:
            raise RunnerError(
                f"runner.workers = {runner.workers} needs pytest-xdist, which is not in the box",
                hint="`watchtest exec -- pip install pytest-xdist`, or add it to the project's test dependencies",
            )
        if end.cold_because:
            self._say_why_cold(end.cold_because, occasion.note)
        self._hung.discard(occasion.environment)
        if end.is_warm and execution.stopped is Stop.TIMED_OUT:
            self._hung.add(occasion.environment)
        return await self._made_sure(runner, wish, execution, occasion) if end.is_warm else execution

    def _say_why_cold(self, reason: str, note: Note) -> None:
        """Every time to those who insist; else once each, and that a process is getting ready is not worth a word."""
        log.info("a cold run: %s", reason)
        text = f"a cold run, slower than need be: {reason}"
        if self.warm == "on":
            note(text)
        elif not reason.endswith("getting ready"):
            self._say_once(text, note)

    def _say_once(self, text: str, note: Note) -> None:
        if text not in self._said:
            self._said.add(text)
            note(text)

    async def _made_sure(self, runner: Pytest, wish: PytestCommand, warm: Execution, occasion: Occasion) -> Execution:
        """Red that could be of our own making is only red when a fresh process says so, too."""
        is_trusted = occasion.environment in self._trusted
        tests = doubtful(warm, occasion.start.judged, is_trusted)
        if tests == () or warm.stopped is not None:
            return warm
        log.info("run %s: %s again in a fresh process", occasion.run.id, "all" if tests is None else f"{len(tests)}")
        if tests is not None:
            some = replace(wish, tests=tests, is_warm=False)
            cold, _ = await self._one(some, runner.reports(), occasion, runner.env, is_check=True)
            if cold.stopped is not None:
                return replace(cold, has_collected=False)  # it was to look for a few of the tests
            settled = settle(warm, cold)
            if settled is not None:
                self._trusted.add(occasion.environment)
                return settled
        # What passes by itself may still fail among the others: only the same run in a fresh process can tell.
        again = replace(wish, is_warm=False)
        cold, _ = await self._one(again, runner.reports(), occasion, runner.env, is_check=True)
        only_warm = differing(warm, cold)
        if cold.stopped is None and confirms(cold, warm):
            self._trusted.add(occasion.environment)
        elif cold.stopped is None and not occasion.wish.is_set:
            if await self._is_by_chance(runner, wish, only_warm, occasion):
                return replace(cold, by_chance=only_warm)
            if not occasion.wish.is_set:
                self._admit(only_warm, warm, occasion)
        return cold

    async def _is_by_chance(
        self, runner: Pytest, wish: PytestCommand, only_warm: tuple[str, ...], occasion: Occasion
    ) -> bool:
        """Whether warmth is not to blame: what failed passes in another run that is just as warm."""
        unseen = replace(occasion, post=lambda _event: None)  # it says something of us, and nothing of the code
        again, end = await self._one(wish, runner.reports(), unseen, runner.env)
        is_by_chance = end.is_warm and is_over(again, only_warm)
        if is_by_chance:
            occasion.note(f"flaky: {_names(only_warm)} failed, and passed when the same run was repeated")
        return is_by_chance

    def _admit(self, only_warm: tuple[str, ...], warm: Execution, occasion: Occasion) -> None:
        self._unsound.add(occasion.environment)
        occasion.note(
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
        reports: Reports,
        occasion: Occasion,
        env: Mapping[str, str] = MappingProxyType({}),
        *,
        is_check: bool = False,
    ) -> tuple[Execution, JobResult]:
        run = occasion.run
        if occasion.wish.stop and occasion.wish.job_stops.empty():
            # It was taken by a job that came to its end all the same; the run is not to go on with another.
            occasion.wish.job_stops.put_nowait(occasion.wish.stop is Stop.KILLED)
        variables = {**self.environment.variables, **env}
        job = JobSpec(what, self.limits, variables, self.environment.path_first, requires=occasion.generation)
        recordings = Recordings()
        with _batches(run, occasion.post, is_check) as batch:

            def take(rows: list[dict[str, Any]]) -> None:
                recordings.take(rows)
                promised, results = reports.take(rows)
                if promised:
                    occasion.post(Collected(run.lane, time.time(), run.id, promised))
                batch.add(results)

            end = await occasion.session.run(job, take, lambda _text: None, occasion.wish.job_stops)
            self.selector.end(occasion.situation, recordings)
            execution = reports.execution(_ended(end))
            batch.add(tuple(result for test, result in execution.results.items() if test not in batch.seen))
        if end.full_disk and end.exit_code != 0:
            # Whatever is red now may be so for want of room; that is not the code's fault.
            raise DiskFull(f"no room is left in the box, in {end.full_disk}: the run proves nothing", hint=FREE_ROOM)
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
    heir = next((index for index, runner in enumerate(runners) if isinstance(runner, Pytest | Unittest)), 0)
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


def _ended(end: JobResult) -> Ended:
    return Ended(
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
