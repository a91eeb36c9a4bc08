"""All results of an ended run in a few bytes. Pure.

A run is a roster (which tests, by number, ascending), one outcome a test, one duration a test. Most runs share their
roster with others, and most outcomes are `passed`: ten million results fit into some tens of megabytes. Durations are
kept to three digits.
"""

from __future__ import annotations

import hashlib
import sys
import zlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise

from watchtest.history.store.columns import OUTCOME_CODES, PASSED_CODE

DIGITS = 1000
"""A duration is a number below this, times a power of ten, in microseconds."""
LARGEST_POWER = 9
LEVEL = 6


def pack_roster(tests: Sequence[int]) -> tuple[bytes, bytes]:
    """Ascending numbers as a blob, and the digest that all equal rosters share."""
    steps = array("I", (later - earlier for earlier, later in pairwise((0, *tests))))
    data = _ordered(steps).tobytes()
    return zlib.compress(data, LEVEL), hashlib.blake2b(data, digest_size=12).digest()


def unpack_roster(blob: bytes) -> list[int]:
    steps = array("I")
    steps.frombytes(zlib.decompress(blob))
    return list(accumulate(_ordered(steps)))


def pack_outcomes(codes: bytes) -> bytes | None:
    """None: all passed."""
    return None if codes.count(PASSED_CODE) == len(codes) else zlib.compress(codes, LEVEL)


def unpack_outcomes(blob: bytes | None, size: int) -> bytes:
    return bytes([PASSED_CODE]) * size if blob is None else zlib.decompress(blob)


def pack_durations(microseconds: Iterable[int]) -> bytes:
    codes = array("H", map(_rounded, microseconds))
    data = _ordered(codes).tobytes()
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


def _rounded(microseconds: int) -> int:
    for power, limit in enumerate(_LIMITS):
        if microseconds < limit:
            return power * DIGITS + min(int(microseconds / _POWERS[power] + 0.5), DIGITS - 1)
    return LARGEST_POWER * DIGITS + DIGITS - 1


def _ordered(numbers: array[int]) -> array[int]:
    """In little-endian order on every machine: the file may be carried to another."""
    if sys.byteorder == "big":
        numbers = array(numbers.typecode, numbers)
        numbers.byteswap()
    return numbers
