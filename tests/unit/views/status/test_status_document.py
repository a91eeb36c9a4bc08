"""The status document matches its schema at every moment of a story."""

from __future__ import annotations

import json
from dataclasses import replace

import jsonschema
import pytest
from support.view_output import WRITER, of
from support.watcher_states import BOX, NOON, Story, failed, passed, skipped, snapshot, start

from watchtest.core.events import CancelRequested, Halted, PauseRequested, RunEnded
from watchtest.core.model import Failure, Lane, Location, Outcome, Result, StopReason
from watchtest.core.state import State
from watchtest.core.step import leave
from watchtest.core.text import EXCERPT_LIMIT, MESSAGE_LIMIT
from watchtest.views.schemas import status_schema
from watchtest.views.status.status_document import FAILURES_LIMIT, document
from watchtest.views.status.status_document import locations as said_locations

A, B, C = (f"tests/test_a.py::test_{name}" for name in "abc")


def test_the_schema_is_a_valid_schema_that_allows_nothing_else() -> None:
    schema = status_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    for holder in (schema, schema["$defs"]["lane"], schema["$defs"]["failure"], schema["$defs"]["counts"]):
        assert holder["additionalProperties"] is False
    with pytest.raises(jsonschema.ValidationError, match="weight"):
        jsonschema.validate(of(start()) | {"weight": "light"}, schema)
    incomplete = of(start())
    del incomplete["pending"]
    with pytest.raises(jsonschema.ValidationError, match="pending"):
        jsonschema.validate(incomplete, schema)


def test_at_the_start_nothing_is_invented() -> None:
    written = of(start())
    assert written["activity"] == "starting"
    assert written["verdict"] == "unknown"
    for key in ("verdict_at", "run_id", "scope", "progress", "run_counts", "box", "problem", "reason"):
        assert written[key] is None, key
    assert written["code"] == dict.fromkeys(("tree", "head", "branch", "dirty", "trigger")) | {"source": "worktree"}
    assert written["pending"] == {"changes": 0, "since": None}
    assert written["updated_at"] == "2023-11-14T22:13:20.000Z"
    assert written["lanes"]["stage"] is None


def test_a_verdict_names_its_code_and_its_failures() -> None:
    story = (
        Story().box().run("t1", passed(A), passed(B)).run("t2", failed(A, output="printed\n"), passed(B), skipped(C))
    )
    written = of(story.state)
    assert (written["activity"], written["verdict"], written["run_id"]) == ("idle", "failed", "s.2")
    assert written["code"] == {
        "source": "worktree",
        "tree": "t2",
        "head": "c0ffee00",
        "branch": "main",
        "dirty": True,
        "trigger": "save",
    }
    assert written["known_counts"] == {"passed": 1, "failed": 1, "error": 0, "skipped": 1, "xfailed": 0, "stale": 0}
    assert written["run_counts"] == written["known_counts"]
    assert written["scope"] == {"kind": "all", "wave": None, "selected": 3, "known": 3, "because": "all tests"}
    assert written["failures"] == [
        {
            "id": A,
            "kind": "AssertionError",
            "file": "tests/test_a.py",
            "line": 14,
            "column": None,
            "source_line": "    assert total([1, 2]) == 4",
            "message": "assert 3 == 4",
            "crash": {"file": "shop/cart.py", "line": 7},
            "confirmed": True,
            "new": True,
            "since": written["verdict_at"],
            "flaky": None,
            "output": "printed\n",
        }
    ]
    assert written["box"]["since"] == "2023-11-14T22:12:20.000Z"
    assert written["lanes"]["save"] == {key: written[key] for key in written["lanes"]["save"]}


def test_each_activity_has_its_word() -> None:
    story = Story().change()
    assert of(story.state)["activity"] == "syncing"
    story.sync("t1").collect(A, B).results(passed(A))
    written = of(story.state)
    assert written["activity"] == "running"
    assert written["progress"] == {"done": 1, "total": 2, "eta_s": 0.0}
    assert written["scope"]["selected"] == 2
    story.breaks()
    written = of(story.state)
    assert written["activity"] == "degraded"
    assert written["problem"]["code"] == "engine"
    idle = Story().run("t1", passed(A))
    assert of(idle.state)["activity"] == "idle"
    assert of(idle.state)["progress"] is None
    assert of(idle.on(PauseRequested(Lane.SAVE, NOON)).state)["activity"] == "paused"
    assert of(leave(idle.state))["activity"] == "stopped"


def test_what_a_run_carries_is_pending_until_it_was_judged() -> None:
    story = Story().run("t1", passed(A)).change("a.py")
    assert of(story.state)["pending"]["changes"] == 1
    story.change("b.py").sync("t2").collect(A)
    assert of(story.state)["pending"]["changes"] == 2
    story.end("t2", [passed(A)])
    assert of(story.state)["pending"]["changes"] == 1  # b.py came after the snapshot; the next run covers it
    story.sync("t3").collect(A).end("t3", [passed(A)])
    assert of(story.state)["pending"] == {"changes": 0, "since": None}


