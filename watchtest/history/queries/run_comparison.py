"""`history compare`: what differs between two runs. A test that did not run is never called fixed. Writes nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watchtest.core.model import Outcome
from watchtest.history.queries.run_queries import PastRun, test_ids
from watchtest.history.queries.test_history import paths_of
from watchtest.history.queries.test_names import lineages
from watchtest.history.queries.timeline import PackReader
from watchtest.history.store.columns import JUDGED_STATES, OUTCOMES
from watchtest.history.store.database import Connection
from watchtest.history.store.tree_changes import changes_between

SLOWER_TIMES = 1.5
SLOWER_BY_S = 0.1
"""Less than both is noise."""


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """One test in one run."""

    identity: str
    outcome: Outcome
    duration_s: float
    signature: str


@dataclass(frozen=True, slots=True)
class TestPair:
    """One test in both runs; None: it is not in that one."""

    identity: str
    before: TestOutcome | None
    after: TestOutcome | None


@dataclass(frozen=True, slots=True)
class Comparison:
    before: PastRun
    after: PastRun
    paths: tuple[str, ...] | None
    """What differs between their trees; None: nobody knows."""
    new_failures: tuple[TestPair, ...]
    fixed: tuple[TestPair, ...]
    failing_alike: tuple[TestPair, ...]
    failing_otherwise: tuple[TestPair, ...]
    added: tuple[TestPair, ...]
    removed: tuple[TestPair, ...]
    not_run: tuple[TestPair, ...]
    """In one of the two runs, which was one of some tests, or did not come to its end; or it was skipped there. Those
    that are red now are among the new failures."""
    slower: tuple[TestPair, ...]


def compare(connection: Connection, before: PastRun, after: PastRun) -> Comparison:
    lineage_of = lineages(connection)
    old, new = _sides(connection, before, lineage_of), _sides(connection, after, lineage_of)
    pairs = {
        line: TestPair((new.get(line) or old[line]).identity, old.get(line), new.get(line))
        for line in sorted(old.keys() | new.keys(), key=lambda line: (new.get(line) or old[line]).identity)
    }
    both = [pair for pair in pairs.values() if pair.before and pair.after]
    red = [pair for pair in both if _is_red(pair.before) and _is_red(pair.after)]
    added = [line for line, pair in pairs.items() if pair.before is None and _is_all(before)]
    removed = [line for line, pair in pairs.items() if pair.after is None and _is_all(after)]
    alone = [line for line, pair in pairs.items() if _has_run(pair.before) is not _has_run(pair.after)]
    told = {*added, *removed, *(line for line, pair in pairs.items() if _is_red(pair.after))}
    changed = changes_between(connection, before.number, after.number)
    return Comparison(
        before=before,
        after=after,
        paths=None if changed is None else paths_of(changed[1]),
        new_failures=tuple(pair for pair in pairs.values() if _is_red(pair.after) and not _is_red(pair.before)),
        fixed=tuple(pair for pair in both if _is_red(pair.before) and _has_passed(pair.after)),
        failing_alike=tuple(pair for pair in red if _signature(pair.before) == _signature(pair.after)),
        failing_otherwise=tuple(pair for pair in red if _signature(pair.before) != _signature(pair.after)),
        added=tuple(pairs[line] for line in added),
        removed=tuple(pairs[line] for line in removed),
        not_run=tuple(pairs[line] for line in alone if line not in told),
        slower=tuple(sorted((pair for pair in both if _is_slower(pair)), key=_lost, reverse=True)),
    )


def _sides(connection: Connection, run: PastRun, lineage_of: Mapping[int, int]) -> dict[int, TestOutcome]:
    packs = PackReader(connection)
    pack, durations = packs.of_run(run.number), packs.durations(run.number)
    names = test_ids(connection, pack.tests)
    # Of several attempts the last one counts.
    rows = connection.execute(
        """
        SELECT test, text FROM failures JOIN signatures ON signatures.number = signature
        WHERE run = ? ORDER BY attempt
        """,
        (run.number,),
    )
    signatures = {row["test"]: row["text"] for row in rows}
    return {
        lineage_of.get(test, test): TestOutcome(
            names[test], OUTCOMES[code], spent / 1_000_000, signatures.get(test, "")
        )
        for test, code, spent in zip(pack.tests, pack.codes, durations, strict=True)
    }


def _is_all(run: PastRun) -> bool:
    """Whether what is not in it was not there."""
    return run.selected is None and run.state in JUDGED_STATES


def _is_red(side: TestOutcome | None) -> bool:
    return side is not None and side.outcome.is_red


def _has_passed(side: TestOutcome | None) -> bool:
    return side is not None and side.outcome in (Outcome.PASSED, Outcome.XPASSED)


def _has_run(side: TestOutcome | None) -> bool:
    return side is not None and side.outcome is not Outcome.SKIPPED


def _signature(side: TestOutcome | None) -> str:
    return "" if side is None else side.signature


def _is_slower(pair: TestPair) -> bool:
    if pair.before is None or pair.after is None or not (_has_passed(pair.before) and _has_passed(pair.after)):
        return False
    was, is_ = pair.before.duration_s, pair.after.duration_s
    return is_ > was * SLOWER_TIMES and is_ > was + SLOWER_BY_S


def _lost(pair: TestPair) -> float:
    return pair.after.duration_s - pair.before.duration_s if pair.before and pair.after else 0.0
