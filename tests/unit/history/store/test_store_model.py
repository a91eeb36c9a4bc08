"""What the store derives from runs: attempts, times, trees, renames, evidence and pruning."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
from support.history_records import NOON, Bench, detail_of, green, red, tree

from watchtest.core.model import All, Lane, Only, Outcome, Result, Run, RunState, Snapshot, Trigger
from watchtest.errors import WorkspaceError
from watchtest.history.queries.flaky_tests import flaky_tests
from watchtest.history.queries.run_queries import RunDetail, RunFilter, Timings, recent_runs
from watchtest.history.queries.test_names import find_tests
from watchtest.history.store.columns import AttemptKind, Proof
from watchtest.history.store.database import transaction
from watchtest.history.store.database_file import open_for_reading, open_for_writing
from watchtest.history.store.retention import DAY_S, RetentionLimits, plan_pruning, used_bytes
from watchtest.history.store.schema import MIGRATIONS
from watchtest.history.store.store import Store
from watchtest.history.store.tree_changes import changes_between

A, B = "tests/test_a.py::test_one", "tests/test_a.py::test_two"
T1, T2 = tree("t1", {"src/a.py": "1", "tests/test_a.py": "t"}), tree("t2", {"src/a.py": "2", "tests/test_a.py": "t"})


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "history.sqlite3")
    with made.store:
        yield made


def shown(bench: Bench, name: str) -> RunDetail:
    with open_for_reading(bench.path) as connection:
        found = detail_of(connection, name)
    assert found is not None
    return found


def proofs(bench: Bench) -> list[tuple[str, Proof, str, str]]:
    with open_for_reading(bench.path) as connection:
        found = flaky_tests(connection, RunFilter("/w"), bench.now)
    return [(test.identity, each.proof, each.failed_run, each.passed_run) for test in found for each in test.evidence]


def rows(bench: Bench, table: str) -> int:
    with open_for_reading(bench.path) as connection:
        return int(connection.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])


# -- attempts --------------------------------------------------------------------------------------


def test_the_rows_of_an_ended_run_become_a_pack(bench: Bench) -> None:
    bench.ran(T1, [green(A), red(B)])
    assert rows(bench, "results") == 0
    found = shown(bench, "s.1")
    assert [(each.result, each.attempt) for each in found.results] == [(green(A), 1), (red(B), 1)]
    assert found.run.counts == {Outcome.PASSED: 1, Outcome.FAILED: 1}


def test_a_red_that_a_fresh_process_confirms_is_one_red_and_no_sign_of_chance(bench: Bench) -> None:
    bench.ran(T1, [green(A), red(B, "assert 1")], checks=[red(B, "assert 2")])
    found = shown(bench, "s.1")
    assert found.run.counts == {Outcome.PASSED: 1, Outcome.FAILED: 1}
    assert [(each.attempt, each.kind) for each in found.results if each.result.test == B] == [
        (1, AttemptKind.WORD),
        (2, AttemptKind.CHECK),
    ]
    assert proofs(bench) == []


def test_a_red_that_a_fresh_process_refutes_is_ours_and_no_sign_of_chance(bench: Bench) -> None:
    bench.ran(T1, [green(A), red(B)], checks=[green(A), green(B)])
    found = shown(bench, "s.1")
    assert found.run.counts == {Outcome.PASSED: 2}
    assert found.run.state is RunState.PASSED
    assert [each.result.outcome for each in found.results] == [Outcome.PASSED, Outcome.FAILED, Outcome.PASSED]
    assert [each.result.outcome for each in found.final_results] == [Outcome.PASSED, Outcome.PASSED]
    assert proofs(bench) == []


def test_what_passed_when_the_same_run_was_repeated_is_a_proof(bench: Bench) -> None:
    bench.store.begin(begun("s.9"), NOON, "/w")
    bench.store.set_snapshot("s.9", T1, "e")
    bench.store.add_results("s.9", [red(B)], NOON)
    bench.store.add_results("s.9", [green(B)], NOON, AttemptKind.CHECK)
    bench.store.add_chance_failures("s.9", [B, "never seen"], NOON)
    bench.store.end("s.9", RunState.PASSED, "", NOON + 1, "")
    assert proofs(bench) == [(B, Proof.REPEAT, "s.9", "s.9")]


def test_what_the_runner_repeated_until_it_passed_is_a_proof(bench: Bench) -> None:
    bench.ran(T1, [Result(A, Outcome.PASSED, 0.1, reruns=2), Result(B, Outcome.FAILED, 0.1, red(B).failure, reruns=2)])
    assert proofs(bench) == [(A, Proof.RERUN, "s.1", "s.1")]


def begun(name: str) -> Run:
    return Run(name, Lane.SAVE, Trigger.SAVE, All("all tests"))


# -- evidence --------------------------------------------------------------------------------------


def test_passed_and_failed_on_one_tree_in_one_environment_is_a_proof(bench: Bench) -> None:
    bench.ran(T1, [green(A), red(B)])
    bench.ran(T1, [green(A), green(B)])
    assert proofs(bench) == [(B, Proof.RUNS, "s.1", "s.2")]


@pytest.mark.parametrize("order", [1, -1])
def test_another_tree_or_another_environment_proves_nothing(bench: Bench, order: int) -> None:
    for results in ([red(A)], [green(A)])[::order]:
        bench.ran(T1 if results == [red(A)] else T2, results)
        bench.ran(T2, [], environment="image:2")
    bench.ran(T1, [green(A)], environment="image:2")
    assert proofs(bench) == []


def test_a_run_that_was_ended_from_outside_proves_nothing(bench: Bench) -> None:
    bench.ran(T1, [red(A)], state=RunState.CANCELLED)
    bench.ran(T1, [red(A)], state=RunState.BROKEN)
    bench.ran(T1, [green(A)])
    assert proofs(bench) == []


def test_a_box_that_was_changed_by_hand_proves_nothing(bench: Bench) -> None:
    bench.ran(T1, [red(A)], environment="image:1 by hand")
    bench.ran(T1, [green(A)], environment="image:1 by hand")
    assert proofs(bench) == []


def test_a_skipped_test_has_not_passed(bench: Bench) -> None:
    bench.ran(T1, [red(A)])
    bench.ran(T1, [Result(A, Outcome.SKIPPED, 0.0)])
    assert proofs(bench) == []


# -- times and trees -------------------------------------------------------------------------------


def test_each_part_of_a_run_has_its_time(bench: Bench) -> None:
    bench.ran(T1, [green(A)])
    assert shown(bench, "s.1").run.timings == Timings(wait_s=1, sync_s=1, select_s=1, start_s=2, run_s=4)


def changed(bench: Bench, earlier: str, later: str) -> set[str] | None:
    with open_for_reading(bench.path) as connection:
        found = changes_between(connection, shown(bench, earlier).run.number, shown(bench, later).run.number)
    return None if found is None else set(found[1])


def test_what_changed_between_two_runs_is_known_also_after_a_new_start(bench: Bench) -> None:
    bench.ran(T1, [green(A)])
    bench.ran(T2, [green(A)])
    bench.store.close()
    bench.store = Store(bench.path)
    with bench.store:
        bench.ran(tree("t3", {"src/a.py": "2", "new.py": "n"}), [green(A)])
    assert changed(bench, "s.1", "s.2") == {"src/a.py"}
    assert changed(bench, "s.2", "s.3") == {"tests/test_a.py", "new.py"}
    assert changed(bench, "s.1", "s.3") == {"src/a.py", "tests/test_a.py", "new.py"}
    assert changed(bench, "s.3", "s.1") == {"src/a.py", "tests/test_a.py", "new.py"}


def test_other_lanes_and_workspaces_have_chains_of_their_own(bench: Bench) -> None:
    bench.ran(T1, [green(A)])
    bench.ran(T2, [green(A)], lane=Lane.COMMIT)
    bench.ran(T1, [green(A)])
    assert changed(bench, "s.1", "s.3") == set()
    assert changed(bench, "s.1", "s.2") is None


# -- names -----------------------------------------------------------------------------------------


def test_a_test_is_the_same_when_its_file_was_moved(bench: Bench) -> None:
    moved = tree("t2", {"src/a.py": "1", "tests/shop/test_a.py": "t"})
    bench.ran(T1, [green(A), green(B)])
    bench.ran(moved, [], state=RunState.CANCELLED)
    bench.ran(moved, [green("tests/shop/test_a.py::test_one"), green("tests/shop/test_a.py::test_new")])
    with open_for_reading(bench.path) as connection:
        (by_old,) = find_tests(connection, A)
        (by_new,) = find_tests(connection, "tests/shop/test_a.py::test_one")
        (other,) = find_tests(connection, "tests/shop/test_a.py::test_new")
    assert by_old == by_new
    assert (by_new.identity, by_new.former) == ("tests/shop/test_a.py::test_one", (A,))
    assert other.former == ()


def test_a_copied_file_holds_other_tests(bench: Bench) -> None:
    bench.ran(T1, [green(A)])
    bench.ran(
        tree("t2", {"src/a.py": "1", "tests/test_a.py": "t", "tests/test_b.py": "t"}),
        [green(A), green("tests/test_b.py::test_one")],
    )
    with open_for_reading(bench.path) as connection:
        (found,) = find_tests(connection, "tests/test_b.py::test_one")
    assert found.former == ()


def same_test(bench: Bench, new: str, former: tuple[str, ...]) -> bool:
    with open_for_reading(bench.path) as connection:
        (found,) = find_tests(connection, new)
    return (found.identity, found.former) == (new, former)


def edited(content: str) -> Snapshot:
    return tree(f"e{content}", {"src/a.py": "1", "tests/test_a.py": content})


@pytest.mark.parametrize("is_superseded", [False, True])
def test_a_test_is_the_same_when_it_was_renamed(bench: Bench, is_superseded: bool) -> None:
    new, file = "tests/test_a.py::test_three", ["tests/test_a.py"]
    bench.ran(T2, [], state=RunState.SUPERSEDED)
    bench.ran(T1, [green(A), green(A + "_more"), red(B)])
    bench.ran(edited("w"), [green(A)], only=True)
    if is_superseded:
        bench.ran(edited("x"), [red(new)], only=True, whole=file, state=RunState.SUPERSEDED)
    bench.ran(edited("y"), [green(A), green(A + "_more"), red(new)], only=True, whole=file)
    assert same_test(bench, new, (B,))


def test_a_test_is_the_same_when_it_was_renamed_while_its_file_could_not_be_read(bench: Bench) -> None:
    bench.ran(T1, [green(A), green(B)])
    bench.ran(edited("x"), [red("tests/test_a.py", "SyntaxError")])
    bench.ran(edited("y"), [green(A), green("tests/test_a.py::test_three")])
    assert same_test(bench, "tests/test_a.py::test_three", (B,))


@pytest.mark.parametrize(
    ("before", "after", "new", "former"),
    [
        (["test_a[1]", "test_a[2]"], ["test_b[1]", "test_b[2]", "test_b[3]"], "test_b[2]", "test_a[2]"),
        (["TestA::test_x", "TestA::test_y"], ["TestB::test_x", "TestB::test_y"], "TestB::test_y", "TestA::test_y"),
        (["test_x", "test_y"], ["TestB::test_x", "TestB::test_y"], "TestB::test_x", "test_x"),
        (["test_x", "test_y"], ["test_p", "test_q"], "test_p", None),
        (["test_x"], ["test_p", "test_q"], "test_p", None),
        (["test_x[1]"], ["test_x[2]"], "test_x[2]", None),
        (["TestA::test_x"], ["TestB::test_y"], "TestB::test_y", None),
    ],
)
def test_what_was_renamed_within_a_file_is_told_where_it_can_be(
    bench: Bench, before: list[str], after: list[str], new: str, former: str | None
) -> None:
    bench.ran(T1, [green(A), *(green(f"tests/test_a.py::{name}") for name in before)])
    bench.ran(edited("y"), [green(A), *(green(f"tests/test_a.py::{name}") for name in after)])
    names = () if former is None else (f"tests/test_a.py::{former}",)
    assert same_test(bench, f"tests/test_a.py::{new}", names)


def test_a_test_that_was_removed_and_one_that_was_added_later_are_two(bench: Bench) -> None:
    bench.ran(T1, [green(A), green(B)])
    bench.ran(edited("x"), [green(A)], only=True, whole=["tests/test_a.py"])
    bench.ran(edited("y"), [green(A), green("tests/test_a.py::test_three")], only=True, whole=["tests/test_a.py"])
    assert same_test(bench, "tests/test_a.py::test_three", ())


def test_a_test_that_was_only_not_asked_for_was_not_renamed(bench: Bench) -> None:
    new = "tests/test_a.py::test_three"
    bench.ran(T1, [green(A), green(B)])
    run = Run("w", Lane.SAVE, Trigger.MANUAL, Only((new, A), "asked for"))
    bench.store.begin(run, bench.now, "/w")
    bench.store.set_snapshot("w", edited("x"), "e")
    bench.store.add_results("w", [green(new), green(A)], bench.now)
    bench.store.end("w", RunState.PASSED, "", bench.now, "")
    assert same_test(bench, new, ())


def test_an_old_name_that_comes_back_beside_the_new_one_is_another_test(bench: Bench) -> None:
    new = "tests/test_a.py::test_three"
    bench.ran(T1, [green(A), green(B)])
    bench.ran(edited("x"), [green(A), green(new)])
    assert same_test(bench, new, (B,))
    bench.ran(edited("y"), [green(A), green(new), green(B)])
    assert same_test(bench, new, ())
    assert same_test(bench, B, ())


# -- what is let go --------------------------------------------------------------------------------


def test_old_runs_go_with_all_that_only_they_spoke_of(bench: Bench) -> None:
    bench.ran(T1, [green("gone.py::a"), red("gone.py::b", "only here")])
    bench.ran(T1, [green("gone.py::a"), green("gone.py::b")])
    for _ in range(3):
        bench.ran(T2, [green(A)])
    assert not bench.store.prune(RetentionLimits(runs=3), bench.now)
    with open_for_reading(bench.path) as connection:
        assert [run.id for run in recent_runs(connection, limit=9)] == ["s.5", "s.4", "s.3"]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    left = ("rosters", "contents", "signatures", "tests", "evidence", "failures", "packs", "timings")
    assert [rows(bench, table) for table in left] == [1, 0, 0, 1, 0, 0, 3, 3]


def test_the_tree_of_a_worktree_without_runs_is_removed(bench: Bench) -> None:
    bench.workspace = "/removed"
    bench.ran(T1, [green(A)])
    bench.workspace = "/w"
    bench.ran(T1, [green(A)])
    bench.store.prune(RetentionLimits(runs=1), bench.now)
    with open_for_reading(bench.path) as connection:
        assert [row["workspace"] for row in connection.execute("SELECT workspace FROM manifests")] == ["/w"]


def test_a_plan_says_what_would_go_and_drops_nothing(bench: Bench) -> None:
    for _ in range(4):
        bench.ran(T1, [green(A)])
    with open_for_reading(bench.path) as connection:
        plan = plan_pruning(connection, RetentionLimits(days=1, runs=3), bench.now)
        later = plan_pruning(connection, RetentionLimits(days=1, runs=3), bench.now + 2 * DAY_S)
        none = plan_pruning(connection, RetentionLimits(), bench.now + 999 * DAY_S)
    assert (plan.runs, plan.reasons) == (1, ("beyond the latest 3 runs",))
    assert (later.runs, later.oldest_at) == (4, NOON + 60)
    assert not none
    assert rows(bench, "runs") == 4


def test_an_old_report_that_is_imported_takes_no_younger_run_with_it(bench: Bench) -> None:
    bench.ran(T1, [green(A)])
    bench.store.begin(begun("old"), NOON - 400 * DAY_S, "/w", imported_from="report.xml")
    bench.store.end("old", RunState.PASSED, "", NOON - 400 * DAY_S, "")
    bench.ran(T1, [green(A)])
    with open_for_reading(bench.path) as connection:
        plan = plan_pruning(connection, RetentionLimits(days=365, runs=3), bench.now)
    assert (plan.runs, plan.reasons) == (1, ("older than 365 days",))
    bench.store.prune(RetentionLimits(days=365), bench.now)
    with open_for_reading(bench.path) as connection:
        assert [run.id for run in recent_runs(connection, limit=9)] == ["s.2", "s.1"]


def test_the_latest_runs_stay_however_large_the_file_is(bench: Bench) -> None:
    """Large data may be shared by all runs: dropping runs would not help and would go on until none is left."""
    wide = tree("t1", {f"src/{Random(number).randbytes(40).hex()}.py": "1" for number in range(30_000)})
    for _ in range(12):
        bench.ran(wide, [green(A)])
    while bench.store.prune(RetentionLimits(megabytes=1), bench.now):
        pass
    with open_for_reading(bench.path) as connection:
        assert used_bytes(connection) > 1024 * 1024
        assert len(recent_runs(connection, limit=99)) == 10


def test_a_run_under_way_is_never_dropped(bench: Bench) -> None:
    bench.store.begin(begun("x"), NOON, "/w")
    bench.ran(T1, [green(A)])
    bench.store.prune(RetentionLimits(days=1), bench.now + 9 * DAY_S)
    with open_for_reading(bench.path) as connection:
        assert [run.id for run in recent_runs(connection, limit=9)] == ["x"]


def test_a_file_that_is_too_large_is_brought_below_its_limit_a_little_at_a_time(bench: Bench) -> None:
    random = Random(1)
    long = [red(f"t.py::{number}", f"{number} {'x' * 3000}") for number in range(20)]
    for _ in range(60):
        said = [replace(each.failure, text=random.randbytes(2000).hex()) for each in long if each.failure]
        bench.ran(T1, [replace(each, failure=failure) for each, failure in zip(long, said, strict=True)])
    with open_for_reading(bench.path) as connection:
        assert used_bytes(connection) > 1024 * 1024
    rounds = 0
    while bench.store.prune(RetentionLimits(megabytes=1), bench.now, batch=5):
        rounds += 1
    with open_for_reading(bench.path) as connection:
        assert used_bytes(connection) <= 1024 * 1024
        kept = recent_runs(connection, limit=99)
    assert rounds >= 1
    assert kept[0].id == "s.60"
    assert len(kept) >= 10


# -- a file of the version before ------------------------------------------------------------------


def test_a_history_of_version_2_is_carried_over_whole(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    with closing(open_for_writing(path, print, migrations=MIGRATIONS[:2])) as opened, transaction(opened) as connection:
        for number, state, ended in ((1, "failed", 9.0), (2, "running", None)):
            connection.execute(
                """INSERT INTO runs (number, id, workspace, lane, trigger, because, is_proof, is_forced, state,
                   queued_at, ended_at) VALUES (?, ?, '/w', 'save', 'save', 'all', 0, 0, ?, 1.0, ?)""",
                (number, f"s.{number}", state, ended),
            )
            connection.executemany(
                "INSERT INTO run_states (run, position, state, reason, at) VALUES (?, ?, ?, '', ?)",
                [(number, 1, "queued", 1.0), (number, 2, "syncing", 2.0), (number, 3, "running", 3.0)],
            )
        connection.executemany(
            "INSERT INTO tests (number, identity, file) VALUES (?, ?, 'a.py')", [(1, "a.py::one"), (2, "a.py::two")]
        )
        connection.executemany(
            "INSERT INTO results (run, test, attempt, outcome, duration_us) VALUES (?, ?, ?, ?, ?)",
            [(1, 1, 1, 1, 250_000), (1, 2, 1, 1, 1000), (1, 2, 2, 2, 2000), (2, 1, 1, 1, 5)],
        )
        connection.execute(
            """INSERT INTO failures (run, test, attempt, kind, message, file, line, column_number, source_line,
               crash_file, crash_line, text, output) VALUES (1, 2, 2, 'K', 'said 7', 'a.py', 3, 4, 'x', 'b.py', 5,
               'text', 'out')"""
        )

    with Store(path) as store:
        store.add_results("s.2", [green("a.py::two")], 4.0)
        store.end("s.2", RunState.PASSED, "", 5.0, "")

    with open_for_reading(path) as connection:
        old, new = (detail_of(connection, name) for name in ("s.1", "s.2"))
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
    assert old is not None
    assert new is not None
    assert old.run.counts == {Outcome.PASSED: 1, Outcome.FAILED: 1}
    assert [(each.result.test, each.attempt, each.result.duration_s) for each in old.results] == [
        ("a.py::one", 1, 0.25),
        ("a.py::two", 1, 0.001),
        ("a.py::two", 2, 0.002),
    ]
    failure = old.results[-1].result.failure
    assert failure is not None
    assert (failure.message, failure.column, failure.output) == ("said 7", 4, "out")
    assert old.results[-1].signature == "K: said # in b.py"
    assert (old.run.timings.wait_s, old.run.timings.run_s) == (1.0, 6.0)
    assert new.run.counts == {Outcome.PASSED: 2}


# -- a full disk -----------------------------------------------------------------------------------


def test_a_run_that_cannot_be_ended_for_want_of_room_keeps_its_results_and_is_ended_later(bench: Bench) -> None:
    bench.store.begin(begun("x"), NOON, "/w")
    bench.store.add_results("x", [green(A), red(B)], NOON)
    pages = bench.store.query(lambda c: c.execute("PRAGMA page_count").fetchone()[0])
    bench.store.query(lambda c: c.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    output = Random(1).randbytes(300_000).hex()

    with pytest.raises(WorkspaceError, match="the disk is full"):
        bench.store.end("x", RunState.FAILED, "", NOON + 1, output)

    assert {each.result.test: each.result.outcome for each in shown(bench, "x").results} == {
        A: Outcome.PASSED,
        B: Outcome.FAILED,
    }
    assert shown(bench, "x").run.state is RunState.RUNNING
    bench.store.query(lambda c: c.execute("PRAGMA max_page_count = 1000000").fetchone())
    bench.store.end("x", RunState.FAILED, "", NOON + 1, output)
    assert shown(bench, "x").run.counts == {Outcome.PASSED: 1, Outcome.FAILED: 1}
    assert shown(bench, "x").raw_output == output
