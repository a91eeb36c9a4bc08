"""One line an event, for logs and terminals that are none. Stable wording; the end of its reader is not our end.

What happens, in the log: the lines of the plain view, so that a watcher without a screen leaves a story behind.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import TextIO, assert_never

from watchtest.core.events import (
    EVERYTHING,
    BoxLost,
    BoxSeen,
    Broke,
    CancelAsked,
    Changed,
    Collected,
    Event,
    Halted,
    Hindered,
    Judged,
    Noted,
    PauseAsked,
    Peeked,
    PolicyAsked,
    QuitAsked,
    ResumeAsked,
    RunAsked,
    RunEnded,
    Selected,
    ServicesSeen,
    SnapshotTaken,
    TestsEnded,
    Unchanged,
    Woke,
)
from watchtest.core.model import RunState, Stop, Verdict
from watchtest.core.state import Broken, Executing, Idle, LaneState, Starting, State, Working
from watchtest.core.text import count, duration, encodable, names, one_line, short, tail, tests
from watchtest.views import words

RAW_LINES = 20


class Plain:
    """Writes what each event changed."""

    def __init__(self, stream: TextIO, *, local: Callable[[float], time.struct_time] = time.localtime) -> None:
        self._stream = stream
        self._local = local
        self._is_heard = True

    def show(self, before: State, after: State, event: Event) -> None:
        prefix = f"[{event.lane.value}] " if len(after.lanes) > 1 else ""
        for line in lines(before.lanes[event.lane], after.lanes[event.lane], event):
            self._write(event.at, prefix + line)
        # An event of one lane may let another start.
        for lane in after.ranked:
            for line in started(before.lanes[lane.lane], lane):
                self._write(event.at, f"[{lane.lane.value}] {line}" if prefix else line)
        if after.is_leaving and not before.is_leaving:
            self._write(event.at, "bye")

    def say(self, text: str, at: float) -> None:
        """A line that no event brings: a view that fails, a config that was read."""
        self._write(at, one_line(text, 1000))

    def _write(self, at: float, line: str) -> None:
        if not self._is_heard:
            return
        text = f"{time.strftime('%H:%M:%S', self._local(at))} {line}\n"
        try:
            self._stream.write(encodable(text, self._stream.encoding))
            self._stream.flush()
        except (OSError, ValueError):  # the reader has gone, or the stream was closed: the watcher goes on unheard
            self._is_heard = False
            silence(self._stream)


def silence(stream: TextIO) -> None:
    """Let the interpreter's own last flush of this stream succeed, or the exit code becomes 120."""
    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)
    except (OSError, ValueError):  # not a stream of a descriptor, or closed: then nothing is left in it to flush
        pass


def lines(before: LaneState, after: LaneState, event: Event) -> Iterator[str]:
    """What to say of `event`, which took a lane from `before` to `after`."""
    match event:
        case Changed():
            yield _changed(before, event) + _waiting(after)
        case Peeked():
            yield from _superseding(before, after)
        case Hindered():
            if event.reason != before.hindrance:
                yield f"git lanes wait: {one_line(event.reason)}" if event.reason else "git lanes go on"
        case RunAsked():
            yield _asked(before, after)
        case CancelAsked():
            yield _cancelling(before, after, event)
        case PauseAsked():
            yield "paused: changes are noted and wait"
        case ResumeAsked():
            yield "resumed"
        case PolicyAsked():
            yield f"a change runs: {(after.override or after.policy).value}" + (
                "" if after.override else " (as configured)"
            )
        case QuitAsked():
            pass
        case Woke():
            if _new_run(before, after):
                yield "trying again"
        case Noted():
            if event.text and (event.is_kept or event.text != before.note):
                yield one_line(event.text, 1000)
        case BoxSeen():
            if event.box != before.box:
                yield f"box: {words.box(event.box)}"
        case BoxLost():
            if isinstance(after.activity, Broken) and after.activity is not before.activity:
                yield words.problem(event.problem)
                yield words.retry(after.activity, event.at)
        case ServicesSeen():
            yield from _services(before, after)
        case SnapshotTaken():
            pass
        case Selected():
            yield f"selected {words.selection(event.selection)}"
        case Collected():
            yield from _collected(before, after)
        case TestsEnded():
            yield from (words.failed(result) for result in event.results if result.outcome.is_red)
        case RunEnded():
            yield from _ended(before, after, event)
        case _:
            assert_never(event)


def started(before: LaneState, after: LaneState) -> Iterator[str]:
    if _new_run(before, after) and isinstance(after.activity, Working):
        run = after.activity.run
        yield f"syncing · run {run.id} · {run.trigger.value} · {words.intent(run)}"
    elif after.waits_for and after.waits_for != before.waits_for:
        yield f"waits: {one_line(after.waits_for)}"


def _new_run(before: LaneState, after: LaneState) -> bool:
    return after.runs != before.runs


