"""Read packs: the outcomes of tests in run after run. Each roster is unpacked only once."""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from watchtest.history.store.columns import OUTCOMES, PASSED_CODE, RED_CODES
from watchtest.history.store.database import Connection, Row
from watchtest.history.store.pack import unpack_durations, unpack_outcomes, unpack_roster


@dataclass(frozen=True, slots=True)
class Pack:
    """The outcomes of one ended run, by position in its roster."""

    run: int
    tests: list[int]
    blob: bytes | None

    @property
    def codes(self) -> bytes:
        return unpack_outcomes(self.blob, len(self.tests))

    def code(self, test: int) -> int:
        """Return the outcome of one test, or 0 if it did not run."""
        at = self.position(test)
        if at is None:
            return 0
        return PASSED_CODE if self.blob is None else self.codes[at]

    def position(self, test: int) -> int | None:
        at = bisect_left(self.tests, test)
        return at if at < len(self.tests) and self.tests[at] == test else None

    def outcomes(self) -> Mapping[int, int]:
        return dict(zip(self.tests, self.codes, strict=True))

    def red(self) -> frozenset[int]:
        if self.blob is None:
            return frozenset()
        return frozenset(test for test, code in zip(self.tests, self.codes, strict=True) if code in RED_CODES)


class PackReader:
    """Unpacks rows that have `run`, `roster` and `outcomes`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rosters: dict[int, list[int]] = {}

    def unpack(self, row: Row) -> Pack:
        return Pack(row["run"], self.roster(row["roster"]), row["outcomes"])

    def roster(self, number: int) -> list[int]:
        found = self._rosters.get(number)
        if found is None:
            row = self._connection.execute("SELECT tests FROM rosters WHERE number = ?", (number,)).fetchone()
            found = self._rosters[number] = unpack_roster(row["tests"])
        return found

    def of_run(self, run: int) -> Pack:
        """Return the pack of an ended run, or the results so far of a run in progress."""
        row = self._connection.execute("SELECT run, roster, outcomes FROM packs WHERE run = ?", (run,)).fetchone()
        if row is not None:
            return self.unpack(row)
        rows = self._connection.execute(
            "SELECT test, outcome FROM results WHERE run = ? ORDER BY test, attempt", (run,)
        ).fetchall()
        last = {each["test"]: each["outcome"] for each in rows if each["outcome"] in OUTCOMES}
        return Pack(run, list(last), zlib.compress(bytes(last.values()), 1))

    def durations(self, run: int) -> list[int]:
        """Return the durations in microseconds, in the order of the roster."""
        row = self._connection.execute("SELECT durations FROM timings WHERE run = ?", (run,)).fetchone()
        if row is not None:
            return unpack_durations(row["durations"])
        rows = self._connection.execute(
            "SELECT test, duration_us FROM results WHERE run = ? ORDER BY test, attempt", (run,)
        ).fetchall()
        return list({each["test"]: each["duration_us"] for each in rows}.values())

    def results(self, run: int) -> list[tuple[int, int, int]]:
        """Return for each test of a run its number, its outcome and its duration in microseconds."""
        pack = self.of_run(run)
        return list(zip(pack.tests, pack.codes, self.durations(run), strict=True))

    def newest_first(
        self, where: str = "1", values: Collection[str | int | float] = (), most: int | None = None
    ) -> Iterator[Pack]:
        """Yield the packs of the runs that meet a condition on `runs`, newest first."""
        rows = self._connection.execute(
            f"""
            SELECT packs.run, roster, outcomes FROM runs JOIN packs ON packs.run = runs.number
            WHERE {where} ORDER BY runs.number DESC LIMIT ?
            """,
            (*values, -1 if most is None else most),
        )
        for row in rows:
            yield self.unpack(row)
