"""`history test`: the outcomes of one test, since when they are the same, and what changed at that point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from watchtest.core.model import Lane, Outcome
from watchtest.history.queries.run_queries import PastRun, run_by_number, runs_where
from watchtest.history.queries.test_names import PastTest
from watchtest.history.queries.timeline import Pack, PackReader
from watchtest.history.store.columns import GREEN_CODES, JUDGED_SQL, OUTCOMES, RED_CODES
from watchtest.history.store.database import Connection
from watchtest.history.store.tree_changes import changes_between

LONGEST_SEARCH = 20_000
"""How many runs are searched for the beginning of a red period."""
IS_LAST_ATTEMPT = """
    NOT EXISTS (SELECT 1 FROM results AS later WHERE later.run = failures.run AND later.test = failures.test
                                                 AND later.attempt > failures.attempt)
"""
"""A condition on `failures`: no later attempt in the same run has confirmed or refuted the failure."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """The outcome of the test in one run."""

    run: PastRun
    outcome: Outcome
    duration_s: float


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """The first run with the current outcome, the run before it, and the paths that changed between the two."""

    first: PastRun
    before: PastRun
    paths: tuple[str, ...] | None
    """None if it is unknown what changed."""


@dataclass(frozen=True, slots=True)
class FailureMode:
    """Failures of the test that have the same signature."""

    signature: str
    times: int
    first: PastRun
    last: PastRun


@dataclass(frozen=True, slots=True)
class TestHistory:
    __test__ = False

    test: PastTest
    lane: Lane | None
    moments: tuple[HistoryPoint, ...]
    """Of the latest runs, oldest first."""
    turn: TurningPoint | None
    """None if the outcome did not change in these runs and the test was never red before."""
    complaints: tuple[FailureMode, ...]
    red_runs: int
    """The number of all stored runs in which it was red."""

    @property
    def flips(self) -> int:
        return flips([moment.outcome.is_red for moment in self.moments if moment.outcome is not Outcome.SKIPPED])


def flips(reds: Sequence[bool]) -> int:
    """Return how often a test changed between green and red."""
    return sum(one is not other for one, other in pairwise(reds))


def history_of(
    connection: Connection, test: PastTest, *, workspace: str | None, lane: Lane | None, limit: int
) -> TestHistory | None:
    """Return the history of a test in one lane, by default the lane in which it last ran, or None if there is none."""
    packs = PackReader(connection)
    if lane is None:
        lane = _last_lane(connection, packs, test, workspace)
    where, values = runs_where(workspace=workspace, lane=lane)
    found: list[tuple[int, int, int]] = []
    turned: tuple[int, int] | None = None
    for pack in packs.newest_first(where, values, LONGEST_SEARCH):
        result = _find(pack, test)
        if result is None:
            continue
        position, code = result
        if turned is None and found and _colour(code) != _colour(found[0][2]):
            turned = found[-1][0], pack.run
        found.append((pack.run, position, code))
        # Do not walk through a long green period: the table of failures knows the last red run before it.
        if len(found) >= limit and (turned is not None or found[0][2] not in RED_CODES):
            break
    if not found:
        return None
    red = _red_runs(connection, test, where, values)
    if turned is None and found[0][2] not in RED_CODES and red:
        turned = _turn_after(packs, test, where, values, red[0])
    return TestHistory(
        test=test,
        lane=lane,
        moments=tuple(_history_point(connection, packs, *each) for each in reversed(found[:limit])),
        turn=None if turned is None else _turning_point(connection, *turned),
        complaints=_failure_modes(connection, test, where, values),
        red_runs=len(red),
    )


def _turning_point(connection: Connection, first: int, before: int) -> TurningPoint:
    return TurningPoint(
        run_by_number(connection, first), run_by_number(connection, before), suspects(connection, before, first)
    )


def suspects(connection: Connection, before: int, first: int) -> tuple[str, ...] | None:
    """Return the paths that changed between two runs of a test, or None if that is unknown.

    If a run in between left the test out because its changes could not affect it, only later changes are suspects.
    """
    row = connection.execute(
        f"""
        SELECT MAX(number) AS number FROM runs WHERE number > :before AND number < :first AND state IN ({JUDGED_SQL})
        AND is_proof AND (workspace, lane) = (SELECT workspace, lane FROM runs WHERE number = :first)
        """,
        {"before": before, "first": first},
    ).fetchone()
    narrow = changes_between(connection, row["number"], first) if row["number"] is not None else None
    # If nothing changed since then, that selection was wrong, and all changes are suspects.
    changes = changes_between(connection, before, first) if narrow is None or not narrow[1] else narrow
    return None if changes is None else tuple(changes[1])


def _find(pack: Pack, test: PastTest) -> tuple[int, int] | None:
    for number in test.numbers:
        at = pack.position(number)
        if at is not None:
            return at, pack.code(number)
    return None


def _colour(code: int) -> int | str:
    """Return "red" or "green", or the code of an outcome that is neither, such as skipped."""
    return "red" if code in RED_CODES else "green" if code in GREEN_CODES else code


def _last_lane(connection: Connection, packs: PackReader, test: PastTest, workspace: str | None) -> Lane | None:
    where, values = runs_where(workspace=workspace)
    # Imported runs count only if there are no others.
    for condition in (f"{where} AND imported_from IS NULL", where):
        for pack in packs.newest_first(condition, values, LONGEST_SEARCH):
            if _find(pack, test):
                return run_by_number(connection, pack.run).lane
    return None


def _history_point(connection: Connection, packs: PackReader, run: int, position: int, code: int) -> HistoryPoint:
    return HistoryPoint(run_by_number(connection, run), OUTCOMES[code], packs.durations(run)[position] / 1_000_000)


def _red_runs(connection: Connection, test: PastTest, where: str, values: Sequence[str | float]) -> list[int]:
    """Return the runs in which the test was red, newest first."""
    rows = connection.execute(
        f"""
        SELECT DISTINCT failures.run FROM failures JOIN runs ON runs.number = failures.run
        WHERE test IN ({", ".join("?" * len(test.numbers))}) AND {IS_LAST_ATTEMPT} AND {where}
        ORDER BY failures.run DESC
        """,
        (*test.numbers, *values),
    ).fetchall()
    return [row["run"] for row in rows]


def _turn_after(
    packs: PackReader, test: PastTest, where: str, values: Sequence[str | float], last_red: int
) -> tuple[int, int] | None:
    """Return the first run with the current outcome, which comes after the last red one, and the run before it."""
    condition, more = f"{where} AND runs.number >= ?", (*values, last_red)
    first: tuple[int, int | str] | None = None
    for pack in packs.newest_first(condition, more, LONGEST_SEARCH):
        result = _find(pack, test)
        if result is None:
            continue
        if first is not None and _colour(result[1]) != first[1]:
            return first[0], pack.run
        first = pack.run, _colour(result[1])
    return None


def _failure_modes(
    connection: Connection, test: PastTest, where: str, values: Sequence[str | float]
) -> tuple[FailureMode, ...]:
    rows = connection.execute(
        f"""
        SELECT signatures.text, COUNT(DISTINCT failures.run) AS times, MIN(failures.run) AS first,
               MAX(failures.run) AS last
        FROM failures JOIN runs ON runs.number = failures.run JOIN signatures ON signatures.number = signature
        WHERE test IN ({", ".join("?" * len(test.numbers))}) AND {IS_LAST_ATTEMPT} AND {where}
        GROUP BY signature ORDER BY last DESC LIMIT 10
        """,
        (*test.numbers, *values),
    ).fetchall()
    return tuple(
        FailureMode(
            row["text"], row["times"], run_by_number(connection, row["first"]), run_by_number(connection, row["last"])
        )
        for row in rows
    )
