"""`history compare`: the differences between two runs. A test that did not run never counts as fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from watchtest.core.model import Outcome
from watchtest.history.queries.run_queries import PastRun, ids_of_tests
from watchtest.history.queries.test_names import lineages
from watchtest.history.queries.timeline import PackReader
from watchtest.history.store.columns import JUDGED_STATES, OUTCOMES
from watchtest.history.store.database import Connection
from watchtest.history.store.tree_changes import changes_between

SLOWER_TIMES = 1.5
SLOWER_BY_S = 0.1
"""A test is slower if it exceeds both limits; less is noise."""


@dataclass(frozen=True, slots=True)
class TestOutcome:
    """The outcome of one test in one run."""

    identity: str
    outcome: Outcome
    duration_s: float
    signature: str


@dataclass(frozen=True, slots=True)
class TestPair:
    """One test in both runs; None if a run did not have it."""

    identity: str
    before: TestOutcome | None
    after: TestOutcome | None


@dataclass(frozen=True, slots=True)
class Comparison:
    before: PastRun
    after: PastRun
    paths: tuple[str, ...] | None
    """The paths that differ between their trees; None if that is unknown."""
    new_failures: tuple[TestPair, ...]
    fixed: tuple[TestPair, ...]
    failing_alike: tuple[TestPair, ...]
    failing_otherwise: tuple[TestPair, ...]
    added: tuple[TestPair, ...]
    removed: tuple[TestPair, ...]
    not_run: tuple[TestPair, ...]
    """Tests that ran in only one of the two runs, because the other run did not include all tests, was stopped or
    skipped them. Tests that are red in the later run are among the new failures instead."""
    slower: tuple[TestPair, ...]


def compare(connection: Connection, before: PastRun, after: PastRun) -> Comparison:
    lineage_of = lineages(connection)
    old, new = _outcomes(connection, before, lineage_of), _outcomes(connection, after, lineage_of)
    current = {**old, **new}
    pairs = {
        test: TestPair(current[test].identity, old.get(test), new.get(test))
        for test in sorted(current, key=lambda test: current[test].identity)
    }
    both = [pair for pair in pairs.values() if pair.before and pair.after]
    red = [pair for pair in both if _is_red(pair.before) and _is_red(pair.after)]
    added = [test for test, pair in pairs.items() if pair.before is None and _has_all_tests(before)]
    removed = [test for test, pair in pairs.items() if pair.after is None and _has_all_tests(after)]
    in_one_run = [test for test, pair in pairs.items() if _has_run(pair.before) is not _has_run(pair.after)]
    listed = {*added, *removed, *(test for test, pair in pairs.items() if _is_red(pair.after))}
    changed = changes_between(connection, before.number, after.number)
    return Comparison(
        before=before,
        after=after,
        paths=None if changed is None else tuple(changed[1]),
        new_failures=tuple(pair for pair in pairs.values() if _is_red(pair.after) and not _is_red(pair.before)),
        fixed=tuple(pair for pair in both if _is_red(pair.before) and _has_passed(pair.after)),
        failing_alike=tuple(pair for pair in red if _signature(pair.before) == _signature(pair.after)),
        failing_otherwise=tuple(pair for pair in red if _signature(pair.before) != _signature(pair.after)),
        added=tuple(pairs[test] for test in added),
        removed=tuple(pairs[test] for test in removed),
        not_run=tuple(pairs[test] for test in in_one_run if test not in listed),
        slower=tuple(sorted((pair for pair in both if _is_slower(pair)), key=_slowdown, reverse=True)),
    )


def _outcomes(connection: Connection, run: PastRun, lineage_of: Mapping[int, int]) -> dict[int, TestOutcome]:
    """Return the outcome of each test of a run by its lineage."""
    results = PackReader(connection).results(run.number)
    names = ids_of_tests(connection, [test for test, *_ in results])
    # The signature of the last attempt wins.
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
        for test, code, spent in results
    }


def _has_all_tests(run: PastRun) -> bool:
    """Return whether a test that is missing in this run did not exist."""
    return run.selected is None and run.state in JUDGED_STATES


def _is_red(outcome: TestOutcome | None) -> bool:
    return outcome is not None and outcome.outcome.is_red


def _has_passed(outcome: TestOutcome | None) -> bool:
    return outcome is not None and outcome.outcome in (Outcome.PASSED, Outcome.XPASSED)


def _has_run(outcome: TestOutcome | None) -> bool:
    return outcome is not None and outcome.outcome is not Outcome.SKIPPED


def _signature(outcome: TestOutcome | None) -> str:
    return "" if outcome is None else outcome.signature


def _is_slower(pair: TestPair) -> bool:
    if pair.before is None or pair.after is None or not (_has_passed(pair.before) and _has_passed(pair.after)):
        return False
    before, after = pair.before.duration_s, pair.after.duration_s
    return after > before * SLOWER_TIMES and after > before + SLOWER_BY_S


def _slowdown(pair: TestPair) -> float:
    return pair.after.duration_s - pair.before.duration_s if pair.before and pair.after else 0.0
