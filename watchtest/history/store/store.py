"""Writes the history as it happens: every run, every state it was in, every result as it comes.

Each call is one transaction: what it has returned from survives a kill. Calls may come from any thread and wait for one
another. A file that was moved or that shows damage is opened again (and set aside, if need be) at the next call. Asks
nothing: that is what `queries` is for.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Self, TypeVar

from watchtest.core.model import Only, Outcome, Result, Run, RunState, Snapshot
from watchtest.errors import WorkspaceError
from watchtest.history.store.columns import (
    IS_GATE_OR_PROBE,
    JUDGED_STATES,
    TEXT_LIMIT,
    AttemptKind,
    Proof,
    Value,
    result_values,
    text,
    workspace_key,
)
from watchtest.history.store.database import Connection, is_damage, transaction, translated_errors
from watchtest.history.store.database_file import Warn, open_for_writing
from watchtest.history.store.failure_texts import add_failure
from watchtest.history.store.flaky_evidence import add_proof, compare_with_others
from watchtest.history.store.pack import compact
from watchtest.history.store.retention import PrunePlan, RetentionLimits, drop_batch, plan_pruning, sweep
from watchtest.history.store.schema import refuse_newer
from watchtest.history.store.test_lineage import trace_renames
from watchtest.history.store.tree_changes import TreeHistory

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

ON_THE_WAY = (RunState.QUEUED, RunState.SYNCING, RunState.RUNNING)
DIED = "the watcher died"
OUTPUT_LIMIT = 1024 * 1024
BESIDE_LIMIT_S = 3600.0
"""No run of a gate or of a probe takes so long."""

_ADD_TEST = """
    INSERT INTO tests (identity, file, first_run) VALUES (:test, :file, :run) ON CONFLICT (identity) DO NOTHING
"""
_ADD_RESULT = """
    INSERT INTO results (run, test, attempt, outcome, duration_us, kind)
    SELECT :run, number, 1 + COALESCE((SELECT MAX(attempt) FROM results WHERE run = :run AND test = number), 0),
           :outcome, :duration_us, :kind
    FROM tests WHERE identity = :test
    RETURNING test, attempt
"""
_ADD_STATE = """
    INSERT INTO run_states (run, position, state, reason, at)
    SELECT :run, 1 + COUNT(*), :state, :reason, :at FROM run_states WHERE run = :run
