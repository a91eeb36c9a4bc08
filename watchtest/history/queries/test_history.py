"""`history test`: the outcomes of one test, since when they are the same, and what changed at that point."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

from watchtest.core.model import Lane, Outcome
from watchtest.history.queries.run_queries import PastRun, RunFilter, places, run_by_number
from watchtest.history.queries.test_names import PastTest
from watchtest.history.store.columns import GREEN_CODES, JUDGED_SQL, OUTCOMES, RED_CODES
from watchtest.history.store.database import Connection
from watchtest.history.store.pack import PackReader
from watchtest.history.store.tree_changes import changes_between

LONGEST_SEARCH = 20_000
"""How many runs are searched for the beginning of a red period."""
MOST_MODES = 10
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


def history_of(connection: Connection, test: PastTest, runs: RunFilter, *, limit: int) -> TestHistory | None:
    """Return the history of a test in one lane, by default the lane in which it last ran, or None if there is none."""
    packs = PackReader(connection)
    lane = runs.lane or _last_lane(connection, packs, test, runs)
    where, values = replace(runs, lane=lane).sql()
    results = _results(packs, test, where, values)
    found = list(islice(results, limit))
    if not found:
        return None
    red_runs, modes = _failures(connection, test, where, values)
    if found[0][2] in RED_CODES:
        turn = _turn(chain(found, results))
    else:
        # Do not walk through a long green period: the table of failures knows the last red run before it.
        turn = _turn(found)
        if turn is None and red_runs:
            turn = _turn(_results(packs, test, f"{where} AND runs.number >= ?", (*values, red_runs[0])))
    return TestHistory(
        test=test,
        lane=lane,
        moments=tuple(
            HistoryPoint(run_by_number(connection, run), OUTCOMES[code], packs.durations(run)[position] / 1_000_000)
            for run, position, code in reversed(found)
        ),
        turn=None if turn is None else _turning_point(connection, *turn),
        complaints=modes,
        red_runs=len(red_runs),
    )


def _results(
    packs: PackReader, test: PastTest, where: str, values: Sequence[str | float]
) -> Iterator[tuple[int, int, int]]:
    """Yield each run that had the test, newest first, with the position and the outcome of the test in its pack."""
    for pack in packs.newest_first(where, values, LONGEST_SEARCH):
        for number in test.numbers:
            at = pack.position(number)
            if at is not None:
                yield pack.run, at, pack.code(number)
                break


def _turn(results: Iterable[tuple[int, int, int]]) -> tuple[int, int] | None:
    """Return the first run with the latest outcome, and the run before it."""
    for (later, _, code), (earlier, _, code_before) in pairwise(results):
        if _colour(code) != _colour(code_before):
            return later, earlier
    return None


def _colour(code: int) -> int | str:
    """Return "red" or "green", or the code of an outcome that is neither, such as skipped."""
    return "red" if code in RED_CODES else "green" if code in GREEN_CODES else code


def _last_lane(connection: Connection, packs: PackReader, test: PastTest, runs: RunFilter) -> Lane | None:
    where, values = runs.sql()
    # Imported runs count only if there are no others.
    for condition in (f"{where} AND imported_from IS NULL", where):
        for run, _, _ in _results(packs, test, condition, values):
            return run_by_number(connection, run).lane
    return None


def _failures(
    connection: Connection, test: PastTest, where: str, values: Sequence[str | float]
) -> tuple[list[int], tuple[FailureMode, ...]]:
    """Return the runs in which the test was red, and the latest ways in which it failed, both newest first."""
    rows = connection.execute(
        f"""
        SELECT DISTINCT failures.run, signatures.text
        FROM failures JOIN runs ON runs.number = failures.run JOIN signatures ON signatures.number = signature
        WHERE test IN ({places(test.numbers)}) AND {IS_LAST_ATTEMPT} AND {where}
        ORDER BY failures.run DESC
        """,
        (*test.numbers, *values),
    ).fetchall()
    runs_of: dict[str, list[int]] = defaultdict(list)
    for row in rows:
        runs_of[row["text"]].append(row["run"])
    modes = (
        FailureMode(text, len(runs), run_by_number(connection, runs[-1]), run_by_number(connection, runs[0]))
        for text, runs in islice(runs_of.items(), MOST_MODES)
    )
    return sorted({row["run"] for row in rows}, reverse=True), tuple(modes)


def _turning_point(connection: Connection, first: int, before: int) -> TurningPoint:
    paths = suspects(connection, before, first)
    return TurningPoint(run_by_number(connection, first), run_by_number(connection, before), paths)


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
