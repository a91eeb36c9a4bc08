"""Find flaky tests and the evidence for it. A flaky test that is red stays red.

flaky       it passed and failed on the same tree in the same environment
broken      it was flaky, but has been red in all of the latest runs; this outranks the others
recovered   it was flaky, and has since passed often enough or for long enough
unstable    there is no proof, but it changed between red and green more often than edits explain
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from watchtest.history.queries.run_queries import RunFilter, ids_of_tests
from watchtest.history.queries.test_history import flips
from watchtest.history.queries.test_names import lineages
from watchtest.history.store.columns import JUDGED_STATES, PASSED_CODE, RED_CODES, Proof
from watchtest.history.store.database import Connection
from watchtest.history.store.pack import PackReader
from watchtest.history.store.retention import DAY_S

RECOVERED_AFTER_S = 7 * DAY_S
RECOVERED_AFTER_PASSES = 5
"""In a row, on trees other than those it was flaky on: unchanged code is as flaky as before."""
BROKEN_AFTER = 3
"""Red results in a row."""
UNSTABLE_FLIPS = 4
UNSTABLE_WITHIN = 20
"""A test with this many flips within this many results is unstable."""
WINDOW = 200
"""How many of the latest runs are considered."""
SHORT_WINDOW = 50
IMPORTED = "imported"
MOST_PROOFS = 5


class FlakyStatus(StrEnum):
    FLAKY = "flaky"
    BROKEN = "broken"
    RECOVERED = "recovered"
    UNSTABLE = "unstable"


@dataclass(frozen=True, slots=True)
class Evidence:
    """The test failed in one run and passed in another, or in the same, on one tree in one environment."""

    failed_run: str
    passed_run: str
    tree: str
    proof: Proof
    at: float


@dataclass(frozen=True, slots=True)
class FlakyTest:
    identity: str
    standing: FlakyStatus
    evidence: tuple[Evidence, ...]
    """The latest few, newest first."""
    proofs: int
    """How much evidence there is in all."""
    codes: tuple[int, ...]
    """Its outcomes in the latest runs, oldest first."""
    flips: int
    """In the last `UNSTABLE_WITHIN` of them."""
    signature: str
    """Of its last failure."""

    @property
    def runs(self) -> int:
        return len(self.codes)

    @property
    def failures(self) -> int:
        return sum(code in RED_CODES for code in self.codes)


def flaky_now(connection: Connection, workspace: str, now: float) -> frozenset[str]:
    """Return the tests that the views mark as flaky. This runs after every run, so it must be fast."""
    since = now - RECOVERED_AFTER_S
    if connection.execute("SELECT 1 FROM evidence WHERE at >= ? LIMIT 1", (since,)).fetchone() is None:
        return frozenset()
    found = flaky_tests(connection, RunFilter(workspace), now, window=SHORT_WINDOW, with_unstable=False)
    return frozenset(test.identity for test in found if test.standing is FlakyStatus.FLAKY)


def flaky_tests(
    connection: Connection,
    runs: RunFilter,
    now: float,
    *,
    window: int = WINDOW,
    with_unstable: bool = True,
    with_recovered: bool = False,
) -> tuple[FlakyTest, ...]:
    """Return flaky tests first; tests of equal status are ordered by their number of failures."""
    lineage_of = lineages(connection)
    # A test whose evidence is older has recovered, whatever its results are.
    since = 0.0 if with_recovered else now - RECOVERED_AFTER_S
    evidence_of = _evidence(connection, lineage_of, since)
    past = _past(connection, runs, window, lineage_of, evidence_of.keys(), with_unstable=with_unstable)
    for row in connection.execute("SELECT DISTINCT test FROM evidence WHERE at < ?", (since,)):
        lineage = lineage_of.get(row["test"], row["test"])
        if lineage not in evidence_of:
            past.pop(lineage, None)
    ids = ids_of_tests(connection, [outcomes.number for outcomes in past.values()])
    found: list[FlakyTest] = []
    for lineage, outcomes in past.items():
        evidence = evidence_of.get(lineage, [])
        recent_flips = flips([code in RED_CODES for _, code in outcomes.results[-UNSTABLE_WITHIN:]])
        status = _status(outcomes.results, evidence, recent_flips, now)
        if status is not None and (with_recovered or status is not FlakyStatus.RECOVERED):
            found.append(
                FlakyTest(
                    ids[outcomes.number],
                    status,
                    tuple(evidence[:MOST_PROOFS]),
                    len(evidence),
                    tuple(code for _, code in outcomes.results),
                    recent_flips,
                    _last_signature(connection, lineage),
                )
            )
    order = list(FlakyStatus)
    return tuple(sorted(found, key=lambda test: (order.index(test.standing), -test.failures, test.identity)))


@dataclass(slots=True)
class _TestOutcomes:
    """The outcomes of one test in the latest runs."""

    number: int = 0
    """Of its current name."""
    lane: str = ""
    """The lane and workspace of its latest run that was not imported. Other lanes test other code, so a difference
    between lanes is not a flip."""
    by_lane: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def add(self, number: int, lane: str, tree: str, code: int) -> None:
        self.number = number
        if lane != IMPORTED or not self.lane:
            self.lane = lane
        self.by_lane.setdefault(lane, []).append((tree, code))

    @property
    def results(self) -> list[tuple[str, int]]:
        """Return tree and outcome, oldest first; only passed and red ones."""
        return self.by_lane[self.lane]


def _status(
    results: Sequence[tuple[str, int]], evidence: Sequence[Evidence], recent_flips: int, now: float
) -> FlakyStatus | None:
    if not evidence:
        return FlakyStatus.UNSTABLE if recent_flips >= UNSTABLE_FLIPS else None
    last = [code for _, code in results[-BROKEN_AFTER:]]
    if len(last) == BROKEN_AFTER and all(code in RED_CODES for code in last):
        return FlakyStatus.BROKEN
    trees = {each.tree for each in evidence}
    passes = 0
    for tree, code in reversed(results):
        if code in RED_CODES:
            break
        passes += tree not in trees
    newest = max(each.at for each in evidence)
    if passes >= RECOVERED_AFTER_PASSES or now - newest > RECOVERED_AFTER_S:
        return FlakyStatus.RECOVERED
    return FlakyStatus.FLAKY


def _evidence(connection: Connection, lineage_of: Mapping[int, int], since: float) -> dict[int, list[Evidence]]:
    """Return the evidence for each lineage, newest first."""
    rows = connection.execute(
        """
        SELECT test, proof, at, failed.id AS failed_run, passed.id AS passed_run, COALESCE(failed.tree, '') AS tree
        FROM evidence JOIN runs AS failed ON failed.number = failed_run
                      JOIN runs AS passed ON passed.number = passed_run
        WHERE at >= ? ORDER BY at DESC
        """,
        (since,),
    )
    found: dict[int, list[Evidence]] = defaultdict(list)
    for row in rows:
        evidence = Evidence(row["failed_run"], row["passed_run"], row["tree"], Proof(row["proof"]), row["at"])
        found[lineage_of.get(row["test"], row["test"])].append(evidence)
    return dict(found)


def _past(
    connection: Connection,
    runs: RunFilter,
    window: int,
    lineage_of: Mapping[int, int],
    proven: Collection[int],
    *,
    with_unstable: bool,
) -> dict[int, _TestOutcomes]:
    """Return the outcomes of tests in the latest judged runs, by lineage.

    Only of those that have evidence and, with `with_unstable`, of those that were red at least once.
    """
    where, values = replace(runs, states=JUDGED_STATES).sql()
    rows = connection.execute(
        f"""
        SELECT packs.run, roster, outcomes, COALESCE(tree, '') AS tree,
               CASE WHEN imported_from IS NULL THEN lane || ' ' || workspace ELSE '{IMPORTED}' END AS lane
        FROM runs JOIN packs ON packs.run = runs.number WHERE {where} ORDER BY runs.number DESC LIMIT ?
        """,
        (*values, window),
    ).fetchall()
    reader = PackReader(connection)
    packs = [(row["lane"], row["tree"], reader.unpack(row)) for row in reversed(rows)]
    wanted = set(proven)
    if with_unstable:
        wanted |= {lineage_of.get(test, test) for _, _, pack in packs for test in pack.red()}
    numbers_of: dict[int, list[int]] = {lineage: [lineage] for lineage in wanted}
    for number, lineage in lineage_of.items():
        if lineage in numbers_of:
            numbers_of[lineage].append(number)
    past: dict[int, _TestOutcomes] = {}
    for lane, tree, pack in packs:
        codes = pack.codes
        for lineage, numbers in numbers_of.items():
            for number in numbers:
                at = pack.position(number)
                if at is not None and (codes[at] == PASSED_CODE or codes[at] in RED_CODES):
                    past.setdefault(lineage, _TestOutcomes()).add(number, lane, tree, codes[at])
                    break
    return past


def _last_signature(connection: Connection, lineage: int) -> str:
    """Return the signature of the last failure under any name of the test."""
    row = connection.execute(
        """
        SELECT text FROM failures JOIN signatures ON signatures.number = signature
        WHERE test IN (SELECT number FROM tests WHERE number = ? OR lineage = ?) ORDER BY run DESC LIMIT 1
        """,
        (lineage, lineage),
    ).fetchone()
    return "" if row is None else str(row["text"])