"""


class Store:
    """The one writer of this process; other processes may write beside it."""

    def __init__(self, path: Path, warn: Warn = _log.warning) -> None:
        """Open the history at `path`, or create it. `warn` is called if a damaged file had to be set aside."""
        self._path = path
        self._warn = warn
        self._lock = Lock()
        self._connection = open_for_writing(path, warn)
        self._inode = _inode(path)
        self._is_suspect = False
        self._must_open = False
        self._is_closed = False
        self._trees = TreeHistory()
        self._complete_files: dict[str, tuple[str, ...]] = {}
        """By run: the files that it runs every test of."""
        self._must_sweep = False

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            with translated_errors(self._path):
                self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    # -- the life of a run -------------------------------------------------------------------------

    def begin(self, run: Run, at: float, workspace: str, reason: str = "", imported_from: str | None = None) -> None:
        """The run is accepted: queued. One that somebody else made says where its report came from."""
        values: dict[str, Value] = {
            "id": run.id,
            "workspace": workspace_key(workspace),
            "lane": run.lane.value,
            "trigger": run.trigger.value,
            **_selected(run),
            "is_forced": int(run.is_forced),
            "state": RunState.QUEUED.value,
            "queued_at": at,
            "imported_from": None if imported_from is None else text(imported_from, TEXT_LIMIT),
        }
        with self._transaction() as connection:
            names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
            connection.execute(f"INSERT INTO runs ({names}) VALUES ({places})", values)
            _enter_state(connection, self._open_run(connection, run.id), RunState.QUEUED, reason, at)

    def start(self, run: Run, at: float, reason: str = "") -> None:
        """Its turn has come, and what it selects is decided: syncing."""
        with self._transaction() as connection:
            number = self._open_run(connection, run.id)
            _update(connection, number, {**_selected(run), "started_at": at})
            _enter_state(connection, number, RunState.SYNCING, reason, at)

    def set_selection(self, run: Run, at: float) -> None:
        """What it selects was decided on its way."""
        with self._transaction() as connection:
            _update(connection, self._open_run(connection, run.id), {**_selected(run), "chosen_at": at})
        tests = run.selection.tests if isinstance(run.selection, Only) else ()
        self._complete_files[run.id] = tuple(test for test in tests if "::" not in test)

    def advance(self, run_id: str, state: RunState, at: float, reason: str = "") -> None:
        """A step on the way, where it is known when it was taken."""
        if state not in ON_THE_WAY:
            raise ValueError(f"{state} is an end: use end()")
        with self._transaction() as connection:
            run = self._open_run(connection, run_id)
            if state is RunState.RUNNING:
                _update(connection, run, {"executing_at": at})
            _enter_state(connection, run, state, reason, at)

    def runner_started(self, run_id: str, at: float) -> None:
        """The runner has begun to say what it does: it has started."""
        with self._transaction() as connection:
            run = self._open_run(connection, run_id)
            connection.execute("UPDATE runs SET first_at = ? WHERE number = ? AND first_at IS NULL", (at, run))

    def set_snapshot(self, run_id: str, snapshot: Snapshot, environment: str, at: float | None = None) -> None:
        """The run is about exactly this tree in this environment."""
        values: dict[str, Value] = {
            "tree": snapshot.id,
            "head": snapshot.head,
            "branch": None if snapshot.branch is None else text(snapshot.branch),
            "is_dirty": None if snapshot.dirty is None else int(snapshot.dirty),
            "environment": text(environment),
            "taken_at": at,
        }
        with self._transaction() as connection:
            run = self._open_run(connection, run_id)
            _update(connection, run, values)
            row = connection.execute("SELECT workspace, lane FROM runs WHERE number = ?", (run,)).fetchone()
            self._trees.add(connection, run, (row["workspace"], row["lane"]), snapshot)

    def set_code(self, run_id: str, head: str | None, branch: str | None) -> None:
        """Of a run that somebody else made, as far as its report says."""
        values: dict[str, Value] = {
            "head": None if head is None else text(head),
            "branch": None if branch is None else text(branch),
        }
        with self._transaction() as connection:
            _update(connection, self._open_run(connection, run_id), values)

    def add_results(
        self, run_id: str, results: Sequence[Result], at: float, kind: AttemptKind = AttemptKind.WORD
    ) -> None:
        """Results as they come. A test that is reported again within a run is its next attempt, of this kind."""
        with self._transaction() as connection:
            run = self._open_run(connection, run_id)
            if _state_of(connection, run) is not RunState.RUNNING:
                _update(connection, run, {"executing_at": at})
                _enter_state(connection, run, RunState.RUNNING, "", at)
            connection.execute("UPDATE runs SET first_at = ? WHERE number = ? AND first_at IS NULL", (at, run))
            for result in results:
                values = result_values(run, result, kind)
                connection.execute(_ADD_TEST, values)
                added = connection.execute(_ADD_RESULT, values).fetchone()
                if result.failure is not None:
                    add_failure(connection, run, added["test"], added["attempt"], result.failure, result.test)
                if result.reruns and result.outcome is Outcome.PASSED:
                    add_proof(connection, run, [added["test"]], Proof.RERUN, at)

    def add_chance_failures(self, run_id: str, tests: Sequence[str], at: float) -> None:
        """These failed in this run, and passed when it was repeated just so."""
        with self._transaction() as connection:
            run = self._open_run(connection, run_id)
            for test in tests:
                row = connection.execute("SELECT number FROM tests WHERE identity = ?", (text(test),)).fetchone()
                if row is not None:
                    add_proof(connection, run, [row["number"]], Proof.REPEAT, at)

    def end(self, run_id: str, state: RunState, reason: str, at: float, raw_output: str) -> None:
        """The last word on a run: nothing is added to it after this."""
        if state in ON_THE_WAY:
            raise ValueError(f"{state} is no end: use advance()")
        with self._transaction() as connection:
            run = self._open_run(connection, run_id)
            if raw_output:
                output = zlib.compress(text(raw_output, OUTPUT_LIMIT).encode(), level=1)
                connection.execute("INSERT INTO outputs (run, text) VALUES (?, ?)", (run, output))
            _enter_state(connection, run, state, reason, at)
            compact(connection, run)
            trace_renames(connection, run, self._complete_files.get(run_id, ()))
            if state in JUDGED_STATES:
                compare_with_others(connection, run, at)
        self._complete_files.pop(run_id, None)

    def withdraw(self, run_id: str) -> None:
        """It turned out that there was nothing to run (the tree is the one last judged): it was no run."""
        with self._transaction() as connection:
            run = self._open_run(connection, run_id)
            if connection.execute("SELECT 1 FROM results WHERE run = ? LIMIT 1", (run,)).fetchone():
                raise WorkspaceError(f"run {run_id} has results: it can be ended, not withdrawn")
            connection.execute("DELETE FROM runs WHERE number = ?", (run,))
            # Its number may be given again: to a run of another tree.
            connection.execute("DELETE FROM manifests WHERE run = ?", (run,))
            self._trees.forget()

    def end_dead_runs(self, workspace: str, at: float, *, is_gate: bool = False) -> int:
        """Ends what a dead watcher of this workspace left on its way; how many runs that were.

        To be called by whoever holds the watcher's lock of the workspace: every open run is a dead one's then, save
        those of a gate or a probe beside it, unless they are too old to be alive. `is_gate`: by whoever holds the
        lock of gates and probes, for theirs.
        """
        whose = IS_GATE_OR_PROBE if is_gate else f"(NOT {IS_GATE_OR_PROBE} OR queued_at < :long_ago)"
        values: dict[str, Value] = {"workspace": workspace_key(workspace), "long_ago": at - BESIDE_LIMIT_S}
        with self._transaction() as connection:
            dead = connection.execute(
                f"SELECT number FROM runs WHERE ended_at IS NULL AND workspace = :workspace AND {whose}", values
            ).fetchall()
            for run in (row["number"] for row in dead):
                _enter_state(connection, run, RunState.BROKEN, DIED, min(at, _last_heard(connection, run)))
                compact(connection, run)
            return len(dead)

    # -- what is kept, and what is asked by the writer itself --------------------------------------

    def prune(self, limits: RetentionLimits, now: float, most: int = 100) -> bool:
        """Drops some of the oldest runs that are beyond the limits; whether there is more to drop.

        A little at a time: others write between. What only those runs spoke of goes when the last of them has.
        """
        return self.drop(self.query(lambda connection: plan_pruning(connection, limits, now)), most)

    def drop(self, plan: PrunePlan, most: int) -> bool:
        """Some of what was planned; whether there is more of it."""
        with self._transaction() as connection:
            dropped = drop_batch(connection, plan, most) if plan else 0
            self._must_sweep = self._must_sweep or dropped > 0
            if dropped == most:
                return True
            if self._must_sweep:
                sweep(connection)
                self._must_sweep = False
            return False

    def query(self, question: Callable[[Connection], Answer]) -> Answer:
        """A question, over the writer's own connection."""
        with self._transaction() as connection:
            return question(connection)

    def shrink(self) -> None:
        """Gives free pages back to the disk. Rewrites the file: for a command that the user waits for."""
        with self._lock:
            self._ensure_open()
            with translated_errors(self._path):
                self._connection.execute("VACUUM")
                self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    # -- one transaction ---------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Connection]:
        with self._lock:
            self._ensure_open()
            try:
                with translated_errors(self._path), transaction(self._connection):
                    # A newer watchtest beside this one may have migrated the file meanwhile.
                    refuse_newer(self._connection, self._path)
                    yield self._connection
            except BaseException as error:
                # What a transaction that failed had said of trees is not in the file.
                self._trees.forget()
                self._is_suspect = self._is_suspect or is_damage(error.__cause__)
                raise

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise WorkspaceError(f"the history {self._path} is closed already")
        if not self._must_open and not self._is_suspect and _inode(self._path) == self._inode:
            return
        # Stays so while opening fails, as long as that may be: each call tries again.
        self._must_open = True
        with translated_errors(self._path):
            self._connection.close()
        self._connection = open_for_writing(self._path, self._warn, is_suspect=self._is_suspect)
        self._inode, self._is_suspect, self._must_open = _inode(self._path), False, False
        self._trees.forget()

    def _open_run(self, connection: Connection, run_id: str) -> int:
        row = connection.execute("SELECT number, ended_at, state FROM runs WHERE id = ?", (run_id,)).fetchone()
        if row is None:
            raise WorkspaceError(
                f"run {run_id} is not in the history {self._path}",
                hint="the file was moved or begun anew during the run; the next run is kept again",
            )
        if row["ended_at"] is not None:
            raise WorkspaceError(f"run {run_id} has ended already ({row['state']}): nothing can be added to it")
        return int(row["number"])