def test_a_cancelled_run_leaves_the_verdict_and_gives_back_its_change() -> None:
    story = Story().run("t1", passed(A)).change("a.py").sync("t2").collect(A).results(failed(A))
    story.on(CancelRequested(Lane.SAVE, story.now))
    story.on(RunEnded(Lane.SAVE, story.now, story.working.run.id, Halted(StopReason.CANCELLED)))
    written = of(story.state)
    assert (written["verdict"], written["code"]["tree"], written["pending"]["changes"]) == ("passed", "t1", 1)
    assert written["run_counts"]["failed"] == 1
    assert written["known_counts"]["failed"] == 0


def test_tests_that_did_not_run_on_the_tree_are_stale() -> None:
    story = Story().run("t1", passed(A), passed(B))
    broken = Result("tests/test_b.py", Outcome.ERROR, 0.0, Failure("collection", "SyntaxError"))
    story.change("x.py").sync("t2").collect(A).end("t2", [passed(A)], exit_code=2, collection_errors=(broken,))
    written = of(story.state)
    assert written["verdict"] == "error"
    assert written["reason"] == "1 file could not be collected: tests/test_b.py: SyntaxError"
    assert written["known_counts"]["stale"] == 1
    assert written["run_counts"]["error"] == 1
    assert written["failures"][0]["file"] is None


def test_many_and_long_failures_are_cut_and_it_is_said() -> None:
    long = [failed(f"t.py::t{number}", message="m" * 9000, output="o" * 90_000) for number in range(FAILURES_LIMIT + 5)]
    written = of(Story().run("t1", *long).state)
    assert len(written["failures"]) == FAILURES_LIMIT
    assert written["failures_total"] == FAILURES_LIMIT + 5
    assert written["truncated"] is True
    assert len(written["failures"][0]["message"]) == MESSAGE_LIMIT
    assert len(written["failures"][0]["output"]) == EXCERPT_LIMIT
    assert len(json.dumps(written)) < 3_000_000
    assert of(Story().run("t1", failed(A)).state)["truncated"] is False


def test_text_from_the_box_comes_without_control_sequences() -> None:
    evil = "\x1b]52;c;aGk=\x07\x1b[2J\x9b31mhi\x00\u202e\ud800"
    result = failed(A, message=evil, output=evil)
    story = Story().box(replace(BOX, image=evil)).run("t1", result)
    written = of(story.state)
    assert written["failures"][0]["message"] == "hi\ufffd"
    assert written["failures"][0]["output"] == "hi\ufffd"
    assert written["box"]["image"] == "hi\ufffd"


def test_a_line_that_cannot_be_is_not_passed_on() -> None:
    failure = Failure("odd", "m", where=Location("a.py", 0), column=-1, crash=Location("a.py", -3))
    written = of(Story().run("t1", Result(A, Outcome.FAILED, 0.1, failure)).state)
    assert (written["failures"][0]["line"], written["failures"][0]["column"]) == (None, None)


def test_the_top_level_shows_the_highest_lane_and_each_lane_its_own() -> None:
    story = Story(start(Lane.COMMIT, Lane.SAVE), lane=Lane.COMMIT).run("t1", failed(A))
    written = of(story.state)
    assert written["verdict"] == "unknown"
    assert written["lanes"]["commit"]["verdict"] == "failed"
    assert written["lanes"]["commit"]["code"]["source"] == "head"


def test_locations_have_one_line_a_failure() -> None:
    nowhere = Result("tests/test_b.py", Outcome.ERROR, 0.0, Failure("collection", "SyntaxError: bad\nmore"))
    story = Story().change().sync("t1").collect(A)
    story.end("t1", [failed(A, message="\nassert 1 == 2\n + 1", column=5)], exit_code=1, collection_errors=(nowhere,))
    assert (
        said_locations(story.state.top)
        == "tests/test_a.py:14:5: assert 1 == 2\ntests/test_b.py:1:1: SyntaxError: bad\n"
    )


def test_the_snapshot_of_a_detached_head_has_no_branch() -> None:
    story = Story().change().sync("t1").collect(A)
    run = story.working.run.id
    story.end("t1", [passed(A)])
    lane = story.state.top
    bare = replace(lane, knowledge=replace(lane.knowledge, snapshot=replace(snapshot("t1"), branch=None, head=None)))
    written = of(State({lane.lane: bare}))
    assert (written["code"]["branch"], written["code"]["head"], written["run_id"]) == (None, None, run)


def test_a_flaky_test_is_marked_and_is_as_red_as_any_other() -> None:
    state = Story().run("t1", failed(A), failed(B), passed(C)).state
    written = document(state, seq=1, now=NOON, writer=WRITER, flaky=frozenset({A, C}))
    jsonschema.Draft202012Validator(status_schema()).validate(written)
    assert written["verdict"] == "failed"
    assert {failure["id"]: failure["flaky"] for failure in written["failures"]} == {A: True, B: False}
