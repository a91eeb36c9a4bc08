"""Compact storage of the results of an ended run, and the outcomes of tests in run after run.

A pack is a roster (the numbers of its tests, ascending) with one outcome and one duration per test. Most runs share
their roster with others, and most outcomes are `passed`, so ten million results fit into some tens of megabytes.
Durations are rounded to three digits.

While a run is in progress its results are rows, so that a kill loses none of them. `compact` packs them at its end.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from watchtest.core.model import Outcome
from watchtest.history.store.columns import OUTCOME_CODES, PASSED_CODE, RED_CODES
from watchtest.history.store.database import Connection, Row

_COUNTS = ", ".join(f"{outcome.value} = ?" for outcome in Outcome)
DIGITS = 1000
"""A duration is stored as a number below this, times a power of ten, in microseconds."""
LARGEST_POWER = 9
LEVEL = 6


def pack_roster(tests: Sequence[int]) -> tuple[bytes, bytes]:
    """Return ascending numbers as a blob, and a digest that is the same for equal rosters."""
    steps = array("I", (later - earlier for earlier, later in pairwise((0, *tests))))
    data = _little_endian(steps).tobytes()
    return zlib.compress(data, LEVEL), hashlib.blake2b(data, digest_size=12).digest()


def unpack_roster(blob: bytes) -> list[int]:
    steps = array("I")
    steps.frombytes(zlib.decompress(blob))
    return list(accumulate(_little_endian(steps)))


def pack_outcomes(codes: bytes) -> bytes | None:
    """Return the outcomes as a blob, or None if all tests passed."""
    return None if codes.count(PASSED_CODE) == len(codes) else zlib.compress(codes, LEVEL)


def unpack_outcomes(blob: bytes | None, size: int) -> bytes:
    return bytes([PASSED_CODE]) * size if blob is None else zlib.decompress(blob)


def pack_durations(microseconds: Iterable[int]) -> bytes:
    codes = array("H", map(_duration_code, microseconds))
    data = _little_endian(codes).tobytes()
    # The high bytes of a suite are similar and compress well when they are adjacent.
    return zlib.compress(data[1::2] + data[0::2], LEVEL)


def unpack_durations(blob: bytes) -> list[int]:
    """Return the durations in microseconds."""
    data = zlib.decompress(blob)
    half = len(data) // 2
    codes = (high << 8 | low for high, low in zip(data[:half], data[half:], strict=True))
    return [_POWERS[code // DIGITS] * (code % DIGITS) for code in codes]


_POWERS: tuple[int, ...] = tuple(10**power for power in range(LARGEST_POWER + 1))
_LIMITS = tuple((DIGITS - 0.5) * power for power in _POWERS)
assert set(OUTCOME_CODES.values()) < set(range(256))


def _duration_code(microseconds: int) -> int:
    for power, limit in enumerate(_LIMITS):
        if microseconds < limit:
            return power * DIGITS + min(int(microseconds / _POWERS[power] + 0.5), DIGITS - 1)
    return LARGEST_POWER * DIGITS + DIGITS - 1


def _little_endian(numbers: array[int]) -> array[int]:
    """Return the numbers in little-endian byte order, as the file may be moved to another machine."""
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers


def compact(connection: Connection, run: int) -> None:
    """Pack the results of an ended run and count them, in the caller's transaction.

    The last attempt of each test is its result. All attempts of a test stay as rows if not all of them passed.
    """
    rows = connection.execute(
        "SELECT test, outcome, duration_us FROM results WHERE run = ? ORDER BY test, attempt", (run,)
    ).fetchall()
    last: dict[int, Row] = {row["test"]: row for row in rows}
    codes = bytes(row["outcome"] for row in last.values())
    if last:
        add_pack(connection, run, list(last), codes, (row["duration_us"] for row in last.values()))
    connection.execute(
        f"""
        DELETE FROM results WHERE run = :run AND test NOT IN (
            SELECT test FROM results WHERE run = :run
            GROUP BY test HAVING MAX(attempt) > 1 AND SUM(outcome <> {PASSED_CODE}) > 0
        )
        """,
        {"run": run},
    )
    counts = [codes.count(OUTCOME_CODES[outcome]) for outcome in Outcome]
    connection.execute(f"UPDATE runs SET {_COUNTS} WHERE number = ?", (*counts, run))


def add_pack(connection: Connection, run: int, tests: Sequence[int], codes: bytes, durations: Iterable[int]) -> None:
    """Store a pack. `tests` are ascending, each with its outcome and its duration in microseconds."""
    blob, digest = pack_roster(tests)
    connection.execute("INSERT INTO rosters (digest, tests) VALUES (?, ?) ON CONFLICT DO NOTHING", (digest, blob))
    connection.execute(
        "INSERT INTO packs (run, roster, outcomes) SELECT ?, number, ? FROM rosters WHERE digest = ?",
        (run, pack_outcomes(codes), digest),
    )
    connection.execute("INSERT INTO timings (run, durations) VALUES (?, ?)", (run, pack_durations(durations)))


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
    """Reads packs, and unpacks each roster only once."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._rosters: dict[int, list[int]] = {}

    def unpack(self, row: Row) -> Pack:
        number = row["roster"]
        if number not in self._rosters:
            found = self._connection.execute("SELECT tests FROM rosters WHERE number = ?", (number,)).fetchone()
            self._rosters[number] = unpack_roster(found["tests"])
        return Pack(row["run"], self._rosters[number], row["outcomes"])

    def of_run(self, run: int) -> Pack:
        """Return the pack of an ended run, or the results so far of a run in progress."""
        row = self._connection.execute("SELECT run, roster, outcomes FROM packs WHERE run = ?", (run,)).fetchone()
        if row is not None:
            return self.unpack(row)
        codes = self._unpacked(run, "outcome")
        return Pack(run, list(codes), zlib.compress(bytes(codes.values()), 1))

    def durations(self, run: int) -> list[int]:
        """Return the durations in microseconds, in the order of the roster."""
        row = self._connection.execute("SELECT durations FROM timings WHERE run = ?", (run,)).fetchone()
        return list(self._unpacked(run, "duration_us").values()) if row is None else unpack_durations(row["durations"])

    def _unpacked(self, run: int, column: str) -> dict[int, int]:
        """Return a column of the last attempt of each test, for a run in progress."""
        select = f"SELECT test, {column} FROM results WHERE run = ? ORDER BY test, attempt"
        return {row["test"]: row[column] for row in self._connection.execute(select, (run,))}

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
