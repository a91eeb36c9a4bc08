"""Compact storage of the results of an ended run.

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
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from watchtest.core.model import Outcome
from watchtest.history.store.columns import OUTCOME_CODES, PASSED_CODE
from watchtest.history.store.database import Connection, Row

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


_COUNTS = ", ".join(f"{outcome.value} = ?" for outcome in Outcome)


def compact(connection: Connection, run: int) -> None:
    """Pack the results of an ended run and count them, in the caller's transaction.

    The last attempt of each test is its result. All attempts of a test stay as rows if not all of them passed.
    """
    rows = connection.execute(
        "SELECT test, attempt, outcome, duration_us FROM results WHERE run = ? ORDER BY test, attempt", (run,)
    ).fetchall()
    last: dict[int, Row] = {row["test"]: row for row in rows}
    repeated = {row["test"] for row in rows if row["attempt"] > 1}
    several = {row["test"] for row in rows if row["test"] in repeated and row["outcome"] != PASSED_CODE}
    codes = bytes(row["outcome"] for row in last.values())
    if last:
        add_pack(connection, run, list(last), codes, (row["duration_us"] for row in last.values()))
    if not several:
        connection.execute("DELETE FROM results WHERE run = ?", (run,))
    else:
        connection.executemany(
            "DELETE FROM results WHERE run = ? AND test = ?", [(run, test) for test in last if test not in several]
        )
    counts = [codes.count(OUTCOME_CODES[outcome]) for outcome in Outcome]
    connection.execute(f"UPDATE runs SET {_COUNTS} WHERE number = ?", (*counts, run))


def add_pack(connection: Connection, run: int, tests: Sequence[int], codes: bytes, durations: Iterable[int]) -> None:
    """Store a pack. `tests` are ascending, each with its outcome and its duration in microseconds."""
    blob, digest = pack_roster(tests)
    roster = connection.execute("SELECT number FROM rosters WHERE digest = ?", (digest,)).fetchone()
    number = (
        connection.execute("INSERT INTO rosters (digest, tests) VALUES (?, ?)", (digest, blob)).lastrowid
        if roster is None
        else roster["number"]
    )
    outcomes = pack_outcomes(codes)
    connection.execute("INSERT INTO packs (run, roster, outcomes) VALUES (?, ?, ?)", (run, number, outcomes))
    connection.execute("INSERT INTO timings (run, durations) VALUES (?, ?)", (run, pack_durations(durations)))
