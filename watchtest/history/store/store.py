"""Write the history as it happens: every run, every state of it, every result as it arrives.

Each call is one transaction, so that whatever it wrote survives a kill. Calls may come from any thread and wait for
each other. If the file was moved or is damaged, the next call opens it again, and moves a damaged one aside.
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

from watchtest.core.model import Only, Outcome, Provisional, Result, Run, RunState, Snapshot
from watchtest.core.text import OUTPUT_LIMIT, STORED_TEXT_LIMIT
from watchtest.errors import WorkspaceError
from watchtest.history.store import columns
from watchtest.history.store.columns import Value, storable_text
from watchtest.history.store.database import Connection, is_damage, transaction, translated_errors
from watchtest.history.store.database_file import Warn, open_for_writing
from watchtest.history.store.failure_texts import add_failure
from watchtest.history.store.flaky_evidence import add_contradictions, add_proof
from watchtest.history.store.pack import compact
from watchtest.history.store.retention import PrunePlan, RetentionLimits, drop_batch, plan_pruning, sweep
from watchtest.history.store.schema import refuse_newer
from watchtest.history.store.test_lineage import trace_renames
from watchtest.history.store.tree_changes import TreeHistory

_log = logging.getLogger(__name__)
Answer = TypeVar("Answer")

DIED = "the watcher died"
GATE_LIMIT_S = 3600.0
"""No run of a gate or a probe takes longer than this."""

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
    """The only writer of this process. Other processes may write to the same file."""

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
        """For each open run: the files of which it runs every test."""
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

    def begin(
        self,
        run: Run,
        at: float,
        workspace: str,
        reason: str = "",
        *,
        imported_from: str | None = None,
        head: str | None = None,
        branch: str | None = None,
    ) -> None:
        """Add a queued run. For an imported run, name its report, and its commit and branch if the report does."""
        values: dict[str, Value] = {
            "id": run.id,
            "workspace": columns.workspace_key(workspace),
            "lane": run.lane.value,
            "trigger": run.trigger.value,
            **_selected(run),
            "is_forced": int(run.is_forced),
            "state": RunState.QUEUED.value,
            "queued_at": at,
            "imported_from": imported_from and storable_text(imported_from, STORED_TEXT_LIMIT),
            "head": head and storable_text(head),
            "branch": branch and storable_text(branch),
        }
        with self._transaction() as connection:
            names, places = ", ".join(values), ", ".join(f":{name}" for name in values)
            row = connection.execute(
                f"INSERT INTO runs ({names}) VALUES ({places}) RETURNING number", values
            ).fetchone()
            _enter_state(connection, row["number"], RunState.QUEUED, reason, at)

    def start(self, run: Run, at: float, reason: str = "") -> None:
        """Record that the run leaves the queue and starts syncing."""
        with self._open_run(run.id) as (connection, number):
            _update(connection, number, {**_selected(run), "started_at": at})
            _enter_state(connection, number, RunState.SYNCING, reason, at)

    def set_selection(self, run: Run, at: float) -> None:
        """Record which tests the run will execute, if that is decided after its start."""
        with self._open_run(run.id) as (connection, number):
            _update(connection, number, {**_selected(run), "chosen_at": at})
        tests = run.selection.tests if isinstance(run.selection, Only) else ()
        self._complete_files[run.id] = tuple(test for test in tests if "::" not in test)

    def advance(self, run_id: str, state: RunState, at: float, reason: str = "") -> None:
        """Record that the run has entered another unfinished state."""
        if state.is_final:
            raise ValueError(f"{state} is a final state: use end()")
        with self._open_run(run_id) as (connection, run):
            _enter_state(connection, run, state, reason, at)

    def runner_started(self, run_id: str, at: float) -> None:
        """Record the runner's first sign of life."""
        with self._open_run(run_id) as (connection, run):
            connection.execute("UPDATE runs SET first_at = ? WHERE number = ? AND first_at IS NULL", (at, run))

    def set_snapshot(self, run_id: str, snapshot: Snapshot, environment: str, at: float | None = None) -> None:
        """Record the tree that the run tests, and its environment."""
        values: dict[str, Value] = {
            "tree": snapshot.id,
            "head": snapshot.head,
            "branch": snapshot.branch and storable_text(snapshot.branch),
            "is_dirty": snapshot.dirty,
            "environment": storable_text(environment),
            "taken_at": at,
        }
        with self._open_run(run_id) as (connection, run):
            _update(connection, run, values)
            row = connection.execute("SELECT workspace, lane FROM runs WHERE number = ?", (run,)).fetchone()
            self._trees.add(connection, run, (row["workspace"], row["lane"]), snapshot)

    def add_results(
        self, run_id: str, results: Sequence[Result], at: float, kind: columns.AttemptKind = columns.AttemptKind.WORD
    ) -> None:
        """Add results. If a test was reported before in this run, this is its next attempt."""
        with self._open_run(run_id) as (connection, run):
            state = connection.execute("SELECT state FROM runs WHERE number = ?", (run,)).fetchone()["state"]
            if state != RunState.RUNNING:
                _enter_state(connection, run, RunState.RUNNING, "", at)
            connection.execute("UPDATE runs SET first_at = ? WHERE number = ? AND first_at IS NULL", (at, run))
            for result in results:
                values = _result_values(run, result, kind)
                connection.execute(_ADD_TEST, values)
                added = connection.execute(_ADD_RESULT, values).fetchone()
                if result.failure is not None:
                    add_failure(connection, run, added["test"], added["attempt"], result.failure, result.test)
                if result.reruns and result.outcome is Outcome.PASSED:
                    add_proof(connection, run, added["test"], columns.Proof.RERUN, at)

    def add_chance_failures(self, run_id: str, tests: Sequence[str], at: float) -> None:
        """Record that these tests failed in this run and passed when the same run was repeated."""
        with self._open_run(run_id) as (connection, run):
            for test in map(storable_text, tests):
                row = connection.execute("SELECT number FROM tests WHERE identity = ?", (test,)).fetchone()
                if row is not None:
                    add_proof(connection, run, row["number"], columns.Proof.REPEAT, at)

    def end(
        self,
        run_id: str,
        state: RunState,
        reason: str,
        at: float,
        raw_output: str,
        provisional: Provisional | None = None,
    ) -> None:
        """End the run. Nothing can be added to it afterwards."""
        if not state.is_final:
            raise ValueError(f"{state} is not a final state: use advance()")
        with self._open_run(run_id) as (connection, run):
            if raw_output:
                output = zlib.compress(storable_text(raw_output, OUTPUT_LIMIT).encode(), level=1)
                connection.execute("INSERT INTO outputs (run, text) VALUES (?, ?)", (run, output))
            if provisional is not None:
                because = storable_text(provisional.message)
                _update(connection, run, {"provisional": provisional.code.value, "provisional_because": because})
            _enter_state(connection, run, state, reason, at)
            compact(connection, run)
            trace_renames(connection, run, self._complete_files.get(run_id, ()))
            if state in columns.JUDGED_STATES:
                add_contradictions(connection, run, at)
        self._complete_files.pop(run_id, None)

    def withdraw(self, run_id: str) -> None:
        """Remove a run that had nothing to do because its tree had been judged already."""
        with self._open_run(run_id) as (connection, run):
            if connection.execute("SELECT 1 FROM results WHERE run = ? LIMIT 1", (run,)).fetchone():
                raise WorkspaceError(f"run {run_id} has results and cannot be withdrawn, only ended")
            connection.execute("DELETE FROM runs WHERE number = ?", (run,))
            # SQLite may reuse its number for a run on another tree.
            connection.execute("DELETE FROM manifests WHERE run = ?", (run,))
            self._trees.forget()

    def end_dead_runs(self, workspace: str, at: float, *, is_gate: bool = False) -> int:
        """End the runs that a dead watcher of this workspace left unfinished, and return how many there were.

        The caller holds the watcher's lock of the workspace, so every open run belongs to a dead process, except for
        runs of a gate or a probe that are not too old. With `is_gate` the caller holds the lock of gates and probes
        instead, and only their runs are ended.
        """
        whose = (
            columns.IS_GATE_OR_PROBE if is_gate else f"(NOT {columns.IS_GATE_OR_PROBE} OR queued_at < :oldest_alive)"
        )
        values: dict[str, Value] = {"workspace": columns.workspace_key(workspace), "oldest_alive": at - GATE_LIMIT_S}
        with self._transaction() as connection:
            dead = connection.execute(
                f"SELECT number FROM runs WHERE ended_at IS NULL AND workspace = :workspace AND {whose}", values
            ).fetchall()
            for run in (row["number"] for row in dead):
                _enter_state(connection, run, RunState.BROKEN, DIED, min(at, _last_activity(connection, run)))
                compact(connection, run)
            return len(dead)

    # -- retention and queries ---------------------------------------------------------------------

    def prune(self, limits: RetentionLimits, now: float, batch: int = 100) -> bool:
        """Drop a batch of the oldest runs beyond the limits, and return whether there are more to drop.

        Between batches others can write. Rows that only dropped runs referred to are removed after the last batch.
        """
        return self.drop(self.query(lambda connection: plan_pruning(connection, limits, now)), batch)

    def drop(self, plan: PrunePlan, batch: int) -> bool:
        """Drop a batch of the planned runs, and return whether there are more."""
        with self._transaction() as connection:
            dropped = drop_batch(connection, plan, batch) if plan else 0
            self._must_sweep = self._must_sweep or dropped > 0
            if dropped == batch:
                return True
            if self._must_sweep:
                sweep(connection)
                self._must_sweep = False
            return False

    def query(self, question: Callable[[Connection], Answer]) -> Answer:
        """Return the answer of a query that uses the writer's own connection."""
        with self._transaction() as connection:
            return question(connection)

    def shrink(self) -> None:
        """Return free pages to the disk. This rewrites the whole file, so only a command should call it."""
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
                    # A newer watchtest may have migrated the file in the meantime.
                    refuse_newer(self._connection, self._path)
                    yield self._connection
            except BaseException as error:
                # The trees that a failed transaction added are not in the file.
                self._trees.forget()
                self._is_suspect = self._is_suspect or is_damage(error.__cause__)
                raise

    def _ensure_open(self) -> None:
        if self._is_closed:
            raise WorkspaceError(f"the history {self._path} is already closed")
        if not self._must_open and not self._is_suspect and _inode(self._path) == self._inode:
            return
        # Stays set while opening fails, so that each call tries again.
        self._must_open = True
        with translated_errors(self._path):
            self._connection.close()
        self._connection = open_for_writing(self._path, self._warn, is_suspect=self._is_suspect)
        self._inode, self._is_suspect, self._must_open = _inode(self._path), False, False
        self._trees.forget()

    @contextmanager
    def _open_run(self, run_id: str) -> Iterator[tuple[Connection, int]]:
        """Begin a transaction about a run that has not ended, and yield the connection and the number of the run."""
        with self._transaction() as connection:
            row = connection.execute("SELECT number, ended_at, state FROM runs WHERE id = ?", (run_id,)).fetchone()
            if row is None:
                raise WorkspaceError(
                    f"run {run_id} is not in the history {self._path}",
                    hint="the file was moved or replaced during the run; the next run will be recorded again",
                )
            if row["ended_at"] is not None:
                raise WorkspaceError(f"run {run_id} has already ended ({row['state']}): nothing can be added to it")
            yield connection, row["number"]


