"""`watchtest history list|show`, as a user sees it."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from watchtest.commands import add_module
from watchtest.core.model import (
    All,
    Failure,
    Lane,
    Location,
    Outcome,
    Provisional,
    ProvisionalCode,
    Result,
    Run,
    RunState,
    Snapshot,
    Trigger,
)
from watchtest.errors import UsageError, WatchtestError
from watchtest.history.queries.run_queries import full_verdict
from watchtest.history.store.database_file import history_path
from watchtest.history.store.store import Store

Ask = Callable[..., str]

RED = Result(
    "tests/test_a.py::test_two[red]",
    Outcome.FAILED,
    0.5,
    Failure(
        "AssertionError",
        "assert 1 == 2",
        where=Location("tests/test_a.py", 12),
        text="E   assert 1 == 2 \x1b[31m[bold]not markup[/bold]\x1b]0;title\x07",
        output="said by the test",
    ),
)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def ask(tmp_path: Path, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    monkeypatch.setenv("WATCHTEST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("COLUMNS", "160")

    def asked(*words: str, within: Path = workspace) -> str:
        parser = argparse.ArgumentParser()
        parser.add_argument("-C", "--workspace", type=Path)
        add_module(parser.add_subparsers(), "history")
        arguments = parser.parse_args(["-C", str(within), "history", *words])
        assert arguments.run(arguments) == 0
        said = capsys.readouterr()
        assert said.err == ""
        return said.out

    return asked


@pytest.fixture
def filled(tmp_path: Path, workspace: Path) -> Store:
    """s.1 passed, s.2 failed, s.3 broke, s.4 is in progress in another worktree."""
    with Store(history_path(tmp_path / "state", workspace)) as store:
        ends = ((1, RunState.PASSED), (2, RunState.FAILED), (3, RunState.BROKEN))
        for number, state in ends:
            run = Run(f"s.{number}", Lane.SAVE, Trigger.SAVE, All("all tests"))
            store.begin(run, 1_700_000_000.0 + number, str(workspace))
            if state is not RunState.BROKEN:
                snapshot = Snapshot("deadbeefcafe", {}, head="c0ffee", branch="main", dirty=True)
                store.start(run, 1_700_000_000.25 + number)
                store.set_snapshot(run.id, snapshot, "python:3.11")
                store.advance(run.id, RunState.RUNNING, 1_700_000_000.5 + number)
                passed = [Result(f"tests/test_a.py::test_{i}", Outcome.PASSED, 0.1) for i in range(3)]
                store.add_results(run.id, [*passed, RED] if number == 2 else passed, 1_700_000_001.0 + number)
            reason = "the engine\x1b[2J is gone" if state is RunState.BROKEN else ""
            store.end(run.id, state, reason, 1_700_000_002.0 + number, f"raw output of {number}\x1b[2J\n")
        store.begin(Run("s.4", Lane.COMMIT, Trigger.MANUAL, All("all tests")), 1_700_000_009.0, "/other/worktree")
    return store


def test_no_history_is_no_error_for_list(ask: Ask, tmp_path: Path) -> None:
    assert ask("list") == "no runs yet\n"
    assert json.loads(ask("list", "--json")) == {"runs": []}
    assert not (tmp_path / "state").exists()


def test_show_without_a_history_says_how_to_begin_one(ask: Ask) -> None:
    with pytest.raises(UsageError, match="no runs yet") as caught:
        ask("show")
    assert "watchtest watch" in caught.value.hint


def test_a_provisional_verdict_is_marked_and_is_none_for_the_gate(ask: Ask, tmp_path: Path, workspace: Path) -> None:
    by_hand = Provisional(ProvisionalCode.BY_HAND, "changed by hand: pip install x")
    with Store(history_path(tmp_path / "state", workspace)) as store:
        for number, provisional in ((1, None), (2, by_hand)):
            run = Run(f"s.{number}", Lane.SAVE, Trigger.SAVE, All("all tests"))
            store.begin(run, 1_700_000_000.0 + number, str(workspace))
            store.start(run, 1_700_000_000.1 + number)
            store.set_snapshot(run.id, Snapshot("cafe", {}), "python:3.11")
            store.end(run.id, RunState.PASSED, "", 1_700_000_000.2 + number, "", provisional)
        known = store.query(lambda connection: full_verdict(connection, "cafe", "python:3.11"))
    assert known is not None
    assert known.id == "s.1"
    assert "passed (provisional: by hand)" in ask("list")
    assert "passed (provisional: changed by hand: pip install x)" in ask("show", "s.2")
    assert json.loads(ask("show", "s.2", "--json"))["provisional"]["code"] == "by_hand"


@pytest.mark.usefixtures("filled")
def test_list_shows_the_runs_of_this_workspace_newest_first(ask: Ask) -> None:
    heading, *lines = ask("list").splitlines()

    assert heading.split() == ["run", "when", "lane", "by", "state", "tests", "took", "tree", "branch"]
    assert [line.split()[0] for line in lines] == ["s.3", "s.2", "s.1"]
    assert "failed" in lines[1]
    assert "1 failed, 3 passed" in lines[1]
    assert "2.0s" in lines[1]
    assert "deadbeef" in lines[1]


@pytest.mark.usefixtures("filled")
def test_list_takes_a_length_a_lane_a_state_and_all_worktrees(ask: Ask) -> None:
    def ids(*words: str) -> list[str]:
        return [run["id"] for run in json.loads(ask("list", "--json", *words))["runs"]]

    assert ids("-n", "1") == ["s.3"]
    assert ids("--state", "passed", "--state", "failed") == ["s.2", "s.1"]
    assert ids("--all-worktrees") == ["s.4", "s.3", "s.2", "s.1"]
    assert ids("--all-worktrees", "--lane", "commit") == ["s.4"]
    assert ask("list", "--lane", "stage") == "no matching runs\n"
    assert "/other/worktree" in ask("list", "--all-worktrees")


@pytest.mark.parametrize("words", [("-n", "0"), ("-n", "-1"), ("-n", "many"), ("--lane", "x"), ("--state", "x")])
def test_a_wrong_flag_is_a_usage_error(ask: Ask, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit) as caught:
        ask("list", *words)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.usefixtures("filled")
def test_show_tells_the_story_of_a_run_and_its_failures(ask: Ask) -> None:
    said = ask("show", "last-failed")

    for part in (
        "s.2",
        "queued +0.0s > syncing +0.2s > running +0.5s > failed +2.0s",
        "deadbeefcafe",
        "c0ffee main with uncommitted changes",
    ):
        assert part in said
    assert "FAILED tests/test_a.py::test_two[red]  tests/test_a.py:12" in said
    assert "    E   assert 1 == 2 [bold]not markup[/bold]" in said
    assert "    said by the test" in said
    assert "test_0" not in said
    assert "raw output" not in said


@pytest.mark.usefixtures("filled")
def test_show_lists_every_test_and_the_output_when_asked(ask: Ask) -> None:
    said = ask("show", "s.2", "--tests", "--output")

    assert re.search(r"passed +0\.100 +tests/test_a\.py::test_0\b", said)
    assert "raw output of 2" in said


@pytest.mark.usefixtures("filled")
def test_show_gives_the_output_of_a_run_that_reported_nothing(ask: Ask) -> None:
    said = ask("show")

    assert "broken: the engine is gone" in said
    assert "raw output of 3" in said


@pytest.mark.usefixtures("filled")
def test_nothing_from_a_box_steers_the_terminal(ask: Ask) -> None:
    for words in (["list"], ["show", "s.2", "--output"], ["show", "s.3"], ["show", "s.2", "--json"]):
        assert "\x1b" not in ask(*words)


@pytest.mark.usefixtures("filled")
def test_show_as_json_holds_all_that_is_kept(ask: Ask) -> None:
    said = json.loads(ask("show", "s.2", "--json"))

    assert said["state"] == "failed"
    assert said["code"] == {"tree": "deadbeefcafe", "head": "c0ffee", "branch": "main", "dirty": True}
    assert said["counts"] == {"passed": 3, "failed": 1}
    assert said["queued_at"] == "2023-11-14T22:13:22.000Z"
    assert [each["state"] for each in said["states"]] == ["queued", "syncing", "running", "failed"]
    red = said["results"][-1]
    assert (red["test"], red["outcome"], red["attempt"]) == (RED.test, "failed", 1)
    assert (red["failure"]["file"], red["failure"]["line"]) == ("tests/test_a.py", 12)
    assert red["failure"]["text"] == RED.failure.text if RED.failure else ""


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    ("name", "hint"), [("lst", "did you mean last?"), ("s.22", "did you mean s.2?"), ("x", "history list")]
)
def test_an_unknown_run_is_a_usage_error_with_a_suggestion(ask: Ask, name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="no such run") as caught:
        ask("show", name)
    assert hint in caught.value.hint


@pytest.mark.usefixtures("filled")
def test_show_without_a_name_is_about_this_workspace(ask: Ask) -> None:
    assert json.loads(ask("show", "--json"))["id"] == "s.3"
    assert json.loads(ask("show", "--json", "--all-worktrees"))["id"] == "s.4"


def test_a_damaged_history_is_one_clear_error(ask: Ask, tmp_path: Path, workspace: Path) -> None:
    path = history_path(tmp_path / "state", workspace)
    path.parent.mkdir(parents=True)
    path.write_bytes(b"not a database" * 100)

    with pytest.raises(WatchtestError, match="is damaged"):
        ask("list")
    with pytest.raises(WatchtestError, match="is damaged"):
        ask("show")


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("columns", ["20", "40", "80"])
def test_a_narrow_terminal_still_gets_an_answer(ask: Ask, monkeypatch: pytest.MonkeyPatch, columns: str) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    said = ask("list")
    assert "s.3" in said
    assert "failed" in said
    assert all(len(line) <= int(columns) for line in said.splitlines())
    assert "AssertionError" in ask("show", "s.2", "--json")
    assert "assert 1 == 2" in ask("show", "s.2")
