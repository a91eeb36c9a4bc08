"""What a state means, in the words that every view uses. Pure.

How far a run is, and how long it will still take by what its tests took before. Pure.
"""

from __future__ import annotations

from typing import assert_never

from watchtest.core.events import EVERYTHING
from watchtest.core.model import (
    All,
    BoxInfo,
    Failure,
    Only,
    Outcome,
    Problem,
    Result,
    Run,
    Selection,
    ServiceInfo,
    Verdict,
)
from watchtest.core.state import Broken, Executing, Knowledge, LaneState, PendingChanges, Working
from watchtest.core.text import count, duration, names, one_line, short, tests
from watchtest.core.verdict import file_of


def verdict(knowledge: Knowledge) -> str:
    """`passed 12 tests, 1 skipped`, `failed 2 of 12 tests`, `error: 1 file could not be collected`."""
    total = len(knowledge.tests)
    match knowledge.verdict:
        case Verdict.PASSED:
            skipped = sum(known.result.outcome is Outcome.SKIPPED for known in knowledge.tests.values())
            return f"passed {tests(total - skipped)}" + (f", {skipped} skipped" if skipped else "")
        case Verdict.FAILED:
            return f"failed {len(knowledge.red)} of {tests(total)}"
        case Verdict.ERROR:
            return f"error: {one_line(knowledge.reason) or 'no reason was given'}"
        case Verdict.NO_TESTS:
            return _with_reason("no tests", knowledge.reason)
        case Verdict.UNKNOWN:
            return _with_reason("unknown" if knowledge.at is not None else "no verdict yet", knowledge.reason)
        case _:
            assert_never(knowledge.verdict)


def _with_reason(word: str, reason: str) -> str:
    return f"{word}: {one_line(reason)}" if reason else word


def selection(chosen: Selection) -> str:
    """What a run shall run, and because of what."""
    match chosen:
        case All(because=because):
            what = "all tests"
        case Only(tests=chosen_tests, because=because):
            what = tests(len(chosen_tests))
        case _:
            assert_never(chosen)
    because = one_line(because)
    return f"{what} ({because})" if because and because != what else what


def intent(run: Run) -> str:
    """The same of a run that may not know yet."""
    is_open = run.is_narrowable and isinstance(run.selection, All)
    return "the tests that the change can affect" if is_open else selection(run.selection)


def rerun_count(knowledge: Knowledge) -> int | None:
    """How many tests ran for this verdict, where a selection did for the rest; None: all of them."""
    run = knowledge.run
    if run is None or not isinstance(run.selection, Only) or not run.selection.is_proof:
        return None
    count = sum(known.run == run.id for known in knowledge.tests.values())
    return count if count < len(knowledge.tests) else None


def changes(pending: PendingChanges) -> str:
    """`2 changes: a.py, b.py`."""
    if EVERYTHING in pending.paths:
        return "anything may have changed"
    return f"{count(len(pending.paths), 'change')}: {names(pending.paths)}"


def location(failure: Failure | None) -> str:
    """`tests/test_a.py:14`, or nothing."""
    where = (failure.where or failure.crash) if failure else None
    return f"{one_line(where.file)}:{where.line}" if where else ""


def test_name(test: str) -> str:
    """A test without its file."""
    return one_line(test.removeprefix(file_of(test)).removeprefix("::")) or one_line(test)


def failure_line(result: Result) -> str:
    """`FAILED tests/test_a.py::test_x tests/test_a.py:14 assert 1 == 2`."""
    message = one_line(result.failure.message) if result.failure else ""
    parts = (result.outcome.value.upper(), one_line(result.test), location(result.failure), message)
    return " ".join(part for part in parts if part)


def box(info: BoxInfo) -> str:
    """`docker 1a2b3c4d5e6f · image python:3.12 · running · Python 3.12.1`."""
    parts = (
        f"{one_line(info.engine)} {short(info.id, 12)}".strip(),
        f"image {one_line(info.image)}" if info.image else "",
        one_line(info.state),
        f"Python {one_line(info.python)}" if info.python else "",
        count(info.restarts, "restart") if info.restarts else "",
        f"not isolated: {one_line(info.isolation)}" if info.isolation else "",
        *(one_line(note) for note in info.notes),
    )
    return " · ".join(part for part in parts if part)


def service(info: ServiceInfo) -> str:
    """`service kv: ready`, `service kv: backoff, 2 restarts: exited with code 1 before it was ready`."""
    restarts = f", {count(info.restarts, 'restart')}" if info.restarts else ""
    return f"service {one_line(info.name)}: {one_line(info.state)}{restarts}{_because(info)}"


def services(infos: tuple[ServiceInfo, ...]) -> str:
    """All in one line; those in trouble with their reason."""
    return " · ".join(f"{one_line(info.name)} {one_line(info.state)}{_because(info)}" for info in infos)


def _because(info: ServiceInfo) -> str:
    return f": {one_line(info.reason, 300)}" if info.reason else ""


def problem(what: Problem) -> str:
    return f"{one_line(what.code)}: {one_line(what.message, 500)}"


def retry(broken: Broken, now: float) -> str:
    """What happens next to a lane that broke."""
    if broken.retry_at is None:
        return "given up until the next change or command"
    left_s = broken.retry_at - now
    when = f"in {duration(left_s)}" if left_s > 0 else "now"
    return f"trying again {when}" + (f" (attempt {broken.attempt} failed)" if broken.attempt else "")


LEAST_SHARE = 0.2
"""Before so much of a run has passed, its pace says nothing: it has just begun, and collected before."""
PACE_LIMITS = (0.1, 10.0)


def eta_s(lane: LaneState, now: float) -> float | None:
    """Seconds until the run under way has ended; None where nobody can tell."""
    match lane.activity:
        case Working(phase=Executing(promised=promised, results=results, since=since)) if promised:
            pass
        case _:
            return None
    took = {test: known.result.duration_s for test, known in lane.knowledge.tests.items()}
    took |= {test: result.duration_s for test, result in lane.unjudged_results.items()}
    waiting = promised - results.keys()
    known = [took[test] for test in waiting if test in took]
    done_s = sum(result.duration_s for result in results.values())
    if not known and not results:
        return None
    mean_s = sum(known) / len(known) if known else done_s / len(results)
    left_s = sum(known) + mean_s * (len(waiting) - len(known))
    is_under_way = len(results) >= LEAST_SHARE * len(promised)
    return max(left_s * (_pace(now - since, done_s) if is_under_way else 1.0), 0.0)


def _pace(elapsed_s: float, done_s: float) -> float:
    """How much longer a second of tests takes here: several may run side by side, and there is more than tests."""
    if done_s <= 0:
        return 1.0
    least, most = PACE_LIMITS
    return min(max(elapsed_s / done_s, least), most)