def _selected(run: Run) -> dict[str, Value]:
    only = run.selection if isinstance(run.selection, Only) else None
    return {
        "selected": None if only is None else len(only.tests),
        "because": storable_text(run.selection.because),
        "is_proof": int(only is not None and only.is_proof),
    }


def _update(connection: Connection, run: int, values: Mapping[str, Value]) -> None:
    changes = ", ".join(f"{name} = :{name}" for name in values)
    connection.execute(f"UPDATE runs SET {changes} WHERE number = :run", {**values, "run": run})


def _enter_state(connection: Connection, run: int, state: RunState, reason: str, at: float) -> None:
    values: dict[str, Value] = {"state": state.value, "reason": storable_text(reason, STORED_TEXT_LIMIT)}
    connection.execute(_ADD_STATE, {**values, "run": run, "at": at})
    values["ended_at"] = at if state.is_final else None
    if state is RunState.RUNNING:
        values["executing_at"] = at
    _update(connection, run, values)


def _last_activity(connection: Connection, run: int) -> float:
    """Return when the run last did something: it did not keep running until its death was noticed."""
    row = connection.execute(
        """
        SELECT MAX(at, COALESCE(taken_at, 0), COALESCE(chosen_at, 0), COALESCE(first_at, 0)) AS last_at FROM runs
        JOIN (SELECT MAX(at) AS at FROM run_states WHERE run = :run) WHERE number = :run
        """,
        {"run": run},
    ).fetchone()
    return float(row["last_at"])


def _inode(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except OSError:
        # The file is gone or unreachable; in either case it is not the one that was opened.
        return None
    return status.st_dev, status.st_ino


def _result_values(run: int, result: Result, kind: columns.AttemptKind) -> dict[str, Value]:
    return {
        "run": run,
        "kind": int(kind),
        "test": columns.storable_text(result.test),
        "file": columns.storable_text(result.test.partition("::")[0]),
        "outcome": columns.OUTCOME_CODES[result.outcome],
        "duration_us": columns.storable_microseconds(result.duration_s),
    }
