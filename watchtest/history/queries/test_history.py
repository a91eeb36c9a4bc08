"""`history test`: what became of one test, since when, and what had changed then. Writes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from watchtest.core.model import Lane, Outcome
from watchtest.history.queries.run_queries import PastRun, past_run, runs_where
from watchtest.history.queries.test_names import PastTest
from watchtest.history.queries.timeline import Pack, PackReader
from watchtest.history.store.change_chain import Versions
from watchtest.history.store.columns import GREEN_CODES, JUDGED_STATES, OUTCOMES, RED_CODES
from watchtest.history.store.database import Connection
from watchtest.history.store.tree_changes import changes_between

LONGEST_SEARCH = 20_000
"""So many runs are looked through, at most, for the beginning of a stretch of red."""
LAST_WORD = """
    NOT EXISTS (SELECT 1 FROM results AS later WHERE later.run = failures.run AND later.test = failures.test
                                                 AND later.attempt > failures.attempt)
"""
"""A condition on `failures`: what a later attempt in the same run has confirmed or refuted does not count."""


@dataclass(frozen=True, slots=True)
class HistoryPoint:
    """One run as one test saw it."""

    run: PastRun
    outcome: Outcome
    duration_s: float


@dataclass(frozen=True, slots=True)
class TurningPoint:
    """Where it turned: the first run of the present stretch, the one before it, and what differs between the two."""

    first: PastRun
    before: PastRun | None
    paths: tuple[str, ...] | None
    """None: it is not known what changed."""


@dataclass(frozen=True, slots=True)
class FailureMode:
    """One way in which it failed."""

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
    """Oldest first, the latest so many."""
    turn: TurningPoint | None
    """None: it did not turn in these runs, and was red in none before them."""
    complaints: tuple[FailureMode, ...]
    red_runs: int
    """In how many runs it was red, of all that are kept."""

    @property
    def flips(self) -> int:
        return flips([moment.outcome.is_red for moment in self.moments if moment.outcome is not Outcome.SKIPPED])


def flips(reds: Sequence[bool]) -> int:
    """How often it turned from green to red or back."""
    return sum(one is not other for one, other in pairwise(reds))


def history_of(
    connection: Connection, test: PastTest, *, workspace: str | None, lane: Lane | None, limit: int
) -> TestHistory | None:
    """In one lane (without one: the lane it last ran in); None: it ran in no run that is kept there."""
    packs = PackReader(connection)
    if lane is None:
        lane = _last_lane(connection, packs, test, workspace)
    where, values = runs_where(workspace=workspace, lane=lane)
    found: list[tuple[int, int, int]] = []
    turned: tuple[int, int | None] | None = None
    for pack in packs.newest_first(where, values, LONGEST_SEARCH):
        seen = _seen(pack, test)
        if seen is None:
            continue
        position, code = seen
        if turned is None and found and _colour(code) != _colour(found[0][2]):
            turned = found[-1][0], pack.run
        found.append((pack.run, position, code))
        # A long green is not walked through: what lies before its last red is told by the failures.
        if len(found) >= limit and (turned is not None or found[0][2] not in RED_CODES):
            break
    if not found:
        return None
    red = _red_runs(connection, test, where, values)
    if turned is None and found[0][2] not in RED_CODES and red:
        turned = _like_this_since(packs, test, where, values, red[0])
    return TestHistory(
        test=test,
        lane=lane,
        moments=tuple(_moment(connection, packs, *each) for each in reversed(found[:limit])),
        turn=None if turned is None else turn(connection, *turned),
        complaints=_complaints(connection, test, where, values),
        red_runs=len(red),
    )


def turn(connection: Connection, first: int, before: int | None) -> TurningPoint:
    return TurningPoint(
        run_by_number(connection, first),
        None if before is None else run_by_number(connection, before),
        None if before is None else suspects(connection, before, first),
    )


def suspects(connection: Connection, before: int, first: int) -> tuple[str, ...] | None:
    """What changed between two runs that a test was in; of that, only what came after the last run between them that
    proved that its changes do not concern the test, by leaving it out. None: it is not known."""
    states = ", ".join(f"'{state.value}'" for state in sorted(JUDGED_STATES))
    row = connection.execute(
        f"""
        SELECT MAX(number) AS number FROM runs WHERE number > :before AND number < :first AND state IN ({states})
        AND is_proof AND (workspace, lane) = (SELECT workspace, lane FROM runs WHERE number = :first)
        """,
        {"before": before, "first": first},
    ).fetchone()
    narrow = changes_between(connection, row["number"], first) if row["number"] is not None else None
    # Nothing: then a selection was wrong, and everything is suspect.
    wide = changes_between(connection, before, first) if narrow is None or not narrow[1] else narrow
    return None if wide is None else paths_of(wide[1])


def paths_of(after: Versions) -> tuple[str, ...]:
    return tuple(after)


def run_by_number(connection: Connection, number: int) -> PastRun:
    return past_run(connection, connection.execute("SELECT * FROM runs WHERE number = ?", (number,)).fetchone())


def _seen(pack: Pack, test: PastTest) -> tuple[int, int] | None:
    for number in test.numbers:
        at = pack.position(number)
        if at is not None:
            return at, pack.code(number)
    return None


def _colour(code: int) -> int | str:
    """Red, green, or what else it was: to be skipped is neither."""
    return "red" if code in RED_CODES else "green" if code in GREEN_CODES else code


def _last_lane(connection: Connection, packs: PackReader, test: PastTest, workspace: str | None) -> Lane | None:
    where, values = runs_where(workspace=workspace)
    # Reports of others stand in for a lane only where there is nothing else.
    for condition in (f"{where} AND imported_from IS NULL", where):
        for pack in packs.newest_first(condition, values, LONGEST_SEARCH):
            if _seen(pack, test):
                return run_by_number(connection, pack.run).lane
    return None


def _moment(connection: Connection, packs: PackReader, run: int, position: int, code: int) -> HistoryPoint:
    return HistoryPoint(run_by_number(connection, run), OUTCOMES[code], packs.durations(run)[position] / 1_000_000)


def _red_runs(connection: Connection, test: PastTest, where: str, values: Sequence[str | float]) -> list[int]:
    """Newest first."""
    rows = connection.execute(
        f"""
        SELECT DISTINCT failures.run FROM failures JOIN runs ON runs.number = failures.run
        WHERE test IN ({", ".join("?" * len(test.numbers))}) AND {LAST_WORD} AND {where} ORDER BY failures.run DESC
        """,
        (*test.numbers, *values),
    ).fetchall()
    return [row["run"] for row in rows]


def _like_this_since(
    packs: PackReader, test: PastTest, where: str, values: Sequence[str | float], last_red: int
) -> tuple[int, int | None] | None:
    """The first run of the present stretch, and the one before it. It began behind the last red, if not later."""
    condition, more = f"{where} AND runs.number >= ?", (*values, last_red)
    first: tuple[int, int | str] | None = None
    for pack in packs.newest_first(condition, more, LONGEST_SEARCH):
        seen = _seen(pack, test)
        if seen is None:
            continue
        if first is not None and _colour(seen[1]) != first[1]:
            return first[0], pack.run
        first = pack.run, _colour(seen[1])
    return None


def _complaints(
    connection: Connection, test: PastTest, where: str, values: Sequence[str | float]
) -> tuple[FailureMode, ...]:
    rows = connection.execute(
        f"""
        SELECT signatures.text, COUNT(DISTINCT failures.run) AS times, MIN(failures.run) AS first,
               MAX(failures.run) AS last
        FROM failures JOIN runs ON runs.number = failures.run JOIN signatures ON signatures.number = signature
        WHERE test IN ({", ".join("?" * len(test.numbers))}) AND {LAST_WORD} AND {where}
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
