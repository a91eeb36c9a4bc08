"""The words that every view uses for the state: verdict, selection, failures, box, problems, remaining time. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import assert_never

from watchtest.core import model
from watchtest.core.events import EVERYTHING
from watchtest.core.state import Broken, Build, BuildFailed, Building, Knowledge, LaneState, PendingChanges
from watchtest.core.text import ROW_LIMIT, count, duration, names, one_line, short, tests, with_provisional
from watchtest.core.verdict import file_of
from watchtest.views.mood import mood
from watchtest.views.status import status_words


def verdict(knowledge: Knowledge) -> str:
    """Return `passed 12 tests, 1 skipped`, `failed 2 of 12 tests`, or `error: 1 file could not be collected`.

    A provisional verdict says so.
    """
    provisional = knowledge.provisional
    return with_provisional(_verdict(knowledge), provisional.message if provisional is not None else "")


def _verdict(knowledge: Knowledge) -> str:
    total = len(knowledge.tests)
    match knowledge.verdict:
        case model.Verdict.PASSED:
            return passed(known.result for known in knowledge.tests.values())
        case model.Verdict.FAILED:
            return f"failed {len(knowledge.red)} of {tests(total)}"
        case model.Verdict.ERROR:
            return f"error: {one_line(knowledge.reason) or 'no reason given'}"
        case model.Verdict.NO_TESTS:
            return _with_reason("no tests", knowledge.reason)
        case model.Verdict.UNKNOWN:
            return _with_reason("unknown" if knowledge.at is not None else "no verdict yet", knowledge.reason)
        case _:
            assert_never(knowledge.verdict)


def passed(results: Iterable[model.Result]) -> str:
    outcomes = Counter(result.outcome for result in results)
    return status_words.passed(outcomes.total(), outcomes[model.Outcome.SKIPPED])


def standing(lane: LaneState) -> str:
    """Return the sign and the verdict of a lane, and why it is in doubt: `? 1 change pending · last: no tests`."""
    shown = mood(lane)
    text = status_words.summary(shown.colour, verdict(lane.knowledge), shown.doubt)
    is_provisional = lane.provisional is not None and not shown.doubt
    return f"{status_words.sign(shown.colour, lane.knowledge.verdict, is_provisional=is_provisional)} {text}"


def _with_reason(word: str, reason: str) -> str:
    return f"{word}: {one_line(reason)}" if reason else word


def selection(selected: model.Selection) -> str:
    """Return which tests a run is to run, and why."""
    match selected:
        case model.All(because=because):
            what = "all tests"
        case model.Only(tests=selected_tests, because=because):
            what = tests(len(selected_tests))
        case _:
            assert_never(selected)
    because = one_line(because)
    return f"{what} ({because})" if because and because != what else what


def intent(run: model.Run) -> str:
    """Return the same for a run whose selection may not be made yet."""
    is_open = run.is_narrowable and isinstance(run.selection, model.All)
    return "tests affected by the change" if is_open else selection(run.selection)


def rerun_count(knowledge: Knowledge) -> int | None:
    """Return how many tests ran for this verdict if a selection left some out; None if all of them ran."""
    run = knowledge.run
    if run is None or not isinstance(run.selection, model.Only) or not run.selection.is_proof:
        return None
    count = sum(known.run == run.id for known in knowledge.tests.values())
    return count if count < len(knowledge.tests) else None


def pending(changes: PendingChanges) -> str:
    """Return `2 changes pending: a.py, b.py`."""
    if EVERYTHING in changes.paths:
        return "pending: anything may have changed"
    return f"{count(len(changes.paths), 'change')} pending: {names(changes.paths)}"


def location(failure: model.Failure | None) -> str:
    """Return `tests/test_a.py:14`, or an empty string."""
    where = (failure.where or failure.crash) if failure else None
    return f"{one_line(where.file)}:{where.line}" if where else ""


def test_name(test: str) -> str:
    """Return the name of a test without its file."""
    return one_line(test.removeprefix(file_of(test)).removeprefix("::")) or one_line(test)


def failure_line(result: model.Result) -> str:
    """Return `FAILED tests/test_a.py::test_x tests/test_a.py:14 assert 1 == 2`."""
    message = one_line(result.failure.message) if result.failure else ""
    parts = (result.outcome.value.upper(), one_line(result.test), location(result.failure), message)
    return " ".join(part for part in parts if part)


def box(info: model.BoxInfo) -> str:
    """Return `docker 1a2b3c4d5e6f · image python:3.12 · running · Python 3.12.1`."""
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


def service(info: model.ServiceInfo) -> str:
    """Return `service kv: ready`, or `service kv: backoff, 2 restarts: exited with code 1 before it was ready`."""
    restarts = f", {count(info.restarts, 'restart')}" if info.restarts else ""
    return f"service {one_line(info.name)}: {one_line(info.state)}{restarts}{_because(info)}"


def services(infos: tuple[model.ServiceInfo, ...]) -> str:
    """Return all services in one line; those in trouble with the reason."""
    return " · ".join(f"{one_line(info.name)} {one_line(info.state)}{_because(info)}" for info in infos)


def _because(info: model.ServiceInfo) -> str:
    return f": {one_line(info.reason)}" if info.reason else ""


def problem(what: model.Problem) -> str:
    return f"{one_line(what.code)}: {one_line(what.message, ROW_LIMIT)}"


def build(build: Build | None, *, is_ready: bool) -> str:
    """Return how the build of a clean environment is going; None stands for no build."""
    match build:
        case Building():
            return "building a clean environment; the tests go on in the box as it is"
        case BuildFailed(problem=failed):
            return problem(failed)
        case None:
            return "the clean environment is ready" if is_ready else "no clean environment is needed any more"
        case _:
            assert_never(build)


def retry(broken: Broken, now: float) -> str:
    """Return what happens next to a broken lane."""
    if broken.retry_at is None:
        return "gave up; will retry on the next change or command"
    left_s = broken.retry_at - now
    when = f"in {duration(left_s)}" if left_s > 0 else "now"
    return f"retrying {when}" + (f" (attempt {broken.attempt} failed)" if broken.attempt else "")
