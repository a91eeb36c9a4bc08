"""Which tests are flaky, and what proves it. Never makes anything green. Writes nothing.

flaky       it passed and failed on the same tree in the same environment
broken      that, too; but it has been red for the last so many runs: that outranks everything
recovered   it was flaky, and has since passed often enough, or for long enough
unstable    no proof; it only turned to and fro more often than edits explain
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from watchtest.core.model import Lane
from watchtest.history.queries.run_queries import runs_where, test_ids
from watchtest.history.queries.test_history import flips
from watchtest.history.queries.test_names import lineages
from watchtest.history.queries.timeline import PackReader
from watchtest.history.store.columns import JUDGED_STATES, PASSED_CODE, RED_CODES, Proof
from watchtest.history.store.database import Connection, Row

DAY_S = 86_400.0
RECOVERED_AFTER_S = 7 * DAY_S
RECOVERED_AFTER_PASSES = 5
"""In a row, on other trees than those it was flaky on: code that did not change is as flaky as it was."""
BROKEN_AFTER = 3
"""So many reds in a row."""
UNSTABLE_FLIPS = 4
UNSTABLE_WITHIN = 20
"""So many flips within so many results."""
WINDOW = 200
"""So many runs are looked back."""
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
    """It failed in one run and passed in another (or in the same) of one tree and environment."""

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
    """Newest first, the latest few."""
    proofs: int
    codes: tuple[int, ...]
    """Its outcomes in the latest runs, oldest first."""
    flips: int
    """In the last few of them."""
    signature: str
    """How it failed last."""

    @property
    def runs(self) -> int:
        return len(self.codes)

    @property
    def failures(self) -> int:
        return sum(code in RED_CODES for code in self.codes)


def flaky_now(connection: Connection, workspace: str, now: float) -> frozenset[str]:
    """The tests whose red, if they are red, may be chance: what the views mark. Asked after every run: quick."""
    young = now - RECOVERED_AFTER_S
    if connection.execute("SELECT 1 FROM evidence WHERE at >= ? LIMIT 1", (young,)).fetchone() is None:
        return frozenset()
    found = flaky_tests(connection, workspace=workspace, now=now, window=SHORT_WINDOW, with_unstable=False)
    return frozenset(test.identity for test in found if test.standing is FlakyStatus.FLAKY)


def flaky_tests(
    connection: Connection,
    *,
    workspace: str | None,
    now: float,
    lane: Lane | None = None,
    window: int = WINDOW,
    with_unstable: bool = True,
    with_recovered: bool = False,
) -> tuple[FlakyTest, ...]:
    """Flaky ones first, those with the most failures before the others."""
    lineage_of = lineages(connection)
    # Of an older proof a test has recovered, whatever it does.
    young = 0.0 if with_recovered else now - RECOVERED_AFTER_S
    proofs = _proofs(connection, lineage_of, young)
    past = _Runs(connection, workspace, lane, window).past(lineage_of, set(proofs), with_unstable=with_unstable)
    for row in connection.execute("SELECT DISTINCT test FROM evidence WHERE at < ?", (young,)):
        line = lineage_of.get(row["test"], row["test"])
        if line not in proofs:
            past.pop(line, None)
    latest = test_ids(connection, [seen.number for seen in past.values()])
    found: list[FlakyTest] = []
    for line, seen in past.items():
        proof = proofs.get(line, ())
        turned = flips([code in RED_CODES for _, code in seen.results[-UNSTABLE_WITHIN:]])
        standing = _standing(seen.results, proof, turned, now)
        if standing is not None and (with_recovered or standing is not FlakyStatus.RECOVERED):
            shown = tuple(each for each, _ in proof[:MOST_PROOFS])
            codes = tuple(code for _, code in seen.results)
            said = _last_signature(connection, line)
            found.append(FlakyTest(latest[seen.number], standing, shown, len(proof), codes, turned, said))
    order = list(FlakyStatus)
    return tuple(sorted(found, key=lambda test: (order.index(test.standing), -test.failures, test.identity)))


@dataclass(slots=True)
class _TestOutcomes:
    number: int = 0
    """Of its latest name."""
    place: str = ""
    """Workspace and lane of the latest run of our own: others have other code, and are no flips."""
    by_place: dict[str, list[tuple[str, int]]] = field(default_factory=dict)

    def add(self, number: int, place: str, tree: str, code: int) -> None:
        self.number = number
        if place != IMPORTED or not self.place:
            self.place = place
        self.by_place.setdefault(place, []).append((tree, code))

    @property
    def results(self) -> list[tuple[str, int]]:
        """Tree and outcome, oldest first; only what passed or was red."""
        return self.by_place[self.place]


def _standing(
    results: Sequence[tuple[str, int]], proof: Sequence[tuple[Evidence, float]], turned: int, now: float
) -> FlakyStatus | None:
    if not proof:
        return FlakyStatus.UNSTABLE if turned >= UNSTABLE_FLIPS else None
    last = [code for _, code in results[-BROKEN_AFTER:]]
    if len(last) == BROKEN_AFTER and all(code in RED_CODES for code in last):
        return FlakyStatus.BROKEN
    trees = {each.tree for each, _ in proof}
    passes = 0
    for tree, code in reversed(results):
        if code in RED_CODES:
            break
        passes += tree not in trees
    newest = max(at for _, at in proof)
    if passes >= RECOVERED_AFTER_PASSES or now - newest > RECOVERED_AFTER_S:
        return FlakyStatus.RECOVERED
    return FlakyStatus.FLAKY


def _proofs(
    connection: Connection, lineage_of: Mapping[int, int], since: float
) -> dict[int, list[tuple[Evidence, float]]]:
    rows = connection.execute(
        """
        SELECT evidence.test, evidence.proof, evidence.at, failed.id AS failed_run, passed.id AS passed_run, failed.tree
        FROM evidence JOIN runs AS failed ON failed.number = failed_run
                      JOIN runs AS passed ON passed.number = passed_run
        WHERE evidence.at >= ? ORDER BY evidence.at DESC
        """,
        (since,),
    )
    found: dict[int, list[tuple[Evidence, float]]] = defaultdict(list)
    for row in rows:
        evidence = Evidence(row["failed_run"], row["passed_run"], row["tree"] or "", Proof(row["proof"]), row["at"])
        found[lineage_of.get(row["test"], row["test"])].append((evidence, row["at"]))
    return dict(found)


class _Runs:
    """The latest runs that came to their own end."""

    def __init__(self, connection: Connection, workspace: str | None, lane: Lane | None, window: int) -> None:
        where, values = runs_where(workspace=workspace, lane=lane, states=JUDGED_STATES)
        self._packs = list(PackReader(connection).newest_first(where, values, window))[::-1]
        rows = connection.execute(
            f"SELECT number, tree, lane, workspace, imported_from FROM runs WHERE {where} ORDER BY number DESC LIMIT ?",
            (*values, window),
        )
        self._of = {row["number"]: (_place(row), row["tree"] or "") for row in rows}

    def past(self, lineage_of: Mapping[int, int], proven: set[int], *, with_unstable: bool) -> dict[int, _TestOutcomes]:
        """What became of the tests in question: those with a proof, and those that were red at all."""
        wanted = set(proven)
        if with_unstable:
            wanted |= {lineage_of.get(test, test) for pack in self._packs for test in pack.red()}
        numbers: dict[int, list[int]] = {line: [line] for line in wanted}
        for number, line in lineage_of.items():
            if line in numbers:
                numbers[line].append(number)
        past: dict[int, _TestOutcomes] = {}
        for pack in self._packs:
            (place, tree), codes = self._of.get(pack.run, ("", "")), pack.codes
            for line, kin in numbers.items():
                for number in kin:
                    at = pack.position(number)
                    if at is None or not (codes[at] == PASSED_CODE or codes[at] in RED_CODES):
                        continue
                    past.setdefault(line, _TestOutcomes()).add(number, place, tree, codes[at])
                    break
        return past


def _place(row: Row) -> str:
    return IMPORTED if row["imported_from"] is not None else f"{row['lane']} {row['workspace']}"


def _last_signature(connection: Connection, line: int) -> str:
    """Under whichever name it had then."""
    row = connection.execute(
        """
        SELECT text FROM failures JOIN signatures ON signatures.number = signature
        WHERE test IN (SELECT number FROM tests WHERE number = ? OR lineage = ?) ORDER BY run DESC LIMIT 1
        """,
        (line, line),
    ).fetchone()
    return "" if row is None else str(row["text"])
