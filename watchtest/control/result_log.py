"""The results of each run in the order in which they came, numbered from 1, so that a client gets each of them once.

Of runs that ended, only as many as fit into a budget: what is older, the history tells.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from watchtest.core.model import Result
from watchtest.core.transitions import Fact, ResultsArrived, RunFinished, RunWithdrawn

BUDGET = 4_000_000
"""Characters that all ended runs together may hold, at least the last of them aside."""
RUNS_LIMIT = 50
PAGE_WEIGHT = 2_000_000
"""Characters of one answer; a page ends before its limit where it would be longer."""
PAST = 1_000_000_000
"""Numbers of results that come from the history begin behind this: their order is another one."""

Numbered = tuple[int, Result]


@dataclass(frozen=True, slots=True)
class Page:
    """Some results of a run. Reset: the number that was asked for is of another count, this is the beginning."""

    results: tuple[Numbered, ...]
    next: int
    has_more: bool
    is_reset: bool = False

    def document(self, word: Callable[[Result], dict[str, Any]]) -> dict[str, Any]:
        return {
            "reset": self.is_reset,
            "results": [{"number": number, **word(result)} for number, result in self.results],
            "next": self.next,
            "more": self.has_more,
        }


@dataclass(slots=True)
class _Journal:
    results: list[Result] = field(default_factory=list)
    last: dict[str, Result] = field(default_factory=dict)
    weight: int = 0

    def add(self, results: Iterable[Result]) -> list[Numbered]:
        fresh = [result for result in results if self.last.get(result.test) is not result]
        first = len(self.results) + 1
        for result in fresh:
            self.last[result.test] = result
            self.weight += weight(result)
        self.results += fresh
        return list(enumerate(fresh, first))


class Journals:
    """One a run, from its first result on."""

    def __init__(self, budget: int = BUDGET) -> None:
        self._budget = budget
        self._under_way: dict[str, _Journal] = {}
        self._ended: OrderedDict[str, _Journal] = OrderedDict()
        self._held = 0

    def follow(self, facts: Iterable[Fact]) -> dict[str, list[Numbered]]:
        """Return the new results of each run."""
        found: dict[str, list[Numbered]] = {}
        for fact in facts:
            match fact:
                case ResultsArrived(run=run, results=results):
                    found[run.id] = self._under_way.setdefault(run.id, _Journal()).add(results)
                case RunFinished() | RunWithdrawn():
                    journal = self._under_way.pop(fact.run.id, None) or _Journal()
                    found[fact.run.id] = journal.add(fact.unreported) if isinstance(fact, RunFinished) else []
                    self._keep(fact.run.id, journal)
                case _:
                    pass
        return found

    def page(self, run_id: str, after: int, limit: int) -> Page | None:
        """None: this run is not remembered, or has said nothing yet."""
        journal = self._under_way.get(run_id) or self._ended.get(run_id)
        return None if journal is None else page_of(journal.results, after, limit)

    def _keep(self, run: str, journal: _Journal) -> None:
        journal.last = {}
        self._ended[run] = journal
        self._held += journal.weight
        while len(self._ended) > RUNS_LIMIT or (len(self._ended) > 1 and self._held > self._budget):
            self._held -= self._ended.popitem(last=False)[1].weight


def page_of(results: Sequence[Result], after: int, limit: int, *, base: int = 0) -> Page:
    """Those behind the number `after`; `base` is the number before the first."""
    is_reset = after != 0 and not base <= after <= base + len(results)
    start = 0 if is_reset or after == 0 else after - base
    taken: list[Numbered] = []
    room = PAGE_WEIGHT
    for result in results[start : start + limit]:
        room -= weight(result)
        if taken and room < 0:
            break
        taken.append((base + start + len(taken) + 1, result))
    end = start + len(taken)
    return Page(tuple(taken), base + end, end < len(results), is_reset)


def weight(result: Result) -> int:
    """About how many characters it takes to hold or to tell it."""
    failure = result.failure
    return 300 + len(result.test) + (len(failure.message) + len(failure.text) + len(failure.output) if failure else 0)
