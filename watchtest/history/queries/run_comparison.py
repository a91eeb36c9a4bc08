"""`history compare`: the differences between two runs. A test that did not run never counts as fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields

from watchtest.core.model import Outcome
from watchtest.history.queries.run_queries import PastRun, results_by_number
from watchtest.history.queries.test_names import lineages
from watchtest.history.store.columns import JUDGED_STATES
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


PARTS = [field.name for field in fields(Comparison) if field.name not in ("before", "after", "paths")]


def compare(connection: Connection, before: PastRun, after: PastRun) -> Comparison:
    lineage_of = lineages(connection)
    old, new = _outcomes(connection, before, lineage_of), _outcomes(connection, after, lineage_of)
    pairs = [TestPair(test.identity, old.get(lineage), new.get(lineage)) for lineage, test in {**old, **new}.items()]
    parts: dict[str, list[TestPair]] = {part: [] for part in PARTS}
    for pair in sorted(pairs, key=lambda pair: pair.identity):
        is_added = pair.before is None and _has_all_tests(before)
        is_removed = pair.after is None and _has_all_tests(after)
        for part in _parts(pair, is_added=is_added, is_removed=is_removed):
            parts[part].append(pair)
    parts["slower"].sort(key=_slowdown, reverse=True)
    changed = changes_between(connection, before.number, after.number)
    paths = None if changed is None else tuple(changed[1])
    return Comparison(before, after, paths, **{part: tuple(found) for part, found in parts.items()})


def _parts(pair: TestPair, *, is_added: bool, is_removed: bool) -> Iterator[str]:
    """Yield the parts of the comparison that a test belongs to."""
    before, after = pair.before, pair.after
    was_red, is_red = _is_red(before), _is_red(after)
    if is_red and not was_red:
        yield "new_failures"
    if was_red and _has_passed(after):
        yield "fixed"
    if before and after and was_red and is_red:
        yield "failing_alike" if before.signature == after.signature else "failing_otherwise"
    if is_added:
        yield "added"
    if is_removed:
        yield "removed"
    if _has_run(before) is not _has_run(after) and not (is_added or is_removed or is_red):
        yield "not_run"
    if _has_passed(before) and _has_passed(after) and _slowdown(pair) > 0:
        yield "slower"


def _outcomes(connection: Connection, run: PastRun, lineage_of: Mapping[int, int]) -> dict[int, TestOutcome]:
    """Return the outcome of each test of a run by its lineage."""
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
            result.test, result.outcome, result.duration_s, signatures.get(test, "")
        )
        for test, result in results_by_number(connection, run.number).items()
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


def _slowdown(pair: TestPair) -> float:
    """Return by how many seconds the test became slower, or 0 if that is noise."""
    before, after = (0.0 if each is None else each.duration_s for each in (pair.before, pair.after))
    return after - before if after > before * SLOWER_TIMES and after > before + SLOWER_BY_S else 0.0
