"""`watch --json-lines`: every line matches the schema and reports what the plain lines report."""

from __future__ import annotations

import io
import json
from typing import Any

import jsonschema
import pytest
from support.watcher_states import BOX, LOST, Story, failed, passed, snapshot, start

from watchtest import cli
from watchtest.core.events import (
    BoxLost,
    CancelRequested,
    EnvironmentBuilt,
    EnvironmentChecked,
    Halted,
    Judged,
    NoteAdded,
    PauseRequested,
    PolicyRequested,
    QuitRequested,
    ResumeRequested,
    RunEnded,
    RunRequested,
    SelectionMade,
    ServicesChanged,
    SourceBlocked,
    SourceChanged,
    SourceCompared,
    TimerFired,
    Unchanged,
)
from watchtest.core.model import Execution, Lane, Only, Policy, Problem, ServiceInfo, StopReason
from watchtest.views.lines.json_lines import JsonLines
from watchtest.views.schemas import event_schema

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"
VALIDATOR = jsonschema.Draft202012Validator(event_schema())
SCRIPTED = {branch["properties"]["event"]["const"] for branch in event_schema()["oneOf"]}


def json_objects(story: Story) -> list[dict[str, Any]]:
    stream = io.StringIO()
    view = JsonLines(stream)
    for step in story.steps:
        view.show(*step)
    objects = [json.loads(line) for line in stream.getvalue().splitlines()]
    for each in objects:
        VALIDATOR.validate(each)
    return objects


def kinds(objects: list[dict[str, Any]]) -> list[str]:
    return [each["event"] for each in objects]


def test_a_red_run_and_a_green_one() -> None:
    story = Story().change().box().sync("3f2a91c4d5e6").collect(A, B).results(failed(A)).results(passed(B))
    story.end("3f2a91c4d5e6", [failed(A), passed(B)])
    story.run("77aa91c4d5e6", passed(A), passed(B))
    objects = json_objects(story)
    one = ["changed", "started"]
    tests = ["collected", "result", "result", "ended"]
    assert kinds(objects) == ["began", *one, "box", *tests, *one, *tests]
    red, end = objects[5], objects[7]
    assert red == {
        "event": "result",
        "at": "2023-11-14T22:13:21.300Z",
        "lane": "save",
        "run": "s.1",
        "id": A,
        "outcome": "failed",
        "duration_s": 0.2,
        "file": "tests/test_a.py",
        "line": 14,
        "message": "assert 3 == 4",
    }
    assert (end["state"], end["verdict"], end["tree"], end["run"]) == ("failed", "failed", "3f2a91c4d5e6", "s.1")
    assert (end["counts"]["failed"], end["counts"]["passed"]) == (1, 1)
    assert (objects[-1]["state"], objects[-1]["counts"]["passed"]) == ("passed", 2)


def test_every_kind_of_line_that_the_schema_knows_is_told_and_holds_to_it() -> None:
    story = Story(state=start(Lane.SAVE, Lane.COMMIT)).change().box()
    run = story.working.run.id
    story.on(NoteAdded(Lane.SAVE, story.now, "\x1b[31mpip installs\x07"))
    story.on(SelectionMade(Lane.SAVE, story.now, run, Only((A,), because="a.py changed", is_proof=True)))
    story.sync("t1").collect(A, B).results(passed(A)).confirm(1)
    story.on(SourceChanged(Lane.COMMIT, story.now, frozenset({"HEAD 1"})))
    story.on(SourceChanged(Lane.SAVE, story.now, frozenset({"tests/test_a.py"})))
    story.on(SourceCompared(Lane.SAVE, story.now, run, frozenset({"tests/test_a.py"})))
    story.on(RunEnded(Lane.SAVE, story.now, run, Halted(StopReason.SUPERSEDED)))
    story.on(CancelRequested(Lane.SAVE, story.now, is_kill=True))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.KILLED)))
    story.on(RunRequested(Lane.SAVE, story.now, id="s.r1"))
    story.breaks(LOST)
    story.on(TimerFired(Lane.SAVE, story.now + 60))
    story.sync("t2").end("t2", [passed(A)])
    story.on(ServicesChanged(Lane.SAVE, story.now, (ServiceInfo("kv", "backoff", story.now, 1, "exit code 1"),)))
    story.on(EnvironmentChecked(Lane.SAVE, story.now, "one"))
    story.on(EnvironmentBuilt(Lane.SAVE, story.now, "one", Problem("setup", "pip failed")))
    story.on(PauseRequested(Lane.SAVE, story.now)).on(ResumeRequested(Lane.SAVE, story.now))
    story.on(PolicyRequested(Lane.SAVE, story.now, Policy.FAILED)).on(PolicyRequested(Lane.SAVE, story.now, None))
    story.on(SourceBlocked(Lane.COMMIT, story.now, "a rebase is in progress")).on(
        SourceBlocked(Lane.COMMIT, story.now, "")
    )
    story.on(BoxLost(Lane.SAVE, story.now, Problem("gone", "the container vanished")))
    story.on(QuitRequested(Lane.SAVE, story.now))
    objects = json_objects(story)
    assert set(kinds(objects)) == SCRIPTED
    assert kinds(objects)[-1] == "leaving"
    assert [each["text"] for each in objects if each["event"] == "note"] == ["pip installs"]
    assert "\x1b" not in json.dumps(objects)


def test_a_run_with_nothing_to_do_is_no_new_verdict() -> None:
    story = Story().run("t1", passed(A)).change("a.py")
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Unchanged(snapshot("t1"))))
    end = json_objects(story)[-1]
    assert (end["event"], end["state"], end["verdict"], end["tree"]) == ("ended", "unchanged", "passed", "t1")


def test_what_was_owed_and_never_reported_is_told_before_the_end() -> None:
    story = Story().change().sync("t1").collect(A, B).results(passed(A))
    execution = Execution(0, frozenset({A, B}), {A: passed(A)})
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Judged(snapshot("t1"), execution)))
    end = json_objects(story)[-1]
    assert (end["event"], end["state"]) == ("ended", "error")


def test_a_checkout_of_thousands_of_files_is_a_bounded_line() -> None:
    paths = {f"folder/file{number}.py" for number in range(5000)}
    changed = json_objects(Story().change(*paths))[1]
    assert (changed["count"], len(changed["paths"]), changed["everything"]) == (5000, 100, False)


def test_a_reader_that_went_away_is_not_our_end() -> None:
    class Gone(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    story = Story().change().box(BOX).run("t1", passed(A))
    view = JsonLines(Gone())
    for step in story.steps:
        view.show(*step)


def test_the_schema_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["watch", "--json-lines-schema"]) == 0
    assert json.loads(capsys.readouterr().out) == event_schema()
    jsonschema.Draft202012Validator.check_schema(event_schema())


def test_one_form_at_a_time() -> None:
    with pytest.raises(SystemExit):
        cli.main(["watch", "--plain", "--json-lines"])