def _selected(run: Run) -> dict[str, Value]:
    only = run.selection if isinstance(run.selection, Only) else None
    return {
        "selected": None if only is None else len(only.tests),
        "because": text(run.selection.because),
        "is_proof": int(only is not None and only.is_proof),
    }


def _update(connection: Connection, run: int, values: Mapping[str, Value]) -> None:
    changes = ", ".join(f"{name} = :{name}" for name in values)
    connection.execute(f"UPDATE runs SET {changes} WHERE number = :run", {**values, "run": run})


def _enter_state(connection: Connection, run: int, state: RunState, reason: str, at: float) -> None:
    values: dict[str, Value] = {"run": run, "state": state.value, "reason": text(reason, TEXT_LIMIT), "at": at}
    values["ended_at"] = None if state in ON_THE_WAY else at
    connection.execute(_ADD_STATE, values)
    connection.execute(
        "UPDATE runs SET state = :state, reason = :reason, ended_at = :ended_at WHERE number = :run", values
    )


def _last_heard(connection: Connection, run: int) -> float:
    """When it last did something: it did not run all the time that nobody noticed."""
    row = connection.execute(
        """
        SELECT MAX(at, COALESCE(taken_at, 0), COALESCE(chosen_at, 0), COALESCE(first_at, 0)) AS heard FROM runs
        JOIN (SELECT MAX(at) AS at FROM run_states WHERE run = :run) WHERE number = :run
        """,
        {"run": run},
    ).fetchone()
    return float(row["heard"])


def _state_of(connection: Connection, run: int) -> RunState:
    return RunState(connection.execute("SELECT state FROM runs WHERE number = ?", (run,)).fetchone()["state"])


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        # Gone or out of reach: not the file that was opened, in any case.
        return None
    return status.st_dev, status.st_ino
