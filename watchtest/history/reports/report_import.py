"""Import the report of another tool as a run. A report may be malformed in any way."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from watchtest.core.model import All, Failure, Lane, Location, Outcome, Result, Run, RunState, Trigger
from watchtest.core.text import ID_LIMIT, STORED_TEXT_LIMIT
from watchtest.history.reports.report_export import junit_name
from watchtest.history.store.store import Store

SIZE_LIMIT = 64 * 1024 * 1024
LONGEST_S = 7 * 86_400.0
LATEST = 4_102_444_800.0
"""The year 2100; anything later is not a plausible time."""
OUTCOMES = {"passed": Outcome.PASSED, "failed": Outcome.FAILED, "skipped": Outcome.SKIPPED, "pending": Outcome.SKIPPED}


class InvalidReport(Exception):
    """The document cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class ImportedReport:
    """The results of a run that another tool made."""

    results: tuple[Result, ...]
    at: float | None = None
    duration_s: float = 0.0
    head: str | None = None
    branch: str | None = None
    tool: str = ""


def read_ctrf(document: bytes) -> ImportedReport:
    """Read a CTRF report. Raises InvalidReport."""
    if len(document) > SIZE_LIMIT:
        raise InvalidReport(f"it is larger than {SIZE_LIMIT // 1024 // 1024} MiB")
    try:
        raw = json.loads(document)
    except (ValueError, RecursionError) as error:
        raise InvalidReport(f"not valid JSON: {error}") from error
    body = raw.get("results") if isinstance(raw, dict) else None
    tests = body.get("tests") if isinstance(body, dict) else None
    if not isinstance(body, dict) or not isinstance(tests, list):
        raise InvalidReport("it is not a CTRF report: it has no results.tests")
    results = [found for each in tests if (found := _result(each)) is not None]
    if tests and not results:
        raise InvalidReport("none of its tests has a name and a status")
    summary, environment, tool = (_object(body.get(name)) for name in ("summary", "environment", "tool"))
    start, stop = (_number(summary.get(name), LATEST * 1000) / 1000 for name in ("start", "stop"))
    return ImportedReport(
        results=unique_results(results),
        at=start or None,
        duration_s=max(0.0, stop - start),
        head=_text(environment.get("commit"), 200) or None,
        branch=_text(environment.get("branchName"), 500) or None,
        tool=_text(tool.get("name"), 200),
    )


def unique_results(results: Sequence[Result]) -> tuple[Result, ...]:
    """Return one result per test; a red one takes precedence."""
    found: dict[str, Result] = {}
    for result in results:
        if result.test not in found or (result.outcome.is_red and not found[result.test].outcome.is_red):
            found[result.test] = result
    return tuple(found.values())


def under_known_names(store: Store, report: ImportedReport) -> ImportedReport:
    """Replace the names of JUnit XML, which has no ids, by the ids of known tests."""
    rows = store.query(lambda connection: connection.execute("SELECT identity FROM tests").fetchall())
    known = {junit_name(row["identity"]): row["identity"] for row in rows}
    results = (replace(each, test=known.get(each.test, each.test)) for each in report.results)
    return replace(report, results=tuple(results))


def add_report(
    store: Store, report: ImportedReport, workspace: str, source: str, content: bytes, now: float
) -> tuple[str, bool]:
    """Add the report as an ended run. Return its id, and whether it is new: a report is not stored twice."""
    digest = hashlib.sha256(content + workspace.encode("utf-8", "surrogateescape")).hexdigest()[:12]
    name = f"import-{digest}"
    if store.query(lambda c: c.execute("SELECT 1 FROM runs WHERE id = ?", (name,)).fetchone()) is not None:
        return name, False
    at = min(report.at, now) if report.at is not None else now
    by = f" by {report.tool}" if report.tool else ""
    run = Run(name, Lane.COMMIT, Trigger.MANUAL, All(f"all tests of the report{by}"), is_forced=True)
    because = "imported from a report"
    store.begin(run, at, workspace, because, imported_from=source, head=report.head, branch=report.branch)
    if report.results:
        store.add_results(name, report.results, at)
    is_red = any(result.outcome.is_red for result in report.results)
    state = RunState.FAILED if is_red else RunState.PASSED if report.results else RunState.NO_TESTS
    store.end(name, state, "", at + report.duration_s, "")
    return name, True


def _result(raw: object) -> Result | None:
    if not isinstance(raw, dict):
        return None
    name, status = raw.get("name"), raw.get("status")
    if not isinstance(name, str) or not name or not isinstance(status, str):
        return None
    outcome = OUTCOMES.get(status, Outcome.SKIPPED)
    raw_status = raw.get("rawStatus")
    if raw_status in set(Outcome) and Outcome(raw_status).is_red == outcome.is_red:
        outcome = Outcome(raw_status)
    exact = _object(raw.get("extra")).get("duration_s")
    spent = _number(exact, LONGEST_S) or _number(raw.get("duration"), LONGEST_S * 1000) / 1000
    retries = raw.get("retries")
    is_flaky = raw.get("flaky") is True and outcome is Outcome.PASSED
    reruns = retries if isinstance(retries, int) and 0 < retries < 1000 and is_flaky else 0
    return Result(_identity(raw, name), outcome, spent, _failure(raw) if outcome.is_red else None, reruns)


def _identity(raw: dict[str, Any], name: str) -> str:
    """Return an id for the test: our own ids stay, other names get their file and suite in front to be unique."""
    if "::" in name:
        return name[:ID_LIMIT]
    suite = raw.get("suite")
    parts = [each for each in suite if isinstance(each, str)] if isinstance(suite, list) else []
    file = _text(raw.get("filePath"), 1000)
    if file and parts[:1] != [file]:
        parts.insert(0, file)
    return "::".join([*parts, name])[:ID_LIMIT]


def _failure(raw: dict[str, Any]) -> Failure:
    file, line = _text(raw.get("filePath"), 1000), raw.get("line")
    is_line = isinstance(line, int) and not isinstance(line, bool) and 0 < line < 1_000_000_000
    where = Location(file, line) if file and is_line else None  # type: ignore[arg-type]
    stdout = raw.get("stdout")
    output = "\n".join(each for each in stdout if isinstance(each, str)) if isinstance(stdout, list) else ""
    message = _text(raw.get("message")) or "no reason was reported"
    kind = _text(_object(raw.get("extra")).get("kind"), 200) or "failed"
    return Failure(kind, message, where, text=_text(raw.get("trace")), output=output[-STORED_TEXT_LIMIT:])


def _object(raw: object) -> dict[str, Any]:
    return raw if isinstance(raw, dict) else {}


def _text(raw: object, limit: int = STORED_TEXT_LIMIT) -> str:
    return raw[:limit] if isinstance(raw, str) else ""


def _number(raw: object, most: float) -> float:
    is_number = isinstance(raw, int | float) and not isinstance(raw, bool)
    return float(raw) if is_number and 0 <= raw <= most else 0.0  # type: ignore[arg-type, operator]
