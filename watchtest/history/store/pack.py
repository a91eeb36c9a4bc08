"""All results of an ended run in a few bytes. Pure.

A run is a roster (which tests, by number, ascending), one outcome a test, one duration a test. Most runs share their
roster with others, and most outcomes are `passed`: ten million results fit into some tens of megabytes. Durations are
kept to three digits.

Turns the rows of a run that has ended into its pack, and counts them. In a transaction of the caller's.

Results are rows while they come, so that a kill loses none of them; a run that is over is far smaller as a whole.
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
"""A duration is a number below this, times a power of ten, in microseconds."""
LARGEST_POWER = 9
LEVEL = 6


def pack_roster(tests: Sequence[int]) -> tuple[bytes, bytes]:
    """Ascending numbers as a blob, and the digest that all equal rosters share."""
    steps = array("I", (later - earlier for earlier, later in pairwise((0, *tests))))
    data = _little_endian(steps).tobytes()
    return zlib.compress(data, LEVEL), hashlib.blake2b(data, digest_size=12).digest()


def unpack_roster(blob: bytes) -> list[int]:
    steps = array("I")
    steps.frombytes(zlib.decompress(blob))
    return list(accumulate(_little_endian(steps)))


def pack_outcomes(codes: bytes) -> bytes | None:
    """None: all passed."""
    return None if codes.count(PASSED_CODE) == len(codes) else zlib.compress(codes, LEVEL)


def unpack_outcomes(blob: bytes | None, size: int) -> bytes:
    return bytes([PASSED_CODE]) * size if blob is None else zlib.decompress(blob)


def pack_durations(microseconds: Iterable[int]) -> bytes:
    codes = array("H", map(_duration_code, microseconds))
    data = _little_endian(codes).tobytes()
    # The high bytes of a suite are much alike: beside one another they cost next to nothing.
    return zlib.compress(data[1::2] + data[0::2], LEVEL)


def unpack_durations(blob: bytes) -> list[int]:
    """In microseconds."""
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
    """In little-endian order on every machine: the file may be carried to another."""
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers


_COUNTS = ", ".join(f"{outcome.value} = ?" for outcome in Outcome)


def compact(connection: Connection, run: int) -> None:
    """The last attempt of each test is its result; the others stay as rows where not all of them were green."""
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
    """`tests` ascending, each with its outcome and its duration in microseconds."""
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
