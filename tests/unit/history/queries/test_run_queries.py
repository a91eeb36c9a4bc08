"""Every query about one story: a test breaks, gets worse, is fixed, becomes flaky, and its file moves."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from support.history_records import NOON, Bench, green, red, tree

from watchtest.commands import add_module
from watchtest.core.model import All, Lane, Outcome, Result, Run, RunState, Trigger
from watchtest.errors import UsageError
from watchtest.history.queries.slow_tests import SlowTest
from watchtest.history.store.database_file import history_path

ONE, TWO, SLOW = "tests/test_shop.py::test_one", "tests/test_shop.py::test_two", "tests/test_slow.py::test_slow"
MOVED = "tests/shop/test_prices.py::test_"
Ask = Callable[..., Any]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def bench(tmp_path: Path, workspace: Path) -> Iterator[Bench]:
    """
    s.1  all green
    s.2  src/shop.py broken: test_one red          s.3  nothing but README changed: still red
    s.4  src/tax.py makes it worse: test_one red in another way, test_two red as well
    s.5  superseded before it had a verdict
    s.6  both files mended: all green
    s.7  green, then s.8 red, on the same tree: test_slow is flaky
    s.9  tests/test_shop.py moved to tests/shop/test_prices.py; test_slow takes much longer
    s.10 only test_one, which is broken by src/shop.py
    """
    made = Bench(history_path(tmp_path / "state", workspace), str(workspace))
    files = {
        "src/shop.py": "ok",
        "src/tax.py": "ok",
        "README.md": "1",
        "tests/test_shop.py": "t",
        "tests/test_slow.py": "s",
    }
    moved = {path: text for path, text in files.items() if path != "tests/test_shop.py"} | {
        "tests/shop/test_prices.py": "t"
    }
    with made.store:
        made.ran(tree("t1", files), [green(ONE), green(TWO), green(SLOW, 1.0)])
        broken = files | {"src/shop.py": "broken"}
        made.ran(tree("t2", broken), [red(ONE, "assert 3 == 4"), green(TWO), green(SLOW, 1.0)])
        made.ran(tree("t3", broken | {"README.md": "2"}), [red(ONE, "assert 5 == 4"), green(TWO), green(SLOW, 1.1)])
        worse = broken | {"README.md": "2", "src/tax.py": "worse"}
        by_tax = "unsupported operand: None", "tax"
        made.ran(tree("t4", worse), [red(ONE, *by_tax), red(TWO, *by_tax), green(SLOW, 1.0)])
        made.ran(tree("t5", worse | {"README.md": "3"}), [red(ONE, *by_tax)], state=RunState.SUPERSEDED)
        made.ran(tree("t6", files | {"README.md": "3"}), [green(ONE), green(TWO), green(SLOW, 1.0)])
        same = tree("t7", files | {"README.md": "4"})
        made.ran(same, [green(ONE), green(TWO), green(SLOW, 1.0)])
        made.ran(same, [green(ONE), green(TWO), red(SLOW, "timed out after 31 s", "wait")])
        made.ran(tree("t9", moved | {"README.md": "4"}), [green(MOVED + "one"), green(MOVED + "two"), green(SLOW, 3.0)])
        last = moved | {"README.md": "4", "src/shop.py": "broken again"}
        made.ran(tree("t10", last), [red(MOVED + "one", "assert 7 == 4")], only=True)
        yield made


@pytest.fixture
def ask(bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    monkeypatch.setenv("WATCHTEST_STATE_DIR", str(bench.path.parents[1]))
    monkeypatch.setenv("COLUMNS", "150")

    def asked(*words: str, as_json: bool = True) -> Any:
        parser = argparse.ArgumentParser()
        parser.add_argument("-C", "--workspace", type=Path)
        parser.add_argument("--config", type=Path)
        add_module(parser.add_subparsers(), "history")
        arguments = parser.parse_args(["-C", str(workspace), "history", *words, *(["--json"] if as_json else [])])
        assert arguments.run(arguments) == 0
        said = capsys.readouterr()
        assert said.err == ""
        return json.loads(said.out) if as_json else said.out

    return asked


def ids(pairs: list[dict[str, Any]]) -> list[str]:
    return [pair["identity"] for pair in pairs]


# -- list and show ---------------------------------------------------------------------------------


def test_list_tells_each_run_with_its_end(ask: Ask) -> None:
    states = {run["id"]: run["state"] for run in ask("list")["runs"]}
    assert states == {
        "s.1": "passed",
        "s.2": "failed",
        "s.3": "failed",
        "s.4": "failed",
        "s.5": "superseded",
        "s.6": "passed",
        "s.7": "passed",
        "s.8": "failed",
        "s.9": "passed",
        "s.10": "failed",
    }
    assert [run["id"] for run in ask("list", "--full", "-n", "2")["runs"]] == ["s.9", "s.8"]
    assert ask("list", "--branch", "other")["runs"] == []
    assert ask("list", "--since", "1h")["runs"] == []


def test_show_finds_the_last_red_and_the_last_green(ask: Ask) -> None:
    assert ask("show")["id"] == "s.10"
    assert ask("show", "last-failed")["id"] == "s.10"
    assert ask("show", "last-green")["id"] == "s.9"
    assert ask("show", "s.4")["timings"] == {"wait_s": 1, "sync_s": 1, "select_s": 1, "start_s": 2, "run_s": 4}


# -- test ------------------------------------------------------------------------------------------


def test_a_test_that_is_red_says_since_when_and_what_had_changed(ask: Ask) -> None:
    said = ask("test", MOVED + "one")
    assert said["test"]["identity"] == MOVED + "one"
    assert said["test"]["former"] == [ONE]
    assert [moment["outcome"][0] for moment in said["moments"]] == list("pffffppppf")
    assert (said["turn"]["first"]["id"], said["turn"]["before"]["id"]) == ("s.10", "s.9")
    assert said["turn"]["paths"] == ["src/shop.py"]
    assert said["red_runs"] == 5
    assert [each["signature"] for each in said["complaints"]] == [
        "AssertionError: assert # == # in total",
        "AssertionError: unsupported operand: None in tax",
    ]


def test_a_test_is_found_by_its_old_name_and_by_a_part(ask: Ask) -> None:
    assert ask("test", ONE)["test"]["identity"] == MOVED + "one"
    assert ask("test", "test_slow")["test"]["identity"] == SLOW
    with pytest.raises(UsageError, match="several tests match"):
        ask("test", "prices")
    with pytest.raises(UsageError, match="no such test"):
        ask("test", "nothing like it")
    with pytest.raises(UsageError, match="no recorded run of the commit lane"):
        ask("test", SLOW, "--lane", "commit")


def test_a_whole_name_is_found_among_any_number_of_longer_ones(ask: Ask, bench: Bench) -> None:
    longer = [green(f"tests/test_a.py::test_total_{number:03}") for number in range(60)]
    bench.ran(tree("n", {"a": "1"}), [*longer, green("tests/test_b.py::test_total")])
    assert ask("test", "test_total")["test"]["identity"] == "tests/test_b.py::test_total"


def test_a_test_that_is_green_says_since_when(ask: Ask) -> None:
    said = ask("test", MOVED + "two")
    assert (said["turn"]["first"]["id"], said["turn"]["before"]["id"]) == ("s.6", "s.4")
    assert said["turn"]["paths"] == ["README.md", "src/shop.py", "src/tax.py"]
    shorter = ask("test", MOVED + "two", "-n", "2")
    assert len(shorter["moments"]) == 2
    assert shorter["turn"]["first"]["id"] == "s.6"


def test_the_timeline_is_drawn(ask: Ask) -> None:
    said = ask("test", MOVED + "one", as_json=False)
    assert "failed since run s.10" in said
    assert "changed then: src/shop.py" in said
    assert ".FFFF....F" in said
    assert "▁" in said or "█" in said
    assert f"was {ONE}" in said


# -- compare ---------------------------------------------------------------------------------------


def test_compare_tells_new_fixed_alike_and_otherwise(ask: Ask) -> None:
    worse = ask("compare", "s.3", "s.4")
    assert ids(worse["new_failures"]) == [TWO]
    assert ids(worse["failing_otherwise"]) == [ONE]
    assert worse["paths"] == ["src/tax.py"]
    assert ids(ask("compare", "s.2", "s.3")["failing_alike"]) == [ONE]
    assert ids(ask("compare", "s.4", "s.6")["fixed"]) == [ONE, TWO]


def test_a_test_that_did_not_run_is_not_fixed_and_one_that_moved_is_not_new(ask: Ask) -> None:
    narrow = ask("compare", "s.8", "s.10")
    assert ids(narrow["new_failures"]) == [MOVED + "one"]
    assert narrow["fixed"] == narrow["added"] == narrow["removed"] == []
    assert ids(narrow["not_run"]) == [TWO, SLOW]
    moved = ask("compare", "s.7", "s.9")
    assert moved["added"] == moved["removed"] == []
    assert ids(moved["slower"]) == [SLOW]


def test_added_and_removed_are_told_of_full_runs(ask: Ask, bench: Bench) -> None:
    bench.ran(tree("t11", {"a": "1"}), [green("tests/test_new.py::test_new"), green(SLOW)])
    said = ask("compare", "s.9", "s.11")
    assert ids(said["added"]) == ["tests/test_new.py::test_new"]
    assert ids(said["removed"]) == [MOVED + "one", MOVED + "two"]


# -- analyse ---------------------------------------------------------------------------------------


def test_failures_are_clustered_and_each_cluster_has_its_suspects(ask: Ask) -> None:
    (cluster,) = ask("analyse", "s.4")["clusters"]
    assert cluster["signature"] == "AssertionError: unsupported operand: None in tax"
    assert cluster["tests"] == [ONE, TWO]
    by_tests = {tuple(each["tests"]): each for each in cluster["breaks"]}
    one, two = by_tests[ONE,], by_tests[TWO,]
    assert (one["passed"]["id"], one["failed"]["id"], one["suspects"]) == ("s.1", "s.2", ["src/shop.py"])
    assert (one["this_way"]["id"], one["turned_by"]) == ("s.4", ["src/tax.py"])
    assert (two["passed"]["id"], two["failed"]["id"], two["suspects"]) == ("s.3", "s.4", ["src/tax.py"])


def test_the_last_failure_follows_the_test_through_its_move(ask: Ask) -> None:
    (cluster,) = ask("analyse")["clusters"]
    assert cluster["breaks"][0]["passed"]["id"] == "s.9"
    assert cluster["breaks"][0]["suspects"] == ["src/shop.py"]
    assert ask("analyse", "last-green")["clusters"] == []


def test_what_failed_on_an_unchanged_tree_has_no_suspect(ask: Ask) -> None:
    said = ask("analyse", "s.8", as_json=False)
    assert "suspects      none: nothing changed" in said
    assert "last passed   run s.7" in said


def test_a_test_that_was_skipped_has_neither_passed_nor_failed(ask: Ask, bench: Bench) -> None:
    bench.ran(tree("k1", {"src/shop.py": "k1"}), [green(MOVED + "one"), green(SLOW)])
    bench.ran(tree("k2", {"src/shop.py": "k2"}), [Result(MOVED + "one", Outcome.SKIPPED, 0.0), green(SLOW)])
    said = ask("test", MOVED + "one")
    assert (said["turn"]["first"]["id"], said["turn"]["before"]["id"]) == ("s.12", "s.11")
    assert ids(ask("compare", "s.10", "s.12")["not_run"]) == [MOVED + "one", SLOW], "it is not fixed, nor forgotten"
    assert "(failed in A, skipped in B)" in ask("compare", "s.10", "s.12", as_json=False)
    bench.ran(tree("k3", {"src/shop.py": "k3"}), [red(MOVED + "one"), green(SLOW)])
    (cluster,) = ask("analyse")["clusters"]
    assert cluster["breaks"][0]["passed"]["id"] == "s.11"


def test_what_turned_it_is_what_changed_since_it_last_failed_in_another_way(ask: Ask, bench: Bench) -> None:
    bench.ran(tree("v2", {"src/tax.py": "worse", "README.md": "9"}), [red(ONE)])
    bench.ran(tree("v3", {"src/tax.py": "bad", "README.md": "9"}), [], state=RunState.SUPERSEDED)
    bench.ran(tree("v4", {"src/tax.py": "bad", "README.md": "0"}), [red(ONE, "None", "tax")])
    (cluster,) = ask("analyse")["clusters"]
    assert cluster["breaks"][0]["turned_by"] == ["README.md", "src/tax.py"]


def test_what_a_selection_has_ruled_out_is_no_suspect(ask: Ask, bench: Bench) -> None:
    other, files = "tests/x.py::x", {"src/shop.py": "1", "src/tax.py": "1"}
    bench.ran(tree("w1", files), [green(SLOW), green(other)])
    bench.ran(tree("w2", files | {"src/shop.py": "2"}), [green(other)], only=True)
    bench.ran(tree("w3", files | {"src/shop.py": "2", "src/tax.py": "2"}), [red(SLOW)], only=True)
    (cluster,) = ask("analyse")["clusters"]
    assert (cluster["breaks"][0]["passed"]["id"], cluster["breaks"][0]["suspects"]) == ("s.11", ["src/tax.py"])
    assert ask("test", SLOW)["turn"]["paths"] == ["src/tax.py"]


def test_where_a_selection_was_wrong_everything_is_suspect(ask: Ask, bench: Bench) -> None:
    other, files = "tests/x.py::x", {"src/shop.py": "1", "src/tax.py": "1"}
    bench.ran(tree("w1", files), [green(SLOW), green(other)])
    changed = tree("w2", files | {"src/shop.py": "2"})
    bench.ran(changed, [green(other)], only=True)
    bench.ran(changed, [red(SLOW), green(other)])
    assert ask("analyse")["clusters"][0]["breaks"][0]["suspects"] == ["src/shop.py"]


def test_reports_of_others_do_not_stand_between_a_test_and_its_own_runs(ask: Ask, bench: Bench, tmp_path: Path) -> None:
    report = tmp_path / "ci.json"
    tests = [{"name": MOVED + "one", "status": "passed", "duration": 5}]
    report.write_text(json.dumps({"results": {"tests": tests, "summary": {"start": 1000 * (NOON - 86_400)}}}))
    ask("import", str(report), as_json=False)
    assert ask("list")["runs"][-1]["imported_from"] == str(report), "it is the oldest by its time"
    assert ask("show")["id"] == "s.10"
    said = ask("test", MOVED + "one")
    assert (said["lane"], len(said["moments"])) == ("save", 10)
    assert ask("analyse")["clusters"][0]["breaks"][0]["suspects"] == ["src/shop.py"]


def test_a_broken_test_stays_broken_when_a_report_says_that_it_passed(
    ask: Ask, bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    for number in range(3):
        bench.ran(tree(f"b{number}", {"src/shop.py": str(number)}), [red(SLOW)])
    monkeypatch.setattr(time, "time", lambda: bench.now)
    report = tmp_path / "ci.json"
    report.write_text(json.dumps({"results": {"tests": [{"name": SLOW, "status": "passed", "duration": 5}]}}))
    ask("import", str(report), as_json=False)
    assert {test["identity"]: test["standing"] for test in ask("flaky")["tests"]} == {SLOW: "broken"}


# -- flaky -----------------------------------------------------------------------------------------


def test_the_flaky_one_is_named_with_its_proof_and_no_other(
    ask: Ask, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    monkeypatch.setattr(time, "time", lambda: bench.now)
    (test,) = ask("flaky")["tests"]
    assert (test["identity"], test["standing"]) == (SLOW, "flaky")
    assert [(each["failed_run"], each["passed_run"], each["tree"]) for each in test["evidence"]] == [
        ("s.8", "s.7", "t7")
    ]
    assert (test["failures"], test["runs"]) == (1, 8)
    said = ask("flaky", as_json=False)
    assert "failed in s.8, passed in s.7" in said


def test_how_it_failed_is_told_under_its_new_name(ask: Ask, bench: Bench) -> None:
    x, moved = "tests/x.py::x", "tests/y.py::x"
    for number in range(6):
        result = red(x, "said before") if number % 2 else green(x)
        bench.ran(tree(f"x{number}", {"tests/x.py": "x", "a": str(number)}), [result])
    bench.ran(tree("y", {"tests/y.py": "x"}), [green(moved)])
    (found,) = [test for test in ask("flaky")["tests"] if test["identity"] == moved]
    assert found["signature"] == "AssertionError: said before in total"


def test_flaky_ends_in_recovery_by_time_or_by_passes_on_other_code(
    ask: Ask, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    clock = [bench.now]
    monkeypatch.setattr(time, "time", lambda: clock[0])

    def standing() -> str:
        found = {test["identity"]: test["standing"] for test in ask("flaky", "--all")["tests"]}
        return str(found[SLOW])

    assert standing() == "flaky"
    clock[0] = NOON + 8 * 86_400
    assert standing() == "recovered"
    assert ask("flaky")["tests"] == []
    clock[0] = bench.now
    same = tree("t7", {"src/shop.py": "ok", "README.md": "4"})
    for _ in range(6):
        bench.ran(same, [green(SLOW)])
    assert standing() == "flaky", "the same code is as flaky as it was"
    for number in range(5):
        bench.ran(tree(f"u{number}", {"src/shop.py": str(number)}), [green(SLOW)])
    assert standing() == "recovered"


def test_broken_outranks_flaky_and_flips_alone_are_unstable(
    ask: Ask, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    for number in range(3):
        bench.ran(tree(f"b{number}", {"src/shop.py": str(number)}), [red(SLOW)])
    for number in range(6):
        result = red("tests/x.py::x") if number % 2 else green("tests/x.py::x")
        bench.ran(tree(f"x{number}", {"src/shop.py": f"x{number}"}), [result])
    monkeypatch.setattr(time, "time", lambda: bench.now)
    found = {test["identity"]: test["standing"] for test in ask("flaky")["tests"]}
    assert found == {SLOW: "broken", "tests/x.py::x": "unstable"}


# -- slowest, trend, cost --------------------------------------------------------------------------


def test_slowest_comes_first_with_its_share_and_its_growth(ask: Ask) -> None:
    first, *others = ask("slowest")["tests"]
    assert first["identity"] == SLOW
    assert first["median_s"] == 1.0
    assert first["longest_s"] == 3.0
    assert first["share"] > 0.7
    assert {test["identity"] for test in others} == {MOVED + "one", MOVED + "two"}
    assert "█" in ask("slowest", as_json=False)


def test_some_milliseconds_more_are_noise() -> None:
    def growth(*durations_s: float) -> float | None:
        return SlowTest("t", 0.0, 0.0, 0.0, durations_s).growth

    assert growth(0.001, 0.001, 0.001, 0.009, 0.009, 0.009) is None
    assert growth(0.1, 0.1, 0.1, 0.4, 0.4, 0.4) == 4


def test_a_trend_is_made_of_full_runs_alone(ask: Ask) -> None:
    by_run = ask("trend", "--by", "run", "--since", "all")["buckets"]
    assert [bucket["name"] for bucket in by_run] == ["s.1", "s.2", "s.3", "s.4", "s.6", "s.7", "s.8", "s.9"]
    (day,) = ask("trend", "--since", "all")["buckets"]
    assert (day["runs"], day["green"], day["tests"], day["run_s"]) == (8, 4, 3, 4.0)
    assert "no full runs" in ask("trend", "--since", "1h", as_json=False)
    assert "50%" in ask("trend", "--since", "all", as_json=False)


def test_cost_tells_time_spent_wasted_and_saved(ask: Ask) -> None:
    (lane,) = ask("cost", "--since", "all")["lanes"]
    assert (lane["lane"], lane["runs"], lane["judged"], lane["narrowed"]) == ("save", 10, 9, 1)
    assert lane["spent_s"] == 90.0
    assert lane["testing_s"] == 40.0
    assert lane["wasted_s"] == 9.0
    assert lane["saved_s"] == 0.0, "the narrow run took as long as a full one"
    assert "saved by leaving tests out of 1 run" in ask("cost", "--since", "all", as_json=False)


def test_a_run_that_never_began_cost_nothing(ask: Ask, bench: Bench) -> None:
    spent = ask("cost", "--since", "all")["lanes"][0]["spent_s"]
    run = Run("q", Lane.SAVE, Trigger.MANUAL, All("asked for"), is_forced=True)
    bench.store.begin(run, bench.now, bench.workspace)
    bench.store.end("q", RunState.CANCELLED, "called off", bench.now + 3600, "")
    assert ask("cost", "--since", "all")["lanes"][0]["spent_s"] == spent


# -- runs of the dead ------------------------------------------------------------------------------


def test_a_run_whose_watcher_is_dead_is_not_said_to_run(ask: Ask, bench: Bench, workspace: Path) -> None:
    bench.store.begin(Run("dead.1", Lane.SAVE, Trigger.SAVE, All("all tests")), bench.now + 60, bench.workspace)
    bench.store.begin(Run("dead-gate.1", Lane.SAVE, Trigger.SAVE, All("all tests")), bench.now + 60, bench.workspace)
    bench.store.begin(Run("gone.1", Lane.SAVE, Trigger.SAVE, All("all tests")), bench.now + 60, f"{workspace}-removed")
    (workspace / ".watchtest").mkdir()

    def open_runs() -> set[str]:
        return {run["id"] for run in ask("list", "--all-worktrees")["runs"] if run["ended_at"] is None}

    with FileLock(workspace / ".watchtest" / "lock"), FileLock(workspace / ".watchtest" / "gate.lock"):
        assert open_runs() == {"dead.1", "dead-gate.1"}, "a held lock means alive; without a folder there is none"
    assert open_runs() == set()
    assert (ask("show", "dead.1")["state"], ask("show", "dead.1")["reason"]) == ("broken", "the watcher died")


# -- on any terminal -------------------------------------------------------------------------------

EVERY = [
    ["list"],
    ["show", "s.4"],
    ["test", MOVED + "one"],
    ["compare", "s.3", "s.4"],
    ["analyse", "s.4"],
    ["flaky", "--all"],
    ["slowest"],
    ["trend", "--since", "all"],
    ["cost", "--since", "all"],
    ["prune", "--dry-run", "--runs", "3", "--days", "0"],
]


@pytest.mark.parametrize("columns", ["20", "80"])
@pytest.mark.parametrize("words", EVERY, ids=lambda words: words[0])
def test_every_question_is_answered_in_any_width_and_without_colour(
    ask: Ask, monkeypatch: pytest.MonkeyPatch, columns: str, words: list[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert "\x1b[" in ask(*words, as_json=False) or words[0] == "prune"
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.delenv("FORCE_COLOR")
    said = ask(*words, as_json=False)
    assert said.strip()
    assert "\x1b" not in said


def test_pruning_shows_first_and_drops_then(ask: Ask, bench: Bench) -> None:
    assert "7 runs would be dropped" in ask("prune", "-n", "--runs", "3", "--days", "0", as_json=False)
    assert len(ask("list")["runs"]) == 10
    said = ask("prune", "--runs", "3", "--days", "0", as_json=False)
    assert "7 runs dropped" in said
    assert "beyond the latest 3 runs" in said
    assert [run["id"] for run in ask("list")["runs"]] == ["s.10", "s.9", "s.8"]
    assert ask("prune", "--runs", "3", "--days", "0", as_json=False).startswith("nothing to drop")
    bench.ran(tree("t11", {"src/shop.py": "x"}), [green(MOVED + "one")])
    assert ask("test", MOVED + "one")["turn"]["first"]["id"] == "s.11"


def test_lanes_that_disagree_are_no_flips(ask: Ask, bench: Bench) -> None:
    """During an edit, the working tree stays red and the commit green, run after run."""
    for number in range(8):
        bench.ran(tree(f"s{number}", {"src/shop.py": f"s{number}"}), [red("tests/x.py::x")])
        bench.ran(tree("c", {"src/shop.py": "ok"}), [green("tests/x.py::x")], lane=Lane.COMMIT)
    assert "tests/x.py::x" not in {test["identity"] for test in ask("flaky")["tests"]}
