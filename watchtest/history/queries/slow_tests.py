"""`history slowest`: where the time of the tests goes. Writes nothing."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from statistics import median

from watchtest.core.model import Lane
from watchtest.history.queries.run_queries import runs_where, test_ids
from watchtest.history.queries.test_names import lineages
from watchtest.history.queries.timeline import PackReader
from watchtest.history.store.columns import PASSED_CODE, RED_CODES
from watchtest.history.store.database import Connection

LOOKED_AT = 50
GROWN_TIMES = 1.3
GROWN_BY_S = 0.05
"""Less than both is noise."""
GROWN_FROM = 6
"""With fewer durations nothing can be said of a trend."""


@dataclass(frozen=True, slots=True)
class SlowTest:
    identity: str
    median_s: float
    longest_s: float
    share: float
    """Of the time of all tests that were looked at."""
    durations_s: tuple[float, ...]
    """Oldest first."""

    @property
    def growth(self) -> float | None:
        """How many times as long as before it takes now; None: that cannot be told, or is as good as nothing."""
        if len(self.durations_s) < GROWN_FROM:
            return None
        half = len(self.durations_s) // 2
        was, is_ = median(self.durations_s[:half]), median(self.durations_s[half:])
        return is_ / was if was > 0 and abs(is_ - was) >= GROWN_BY_S else None


def slowest(
    connection: Connection, *, workspace: str | None, lane: Lane | None = None, limit: int, runs: int = LOOKED_AT
) -> tuple[SlowTest, ...]:
    """By their median over the latest runs, in which they did something: passed, or red."""
    where, values = runs_where(workspace=workspace, lane=lane)
    packs, lineage_of = PackReader(connection), lineages(connection)
    spent: dict[int, list[int]] = defaultdict(list)
    number_of: dict[int, int] = {}
    for pack in reversed(list(packs.newest_first(where, values, runs))):
        for test, code, microseconds in zip(pack.tests, pack.codes, packs.durations(pack.run), strict=True):
            if code == PASSED_CODE or code in RED_CODES:
                line = lineage_of.get(test, test)
                number_of[line] = test
                spent[line].append(microseconds)
    medians = {line: median(each) for line, each in spent.items()}
    total = sum(medians.values()) or 1.0
    slow = sorted(medians, key=medians.__getitem__, reverse=True)[:limit]
    names = test_ids(connection, [number_of[line] for line in slow])
    return tuple(
        SlowTest(
            names[number_of[line]],
            medians[line] / 1_000_000,
            max(spent[line]) / 1_000_000,
            medians[line] / total,
            tuple(each / 1_000_000 for each in spent[line]),
        )
        for line in slow
    )
