"""The plain lines of whole stories, word for word."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import time
from dataclasses import replace

from support import TESTS
from support.view_output import lines, plain_output
from support.watcher_states import BOX, LOST, Story, failed, passed, skipped, start

from watchtest.core.events import (
    CancelRequested,
    Halted,
    NoteAdded,
    PauseRequested,
    QuitRequested,
    ResumeRequested,
    RunEnded,
    RunRequested,
    SourceCompared,
    TimerFired,
    Unchanged,
)
from watchtest.core.model import All, Failure, Lane, Outcome, Result, StopReason
from watchtest.views.lines.plain_lines import PlainLines

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
NOW = 22 * 3600


def test_a_red_run_and_a_green_one_word_for_word() -> None:
    story = Story().change().box().sync("3f2a91c4d5e6").collect(A, B).results(failed(A)).results(passed(B))
    story.end("3f2a91c4d5e6", [failed(A), passed(B)])
    story.run("77aa91c4d5e6", passed(A), passed(B))
    assert plain_output(story) == (
        "22:13:21 starting\n"
        "22:13:21 syncing · run s.1 · save · all tests\n"
        "22:13:21 box: docker 1a2b3c4d5e6f · image python:3.12 · running · Python 3.12.1\n"
        "22:13:21 running 2 tests\n"
        "22:13:21 FAILED tests/test_a.py::test_a tests/test_a.py:14 assert 3 == 4\n"
        "22:13:21 failed 1 of 2 tests in 0.8s · tree 3f2a91c4 · save\n"
        "22:13:22 changed 1 file: shop/cart.py\n"
        "22:13:22 syncing · run s.2 · save · all tests\n"
        "22:13:22 running 2 tests\n"
        "22:13:22 passed 2 tests in 0.8s · tree 77aa91c4 · save\n"
    )


def test_a_failure_that_a_fresh_process_confirms_is_printed_once() -> None:
    story = Story().change().sync("t1").collect(A, B).results(failed(A), passed(B))
    story.results(failed(A), failed(B), is_check=True).end("t1", [failed(A), failed(B)])
    assert [line.split()[1] for line in lines(story) if line.startswith("FAILED")] == [A, B]


def test_a_save_during_a_run_waits_and_starts_the_next_one() -> None:
    story = Story().change().sync("t1").collect(A)
    story.change("a.py", "b.py", "c.py", "d.py", "e.py").end("t1", [passed(A)])
    assert lines(story)[-3:] == [
        "changed 5 files: a.py, b.py, c.py and 2 more (waiting for this run to end)",
        "passed 1 test in 0.8s · tree t1 · save · testing 5 changes",
        "syncing · run s.2 · save · all tests",
    ]


def test_a_save_without_new_content_is_reported() -> None:
    story = Story().run("t1", passed(A)).change("a.py")
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Unchanged(story.state.top.knowledge.snapshot)))  # type: ignore[arg-type]
    assert lines(story)[-1] == "no content changed, nothing to run"


def test_notes_are_shown_once() -> None:
    story = Story().change()
    for text in ("setup: pip install", "setup: pip install", "setup: done\x1b[2J"):
        story.on(NoteAdded(Lane.SAVE, story.now, text))
    story.sync("t1").box().box()
    assert lines(story)[2:] == [
        "setup: pip install",
        "setup: done",
        "box: docker 1a2b3c4d5e6f · image python:3.12 · running · Python 3.12.1",
    ]


def test_a_warning_is_shown_besides_the_notes_of_a_run() -> None:
    story = Story().change()
    story.on(NoteAdded(Lane.SAVE, story.now, "setup: pip install"))
    story.on(NoteAdded(Lane.SAVE, story.now, "left out .env: may hold secrets", is_kept=True))
    story.on(NoteAdded(Lane.SAVE, story.now, "setup: pip install"))
    assert lines(story)[2:] == ["setup: pip install", "left out .env: may hold secrets"]


def test_a_box_says_what_it_does_not_isolate_and_where_it_comes_from() -> None:
    box = replace(BOX, engine="local", id="", image="", python="", isolation="network", notes=("adopted",), restarts=2)
    assert lines(Story().box(box)) == ["box: local · running · 2 restarts · not isolated: network · adopted"]


def test_a_problem_comes_with_what_to_do_and_what_happens_next() -> None:
    story = Story().change().breaks()
    story.now += 1
    story.on(TimerFired(Lane.SAVE, story.now)).breaks(is_transient=False)
    problem = f"engine: {LOST.message}"
    assert lines(story)[2:] == [
        problem,
        f"  {LOST.hint}",
        "retrying in 0.5s (attempt 1 failed)",
        "retrying",
        "syncing · run s.2 · save · all tests",
        problem,
        f"  {LOST.hint}",
        "gave up; will retry on the next change or command",
    ]


def test_a_run_that_cannot_be_read_shows_the_end_of_its_output() -> None:
    raw = "\n".join(f"line {number}" for number in range(50)) + "\n\x1b[31mSegmentation fault\n"
    story = Story().change().sync("t1").end("t1", [], exit_code=3, raw_output=raw)
    said_lines = lines(story)
    assert said_lines[2] == "error: the runner exited with 3 · after 0.8s · tree t1 · save"
    assert said_lines[3:] == [f"  | line {number}" for number in range(31, 50)] + ["  | Segmentation fault"]


def test_failures_without_a_report_are_listed_before_the_verdict() -> None:
    broken = Result("tests/test_b.py", Outcome.ERROR, 0.0, Failure("collection", "SyntaxError: bad"))
    story = Story().change().sync("t1").collect(A).results(failed(A))
    story.end("t1", [failed(A)], exit_code=2, collection_errors=(broken,))
    assert lines(story)[3:6] == [
        "FAILED tests/test_a.py::test_a tests/test_a.py:14 assert 3 == 4",
        "ERROR tests/test_b.py SyntaxError: bad",
        "error: 1 file could not be collected: tests/test_b.py: SyntaxError: bad · after 0.8s · tree t1 · save",
    ]


def test_commands_are_answered() -> None:
    story = Story().run("t1", passed(A), skipped(B))
    lane, now = Lane.SAVE, story.now
    story.on(CancelRequested(lane, now)).on(PauseRequested(lane, now)).change("a.py").on(ResumeRequested(lane, now))
    story.on(RunRequested(lane, now)).on(CancelRequested(lane, now))
    story.on(RunEnded(lane, now, story.working.run.id, Halted(StopReason.CANCELLED)))
    assert lines(story)[3:] == [
        "passed 1 test, 1 skipped in 0.8s · tree t1 · save",
        "nothing to cancel",
        "paused: changes wait until you resume",
        "changed 1 file: a.py (waiting: paused)",
        "resumed",
        "syncing · run s.2 · save · all tests",
        "run requested (waiting for this run to end)",
        "cancelling",
        "cancelled",
        "syncing · run s.3 · manual · all tests",
    ]


def test_a_superseded_run_names_the_change() -> None:
    story = Story().change("a.py").sync("t1").collect(A).change("b.py")
    story.on(SourceCompared(Lane.SAVE, story.now, "s.1", frozenset())).on(
        SourceCompared(Lane.SAVE, story.now, "s.1", frozenset({"b.py"}))
    )
    story.on(RunEnded(Lane.SAVE, story.now, "s.1", Halted(StopReason.SUPERSEDED)))
    assert lines(story)[3:] == [
        "changed 1 file: b.py (waiting for this run to end)",
        "stopping this run: b.py changed",
        "superseded",
        "syncing · run s.2 · save · all tests",
    ]


def test_runs_that_wait_are_cancelled_by_name_and_refused_when_there_are_too_many() -> None:
    story = Story().change("a.py")
    lane, now = Lane.SAVE, story.now
    for number in range(21):
        story.on(RunRequested(lane, now, All("asked"), f"s.r{number}"))
    story.on(CancelRequested(lane, now, run="s.r3")).on(CancelRequested(lane, now, run="s.r3"))
    assert lines(story)[-3:] == [
        "a run was refused: 20 runs are already queued",
        "run s.r3 cancelled before it began",
        "nothing to cancel",
    ]


def test_leaving_says_bye() -> None:
    assert lines(Story().on(QuitRequested(Lane.SAVE, NOW))) == ["bye"]
    assert lines(Story(start(once=True)).run("t1", passed(A)))[-1] == "bye"


def test_with_several_lanes_each_line_names_its_own() -> None:
    story = Story(start(Lane.SAVE, Lane.COMMIT), lane=Lane.COMMIT).change("a.py")
    assert lines(story)[0] == "[commit] changed 1 file: a.py"


def test_a_reader_that_leaves_is_not_the_end() -> None:
    code = """
