"""The results of each run in the order of their arrival, numbered from 1, so that a client gets each of them once.

A size limit decides how many ended runs are kept; the results of older runs come from the history.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from watchtest.core.model import Result
from watchtest.core.transitions import Fact, ResultsArrived, RunFinished, RunWithdrawn
from watchtest.views.status.status_document import result_document

SIZE_LIMIT = 4_000_000
"""Characters that all ended runs together may take. The last one is kept in any case."""
RUNS_LIMIT = 50
PAGE_SIZE_LIMIT = 2_000_000
"""Characters of one answer. A page that would be larger ends early."""
HISTORY_OFFSET = 1_000_000_000
"""Results from the history are numbered from here on, because their order is a different one."""

NumberedResult = tuple[int, Result]


@dataclass(frozen=True, slots=True)
class ResultPage:
    """Some results of a run. With `is_reset`, the requested number was invalid and the page is the first one."""

    results: tuple[NumberedResult, ...]
    next: int
    has_more: bool
    is_reset: bool = False

    def document(self) -> dict[str, Any]:
        return {
            "reset": self.is_reset,
            "results": [{"number": number, **result_document(result)} for number, result in self.results],
            "next": self.next,
            "more": self.has_more,
        }


@dataclass(slots=True)
class _ResultLog:
    results: list[Result] = field(default_factory=list)
    last: dict[str, Result] = field(default_factory=dict)
    size: int = 0

    def add(self, results: Iterable[Result]) -> list[NumberedResult]:
        new = [result for result in results if self.last.get(result.test) is not result]
        first = len(self.results) + 1
        for result in new:
            self.last[result.test] = result
            self.size += approximate_size(result)
        self.results += new
        return list(enumerate(new, first))


class ResultLogs:
    """A log for each run, from its first result on."""

    def __init__(self, size_limit: int = SIZE_LIMIT) -> None:
        self._size_limit = size_limit
        self._current: dict[str, _ResultLog] = {}
        self._ended: OrderedDict[str, _ResultLog] = OrderedDict()
        self._ended_size = 0

    def follow(self, facts: Iterable[Fact]) -> dict[str, list[NumberedResult]]:
        """Return the new results of each run."""
        added: dict[str, list[NumberedResult]] = {}
        for fact in facts:
            match fact:
                case ResultsArrived(run=run, results=results):
                    added[run.id] = self._current.setdefault(run.id, _ResultLog()).add(results)
                case RunFinished() | RunWithdrawn():
                    log = self._current.pop(fact.run.id, None) or _ResultLog()
                    added[fact.run.id] = log.add(fact.unreported) if isinstance(fact, RunFinished) else []
                    self._keep(fact.run.id, log)
                case _:
                    pass
        return added

    def page(self, run_id: str, after: int, limit: int) -> ResultPage | None:
        """Return the results after a number; None if this run has no results yet, or is not kept."""
        log = self._current.get(run_id) or self._ended.get(run_id)
        return None if log is None else page_of(log.results, after, limit)

    def _keep(self, run: str, log: _ResultLog) -> None:
        log.last = {}
        self._ended[run] = log
        self._ended_size += log.size
        while len(self._ended) > RUNS_LIMIT or (len(self._ended) > 1 and self._ended_size > self._size_limit):
            self._ended_size -= self._ended.popitem(last=False)[1].size


def page_of(results: Sequence[Result], after: int, limit: int, *, offset: int = 0) -> ResultPage:
    """Return the results after the number `after`. The first result has the number `offset` + 1."""
    is_reset = after != 0 and not offset <= after <= offset + len(results)
    start = 0 if is_reset or after == 0 else after - offset
    page: list[NumberedResult] = []
    space = PAGE_SIZE_LIMIT
    for result in results[start : start + limit]:
        space -= approximate_size(result)
        if page and space < 0:
            break
        page.append((offset + start + len(page) + 1, result))
    end = start + len(page)
    return ResultPage(tuple(page), offset + end, end < len(results), is_reset)


def approximate_size(result: Result) -> int:
    """Return about how many characters a result takes, in memory or in an answer."""
    failure = result.failure
    return 300 + len(result.test) + (len(failure.message) + len(failure.text) + len(failure.output) if failure else 0)
