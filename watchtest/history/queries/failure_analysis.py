"""`history analyse`: group the similar failures of a run, and find the changes that may have caused them."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from watchtest.core.model import Failure
from watchtest.history.queries.run_queries import PastRun, ids_of_tests, run_by_number
from watchtest.history.queries.test_history import suspects
from watchtest.history.queries.test_names import lineages
from watchtest.history.store.columns import GREEN_CODES, RED_CODES
from watchtest.history.store.database import Connection
from watchtest.history.store.failure_texts import unpack_failure
from watchtest.history.store.pack import PackReader

LONGEST_SEARCH = 5_000


@dataclass(frozen=True, slots=True)
class Break:
    """Tests that became red together: their last green run, their first red one, and what changed between the two."""

    tests: tuple[str, ...]
    passed: PastRun | None
    """None if they passed in no stored run."""
    failed: PastRun
    suspects: tuple[str, ...] | None
    """None if it is unknown what changed."""
    this_way: PastRun
    """The first run since then in which they failed with the current signature."""
    turned_by: tuple[str, ...] | None
    """What changed when they began to fail with this signature; empty if they always did."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Failures with the same signature."""

    signature: str
    example: Failure
    breaks: tuple[Break, ...]

    @property
    def tests(self) -> tuple[str, ...]:
        return tuple(test for each in self.breaks for test in each.tests)


@dataclass(frozen=True, slots=True)
class _Trail:
    """One red test, followed back through the runs of its lane; fields are numbers of runs."""

    failed: int
    this_way: int
    other_way: int | None = None
    """The last run in which it failed with another signature."""
    passed: int | None = None


def analyse(connection: Connection, run: PastRun) -> tuple[Cluster, ...]:
    """Return the clusters of red tests in a run, largest first."""
    packs = PackReader(connection)
    red = packs.of_run(run.number).red()
    if not red:
        return ()
    signatures, examples = _signatures(connection, run.number, red)
    trails = _trails(connection, packs, run, red, signatures)
    names = ids_of_tests(connection, red)
    breaks: dict[int, dict[_Trail, list[str]]] = defaultdict(lambda: defaultdict(list))
    for test in sorted(red, key=names.__getitem__):
        breaks[signatures.get(test, 0)][trails[test]].append(names[test])
    texts = {row["number"]: row["text"] for row in connection.execute("SELECT number, text FROM signatures")}
    clusters = [
        Cluster(
            texts.get(signature, "no reason was reported"),
            examples.get(signature, Failure("", "")),
            tuple(
                _break(connection, tuple(tests), trail)
                for trail, tests in sorted(found.items(), key=lambda each: len(each[1]), reverse=True)
            ),
        )
        for signature, found in breaks.items()
    ]
    return tuple(sorted(clusters, key=lambda cluster: (-len(cluster.tests), cluster.signature)))


def _signatures(connection: Connection, run: int, red: frozenset[int]) -> tuple[dict[int, int], dict[int, Failure]]:
    """Return the signature of each red test, from its last attempt, and an example for each signature."""
    rows = connection.execute(
        """
        SELECT test, signature, document FROM failures JOIN contents ON contents.number = content
        WHERE run = ? ORDER BY attempt
        """,
        (run,),
    ).fetchall()
    signatures = {row["test"]: row["signature"] for row in rows if row["test"] in red}
    examples = {row["signature"]: row["document"] for row in reversed(rows)}
    return signatures, {signature: unpack_failure(document) for signature, document in examples.items()}


def _trails(
    connection: Connection, packs: PackReader, run: PastRun, red: frozenset[int], signatures: dict[int, int]
) -> dict[int, _Trail]:
    """Walk back from the run until each of the red tests has passed."""
    lineage_of = lineages(connection)
    names_of: dict[int, set[int]] = defaultdict(set)
    for number, lineage in lineage_of.items():
        names_of[lineage] |= {number, lineage}
    trails = {test: _Trail(run.number, run.number) for test in red}
    pending = set(red)
    # Imported runs are in no order and have no trees.
    imports = "" if run.imported_from is not None else " AND imported_from IS NULL"
    where = f"workspace = ? AND lane = ? AND runs.number < ?{imports}"
    for pack in packs.newest_first(where, (run.workspace, run.lane.value, run.number), LONGEST_SEARCH):
        if not pending:
            break
        outcomes = pack.outcomes()
        signatures_then: dict[int, int] | None = None
        for test in tuple(pending):
            trail = trails[test]
            names = names_of.get(lineage_of.get(test, test)) or {test}
            code = next((outcomes[number] for number in names if number in outcomes), 0)
            if code in RED_CODES:
                if signatures_then is None:
                    rows = connection.execute(
                        "SELECT test, signature FROM failures WHERE run = ? ORDER BY attempt", (pack.run,)
                    )
                    signatures_then = {row["test"]: row["signature"] for row in rows}
                is_same = signatures.get(test) in {signatures_then.get(each) for each in names}
                if trail.other_way is None and is_same:
                    trail = replace(trail, this_way=pack.run)
                elif trail.other_way is None:
                    trail = replace(trail, other_way=pack.run)
                trails[test] = replace(trail, failed=pack.run)
            elif code in GREEN_CODES:
                trails[test] = replace(trail, passed=pack.run)
                pending.discard(test)
    return trails


def _break(connection: Connection, tests: tuple[str, ...], trail: _Trail) -> Break:
    return Break(
        tests,
        None if trail.passed is None else run_by_number(connection, trail.passed),
        run_by_number(connection, trail.failed),
        None if trail.passed is None else suspects(connection, trail.passed, trail.failed),
        run_by_number(connection, trail.this_way),
        () if trail.other_way is None else suspects(connection, trail.other_way, trail.this_way),
    )
