"""Plain lines that report each event: for the log, and for terminals without a dashboard. The wording is stable."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import TextIO, assert_never

from watchtest.core import transitions
from watchtest.core.events import EVERYTHING, Event, Halted, Judged, ToolFailure, Unchanged
from watchtest.core.model import Problem, RunState, StopReason, Verdict
from watchtest.core.state import Broken, BuildFailed, Idle, LaneState, State, Working
from watchtest.core.text import NOTE_LIMIT, ROW_LIMIT, count, duration, encodable, names, one_line, short, tail, tests
from watchtest.views import words
from watchtest.views.mood import mood

RAW_LINES = 20


class PlainLines:
    """Writes what each event changed. The watcher goes on if its reader leaves."""

    def __init__(self, stream: TextIO, *, local: Callable[[float], time.struct_time] = time.localtime) -> None:
        self._stream = stream
        self._local = local
        self._is_open = True

    def show(self, before: State, after: State, event: Event | None) -> None:
        if event is None:
            return
        for fact in transitions.facts_of(before, after, event):
            has_prefix = len(after.lanes) > 1 and not isinstance(fact, transitions.WatcherLeaves)
            prefix = f"[{fact.lane.value}] " if has_prefix else ""
            for line in lines(fact, after.lanes[fact.lane], event.at):
                self._write(event.at, prefix + line)

    def say(self, text: str, at: float) -> None:
        """Write a line that belongs to no event."""
        self._write(at, one_line(text, NOTE_LIMIT))

    def _write(self, at: float, line: str) -> None:
        text = f"{time.strftime('%H:%M:%S', self._local(at))} {line}"
        self._is_open = self._is_open and write_line(self._stream, text)


def write_line(stream: TextIO, line: str) -> bool:
    """Write a line at once. Return False if that is no longer possible."""
    try:
        stream.write(encodable(f"{line}\n", stream.encoding))
        stream.flush()
    except (OSError, ValueError):  # the reader has left, or the stream was closed
        discard_output(stream)
        return False
    return True


def discard_output(stream: TextIO) -> None:
    """Redirect a broken stream to the null device: if its flush at exit failed, the exit code would be 120."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # a stream without a descriptor, or a closed one: there is nothing left to flush
        pass


def lines(fact: transitions.Fact, lane: LaneState, at: float) -> Iterator[str]:  # noqa: C901 - one flat match over all facts
    """Yield the lines that report a fact; `lane` is the lane after it."""
    match fact:
        case transitions.FilesChanged():
            yield _changed(fact) + _waiting(lane)
        case transitions.RunStopping(stop=StopReason.SUPERSEDED, reason=reason):
            yield f"stopping this run: {one_line(reason)}"
        case transitions.SourceBlockChanged(reason=reason):
            yield f"git lanes are waiting: {one_line(reason)}" if reason else "git lanes go on"
        case transitions.RunRequestAnswered(refusal=refusal):
            yield one_line(refusal) if refusal else "run requested" + _waiting(lane)
        case transitions.CancelRequestAnswered(run=run_id, effect=effect):
            dropped = f"run {one_line(run_id)} cancelled before it began"
            yield {"stop": "cancelling", "drop": dropped, "none": "nothing to cancel"}[effect]
        case transitions.LanePaused():
            yield "paused: changes wait until you resume"
        case transitions.LaneResumed():
            yield "resumed"
        case transitions.PolicyChanged(configured=configured, override=override):
            yield (f"policy: {override.value}" if override else f"policy: {configured.value} (as configured)")
        case transitions.RetryBegan():
            yield "retrying"
        case transitions.LaneWaits(reason=reason):
            yield f"waiting: {one_line(reason)}"
        case transitions.NoteShown(text=text, is_repeated=False):
            yield one_line(text, NOTE_LIMIT)
        case transitions.BoxChanged(box=box):
            yield f"box: {words.box(box)}"
        case transitions.BoxDisappeared(problem=problem, broken=Broken() as broken):
            yield words.problem(problem)
            yield words.retry(broken, at)
        case transitions.BuildChanged(build=build, is_ready=is_ready):
            yield words.build(build, is_ready=is_ready)
            if isinstance(build, BuildFailed):
                yield from _explained(build.problem)
        case transitions.ServiceChanged(service=service):
            yield words.service(service)
        case transitions.RunStarted(run=run):
            yield f"syncing · run {run.id} · {run.trigger.value} · {words.intent(run)}"
        case transitions.TestsSelected(run=run):
            yield f"selected {words.selection(run.selection)}"
        case transitions.TestsPromised(total=total):
            yield f"running {tests(total)}"
        case transitions.ResultsArrived(results=results, confirmed=confirmed):
            red = (result for result in results if result.outcome.is_red)
            yield from (words.failure_line(result) for result in red if result.test not in confirmed)
        case transitions.FailuresDoubted(failures=failures):
            yield f"confirming {count(failures, 'failure')} in a fresh process"
        case transitions.RunFinished():
            yield from _finished(fact, lane, at)
        case transitions.RunWithdrawn():
            yield "no content changed, nothing to run"
        case transitions.WatcherLeaves():
            yield "bye"
        case _:
            pass