import sys
sys.path.insert(0, sys.argv[1])
from support.watcher_states import Story, passed
from watchtest.views.lines.plain_lines import PlainLines
plain = PlainLines(sys.stdout)
sys.stdin.readline()
for before, after, event in Story().run("t1", passed("a.py::b")).steps:
    plain.show(before, after, event)
print("went on", file=sys.stderr)
"""
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(TESTS)],
        stdin=subprocess.PIPE,
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    os.close(reading)
    _, errors = process.communicate("go\n", timeout=60)
    assert (process.returncode, errors) == (0, "went on\n")


def test_a_closed_stream_and_a_poor_encoding_are_no_obstacle() -> None:
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding="ascii", write_through=True)
    plain = PlainLines(stream, local=time.gmtime)
    before, after, event = Story().change().steps[0]
    plain.show(before, after, event)
    assert b"syncing ? run s.1 ? save" in raw.getvalue()
    stream.close()
    plain.show(before, after, event)


def test_what_a_failed_setup_said_is_shown_below_its_line() -> None:
    problem = replace(
        LOST, message="setup failed: pip install x (exit code 1)\nERROR: no matching \x1b[31mdistribution"
    )
    said_lines = lines(Story().change("x.py").breaks(problem, is_transient=False))
    at = said_lines.index("engine: setup failed: pip install x (exit code 1)")
    assert said_lines[at + 1 : at + 3] == ["  | ERROR: no matching distribution", f"  {LOST.hint}"]
