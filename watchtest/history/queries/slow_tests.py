"""`history slowest`: the tests that take the most time."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from watchtest.history.queries.run_queries import RunFilter, ids_of_tests
from watchtest.history.queries.test_names import lineages
from watchtest.history.store.columns import PASSED_CODE, RED_CODES
from watchtest.history.store.database import Connection
from watchtest.history.store.pack import PackReader

MIN_GROWTH_S = 0.05
"""A smaller difference is noise."""
MIN_DURATIONS = 6
"""With fewer durations there is no trend."""


@dataclass(frozen=True, slots=True)
class SlowTest:
    identity: str
    median_s: float
    longest_s: float
    share: float
    """Of the time of all tests in the latest runs."""
    durations_s: tuple[float, ...]
    """Oldest first."""

    @property
    def growth(self) -> float | None:
        """Return the factor by which its duration has changed, or None if that is unknown or insignificant."""
        if len(self.durations_s) < MIN_DURATIONS:
            return None
        half = len(self.durations_s) // 2
        before, now = median(self.durations_s[:half]), median(self.durations_s[half:])
        return now / before if before > 0 and abs(now - before) >= MIN_GROWTH_S else None


def slowest(connection: Connection, runs: RunFilter, *, window: int, limit: int) -> tuple[SlowTest, ...]:
    """Return the slowest tests by their median over the latest runs in which they passed or failed.

    `window` is how many runs are considered.
    """
    packs, lineage_of = PackReader(connection), lineages(connection)
    spent: dict[int, list[int]] = defaultdict(list)
    number_of: dict[int, int] = {}
    for pack in reversed(list(packs.newest_first(*runs.sql(), window))):
        for test, code, microseconds in zip(pack.tests, pack.codes, packs.durations(pack.run), strict=True):
            if code == PASSED_CODE or code in RED_CODES:
                lineage = lineage_of.get(test, test)
                number_of[lineage] = test
                spent[lineage].append(microseconds)
    medians = {lineage: median(each) for lineage, each in spent.items()}
    total = sum(medians.values()) or 1.0
    slow = sorted(medians, key=medians.__getitem__, reverse=True)[:limit]
    names = ids_of_tests(connection, [number_of[lineage] for lineage in slow])
    return tuple(
        SlowTest(
            names[number_of[lineage]],
            medians[lineage] / 1_000_000,
            max(spent[lineage]) / 1_000_000,
            medians[lineage] / total,
            tuple(each / 1_000_000 for each in spent[lineage]),
        )
        for lineage in slow
    )
