"""`history trend` and `history cost`: statistics of runs over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby
from statistics import median
from typing import Any, Literal

from watchtest.core.model import RunState
from watchtest.history.queries.run_queries import RunFilter
from watchtest.history.store.columns import JUDGED_STATES
from watchtest.history.store.database import Connection, Row

By = Literal["run", "day", "week"]
FULL_RUNS_REMEMBERED = 5


@dataclass(frozen=True, slots=True)
class Bucket:
    """The full runs of one day or week, or a single run."""

    name: str
    at: float
    runs: int
    green: int
    tests: int
    """In its last run."""
    red: float
    """Red tests per run, on average."""
    run_s: float
    """Median."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The time that the runs of one lane took, and what selecting tests saved."""

    lane: str
    runs: int
    judged: int
    tests: int
    spent_s: float
    """From leaving the queue to the end."""
    testing_s: float
    """The part of `spent_s` in which the runner was at work."""
    wasted_s: float
    """The part of `spent_s` in runs without a verdict: cancelled, superseded, broken."""
    narrowed: int
    """Runs that left out tests because the change could not affect them."""
    saved_s: float
    """What the tests left out would have taken, estimated from the full runs before."""


def trend(connection: Connection, runs: RunFilter, by: By) -> tuple[Bucket, ...]:
    """Return statistics of judged full runs, oldest first. Other runs say nothing about the whole suite."""
    where, values = replace(runs, states=JUDGED_STATES, only_full=True).sql()
    rows = connection.execute(
        f"""
        SELECT id, queued_at, state, passed, failed, error, skipped, xfailed, xpassed,
               ended_at - COALESCE(first_at, executing_at, started_at, queued_at) AS run_s
        FROM runs WHERE {where} ORDER BY queued_at, number
        """,
        values,
    ).fetchall()
    names: dict[By, Callable[[Row], str]] = {"run": lambda row: str(row["id"]), "day": _day, "week": _week}
    return tuple(_bucket(name, list(group)) for name, group in groupby(rows, names[by]))


def _bucket(name: str, rows: list[Row]) -> Bucket:
    last = rows[-1]
    return Bucket(
        name=name,
        at=rows[0]["queued_at"],
        runs=len(rows),
        green=sum(row["state"] == RunState.PASSED.value for row in rows),
        tests=sum(last[each] or 0 for each in ("passed", "failed", "error", "skipped", "xfailed", "xpassed")),
        red=sum((row["failed"] or 0) + (row["error"] or 0) for row in rows) / len(rows),
        run_s=median(row["run_s"] or 0.0 for row in rows),
    )


def _day(row: Row) -> str:
    return datetime.fromtimestamp(row["queued_at"]).strftime("%Y-%m-%d")


def _week(row: Row) -> str:
    day = datetime.fromtimestamp(row["queued_at"])
    return (day - timedelta(days=day.weekday())).strftime("%Y-%m-%d")


def cost(connection: Connection, runs: RunFilter) -> tuple[Cost, ...]:
    """Return one `Cost` per lane, the most expensive lane first. Imported runs do not count."""
    # Earlier full runs tell how long all tests usually take.
    where, values = replace(runs, since=None).sql()
    rows = connection.execute(
        f"""
        SELECT workspace, lane, state, selected, is_proof, queued_at,
               ended_at - COALESCE(started_at, ended_at) AS spent_s,
               ended_at - COALESCE(first_at, executing_at, ended_at) AS run_s,
               passed + failed + error + skipped + xfailed + xpassed AS tests
        FROM runs WHERE {where} AND ended_at IS NOT NULL AND imported_from IS NULL ORDER BY number
        """,
        values,
    )
    full: dict[str, list[float]] = {}
    found: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for row in rows:
        is_judged = row["state"] in JUDGED_STATES
        last_full = full.setdefault(row["workspace"], [])
        usual = median(last_full) if last_full else None
        if is_judged and row["selected"] is None:
            last_full.append(row["run_s"])
            del last_full[:-FULL_RUNS_REMEMBERED]
        if runs.since is not None and row["queued_at"] < runs.since:
            continue
        is_narrowed = is_judged and row["selected"] is not None and bool(row["is_proof"])
        saved = max(0.0, usual - row["run_s"]) if is_narrowed and usual is not None else 0.0
        is_wasted = not is_judged and row["state"] not in (RunState.ERROR, RunState.TIMED_OUT, RunState.NO_TESTS)
        spent = (row["spent_s"], row["run_s"], row["spent_s"] * is_wasted)
        found[row["lane"]].append((1, is_judged, row["tests"] or 0, *spent, is_narrowed, saved))
    costs = [Cost(lane, *map(sum, zip(*numbers, strict=True))) for lane, numbers in found.items()]
    return tuple(sorted(costs, key=lambda each: each.spent_s, reverse=True))