def _changed(before: LaneState, event: Changed) -> str:
    if EVERYTHING in event.paths:
        return "starting" if isinstance(before.activity, Starting) else "anything may have changed: looking at it all"
    return f"changed {count(len(event.paths), 'file')}: {names(event.paths)}"


def _superseding(before: LaneState, after: LaneState) -> Iterator[str]:
    match after.activity:
        case Working(stop=Stop.SUPERSEDED, stop_reason=reason) if after.activity is not before.activity:
            yield f"{one_line(reason)}: this run is given up"
        case _:
            pass


def _asked(before: LaneState, after: LaneState) -> str:
    if after.note and after.note != before.note:
        return one_line(after.note)
    return "run asked for" + _waiting(after)


def _cancelling(before: LaneState, after: LaneState, event: CancelAsked) -> str:
    match before.activity:
        case Working(run=run) if event.run in ("", run.id):
            return "cancelling"
        case Broken() if not event.run:
            return "cancelling"
        case _:
            return f"run {one_line(event.run)} is cancelled before it began" if after.dropped else "nothing to cancel"


def _waiting(after: LaneState) -> str:
    if not (after.pending or after.asked):
        return ""
    if after.is_paused:
        return " (waits: paused)"
    return " (waits for the end of this run)" if isinstance(after.activity, Working) else ""


def _services(before: LaneState, after: LaneState) -> Iterator[str]:
    old = {service.name: (service.state, service.restarts) for service in before.services}
    for service in after.services:
        if old.get(service.name) != (service.state, service.restarts):
            yield words.service(service)


def _collected(before: LaneState, after: LaneState) -> Iterator[str]:
    promised = _promised(after)
    if promised and not _promised(before):
        yield f"running {tests(promised)}"


def _promised(lane: LaneState) -> int:
    match lane.activity:
        case Working(phase=Executing(promised=promised)):
            return len(promised)
        case _:
            return 0


def _ended(before: LaneState, after: LaneState, event: RunEnded) -> Iterator[str]:
    if not isinstance(before.activity, Working) or before.activity.run.id != event.run:
        return
    ending = event.ending
    match ending:
        case Judged() if after.last is not None and after.last.state is RunState.SUPERSEDED:
            yield Stop.SUPERSEDED.value  # it came to its end, on half a save
        case Judged():
            yield from _judged(before, after, ending)
        case Unchanged():
            yield "no content changed, nothing to run"
        case Halted(stop=stop):
            is_held = isinstance(after.activity, Idle) and after.activity.is_held and bool(after.pending)
            yield stop.value + ("; its changes wait for the next save or command" if is_held else "")
        case Broke(problem=problem):
            yield words.problem(problem)
            # What a failed command said stands below its first line.
            yield from (f"  | {line}" for line in tail("\n".join(problem.message.splitlines()[1:]), RAW_LINES))
            if problem.hint:
                yield f"  {one_line(problem.hint, 500)}"
            if isinstance(after.activity, Broken):
                yield words.retry(after.activity, event.at)
        case _:
            assert_never(ending)


def _judged(before: LaneState, after: LaneState, ending: Judged) -> Iterator[str]:
    shown = _shown(before)
    for known in after.knowledge.red:
        # What the run owed was in no report: files that broke the collection, tests that were never heard of.
        if after.last and known.run == after.last.run.id and known.result.test not in shown:
            yield words.failed(known.result)
    run = after.last.run if after.last else None
    took = duration(ending.execution.duration_s)
    is_plain = after.knowledge.verdict in (Verdict.PASSED, Verdict.FAILED)
    fresh = words.fresh(after.knowledge)
    share = "" if fresh is None else f", {fresh or 'none'} of them run"
    yield " · ".join(
        (
            words.verdict(after.knowledge) + share + (" in " if is_plain else " · after ") + took,
            f"tree {short(ending.snapshot.id)}",
            run.trigger.value if run else after.lane.value,
        )
    )
    if after.knowledge.verdict is Verdict.ERROR and after.last:
        yield from (f"  | {line}" for line in tail(after.last.raw_output, RAW_LINES))


def _shown(lane: LaneState) -> frozenset[str]:
    match lane.activity:
        case Working(phase=Executing(results=results)):
            return frozenset(test for test, result in results.items() if result.outcome.is_red)
        case _:
            return frozenset()


log = logging.getLogger(__name__)


def log_event(before: State, after: State, event: Event | None) -> None:
    """A view of the loop. Single tests are left to the history: a red suite would push everything else out."""
    if event is None or isinstance(event, TestsEnded):
        return
    was, now = before.lanes[event.lane], after.lanes[event.lane]
    for line in lines(was, now, event):
        _say(line, now, getattr(event, "run", "") or _run(was) or _run(now))
    for lane in after.ranked:
        for line in started(before.lanes[lane.lane], lane):
            _say(line, lane, _run(lane))


def _say(line: str, lane: LaneState, run: str) -> None:
    log.info("%s", line, extra={"lane": lane.lane.value, "run": run})


def _run(lane: LaneState) -> str:
    return lane.activity.run.id if isinstance(lane.activity, Working) else ""