def _changed(fact: transitions.FilesChanged) -> str:
    if EVERYTHING in fact.paths:
        return "starting" if fact.is_start else "anything may have changed: checking all files"
    return f"changed {count(len(fact.paths), 'file')}: {names(fact.paths)}"


def _waiting(lane: LaneState) -> str:
    if not (lane.pending or lane.queue.waiting):
        return ""
    if lane.is_paused:
        return " (waiting: paused)"
    return " (waiting for this run to end)" if isinstance(lane.activity, Working) else ""


def _finished(fact: transitions.RunFinished, lane: LaneState, at: float) -> Iterator[str]:
    match fact.ending:
        case Judged() if fact.finished.state is RunState.SUPERSEDED:
            yield StopReason.SUPERSEDED.value  # it ended before it could be stopped, and had tested half a save
        case Judged() as ending:
            yield from _judged(fact, ending, lane)
        case Halted(stop=stop):
            is_held = isinstance(lane.activity, Idle) and lane.activity.is_held and bool(lane.pending)
            yield stop.value + ("; its changes wait for the next save or command" if is_held else "")
        case ToolFailure(problem=problem):
            yield words.problem(problem)
            yield from _explained(problem)
            if isinstance(lane.activity, Broken):
                yield words.retry(lane.activity, at)
        case Unchanged():
            pass  # reported as transitions.RunWithdrawn
        case _:
            assert_never(fact.ending)


def _explained(problem: Problem) -> Iterator[str]:
    """Yield the output of a failed command, which follows the first line of the message, and the hint."""
    yield from (f"  | {line}" for line in tail("\n".join(problem.message.splitlines()[1:]), RAW_LINES))
    if problem.hint:
        yield f"  {one_line(problem.hint, ROW_LIMIT)}"


def _judged(fact: transitions.RunFinished, ending: Judged, lane: LaneState) -> Iterator[str]:
    knowledge, run = lane.knowledge, fact.run
    shown = {test for test, result in fact.reported.items() if result.outcome.is_red}
    for known in knowledge.red:
        # Failures that no result reported: files that could not be collected, tests that never ended.
        if known.run == run.id and known.result.test not in shown:
            yield words.failure_line(known.result)
    is_plain = knowledge.verdict in (Verdict.PASSED, Verdict.FAILED)
    rerun = words.rerun_count(knowledge)
    share = "" if rerun is None else f", {rerun or 'none'} of them run"
    took = (" in " if is_plain else " · after ") + duration(ending.execution.duration_s)
    doubt = f" · {found.doubt}" if (found := mood(lane)).doubt else ""
    yield f"{words.verdict(knowledge)}{share}{took} · tree {short(ending.snapshot.id)} · {run.trigger.value}{doubt}"
    if knowledge.verdict is Verdict.ERROR:
        yield from (f"  | {line}" for line in tail(fact.finished.raw_output, RAW_LINES))


log = logging.getLogger(__name__)


def log_event(before: State, after: State, event: Event | None) -> None:
    """Log what happens, but no single tests: the history has them, and a red suite would flood the log."""
    if event is None:
        return
    for fact in transitions.facts_of(before, after, event):
        if isinstance(fact, transitions.ResultsArrived | transitions.WatcherLeaves):
            continue
        lane = after.lanes[fact.lane]
        run = fact.run.id if isinstance(fact, transitions.RunFact) else _run(before.lanes[lane.lane]) or _run(lane)
        for line in lines(fact, lane, event.at):
            log.info("%s", line, extra={"lane": lane.lane.value, "run": run})


def _run(lane: LaneState) -> str:
    return lane.activity.run.id if isinstance(lane.activity, Working) else ""
