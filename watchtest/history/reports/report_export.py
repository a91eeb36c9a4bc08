"""Export a run as JUnit XML or CTRF JSON, with one entry per test for its last attempt. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from datetime import UTC, datetime
from xml.sax.saxutils import escape, quoteattr

from watchtest.core.model import Outcome
from watchtest.core.text import HIDDEN, timestamp
from watchtest.history.queries.run_queries import PastResult, RunDetail

SPEC_VERSION = "1.0.0"
STATUSES = {
    Outcome.PASSED: "passed",
    Outcome.FAILED: "failed",
    Outcome.ERROR: "failed",
    Outcome.SKIPPED: "skipped",
    Outcome.XFAILED: "skipped",
    Outcome.XPASSED: "passed",
}
# XML 1.0 cannot represent these characters, not even escaped.
_HIDDEN = re.compile(f"[{HIDDEN}]")
_INVALID_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


# -- JUnit XML -------------------------------------------------------------------------------------


def junit(detail: RunDetail) -> str:
    run, results = detail.run, detail.final_results
    counts = Counter(past.result.outcome for past in results)
    spent = sum(past.result.duration_s for past in results)
    skipped = counts[Outcome.SKIPPED] + counts[Outcome.XFAILED]
    numbers = (
        f'tests="{len(results)}" failures="{counts[Outcome.FAILED]}" errors="{counts[Outcome.ERROR]}"'
        f' skipped="{skipped}" time="{spent:.6f}"'
    )
    at = datetime.fromtimestamp(run.queued_at, UTC).isoformat(timespec="seconds").removesuffix("+00:00")
    facts = {"watchtest.run": run.id, "watchtest.state": run.state.value, "watchtest.tree": run.tree or ""}
    lines = [
        '<?xml version="1.0" encoding="utf-8"?>',
        f"<testsuites name={_quoted('watchtest')} {numbers}>",
        f'<testsuite name={_quoted(run.lane.value)} {numbers} timestamp="{at}">',
        "<properties>",
        *(f"<property name={_quoted(name)} value={_quoted(value)}/>" for name, value in facts.items()),
        "</properties>",
        *(line for past in results for line in _case(past)),
        "</testsuite>",
        "</testsuites>",
    ]
    return "\n".join(lines) + "\n"


def _case(past: PastResult) -> list[str]:
    result = past.result
    file, classes, name = parts(result.test)
    where = result.failure.where if result.failure is not None else None
    line = f' line="{where.line}"' if where is not None and where.file == file else ""
    names = f"classname={_quoted(_class_name(file, classes))} name={_quoted(name)}"
    head = f'<testcase {names} time="{result.duration_s:.6f}" file={_quoted(file)}{line}'
    body = _body(past)
    return [f"{head}>", *body, "</testcase>"] if body else [f"{head}/>"]


def parts(test: str) -> tuple[str, list[str], str]:
    """Return the file, the classes and the name of a test. Its parameters may contain anything, even `::`."""
    file, _, rest = test.partition("::")
    plain, bracket, parameters = rest.partition("[")
    *classes, name = plain.split("::")
    return file, classes, f"{name}{bracket}{parameters}" or file


def junit_name(test: str) -> str:
    """Return the name of a test in JUnit XML as pytest writes it, such as `tests.test_a.TestClass.test_one`."""
    file, classes, name = parts(test)
    return f"{_class_name(file, classes)}.{name}"


def _class_name(file: str, classes: list[str]) -> str:
    return ".".join([re.sub(r"\.[A-Za-z]{1,4}$", "", file).replace("/", "."), *classes])


def _body(past: PastResult) -> list[str]:
    result, failure = past.result, past.result.failure
    if result.outcome in (Outcome.SKIPPED, Outcome.XFAILED):
        return [f"<skipped type={_quoted(result.outcome.value)}/>"]
    if failure is None:
        return []
    tag = "error" if result.outcome is Outcome.ERROR else "failure"
    text = _escaped(failure.text or failure.message)
    lines = [f"<{tag} type={_quoted(failure.kind)} message={_quoted(failure.message)}>{text}</{tag}>"]
    if failure.output:
        lines.append(f"<system-out>{_escaped(failure.output)}</system-out>")
    return lines


def _quoted(text: str) -> str:
    return _visible(quoteattr(_valid_xml(text), {"\n": "&#10;", "\t": "&#9;"}))


def _escaped(text: str) -> str:
    return _visible(escape(_valid_xml(text)))


def _valid_xml(text: str) -> str:
    return _INVALID_IN_XML.sub("\ufffd", text.replace("\r\n", "\n").replace("\r", "\n"))


def _visible(text: str) -> str:
    """Return the text with references for what a terminal obeys; parsers restore it."""
    return _HIDDEN.sub(lambda found: f"&#{ord(found[0])};", text)


# -- CTRF ------------------------------------------------------------------------------------------


def ctrf(detail: RunDetail, version: str, flaky: frozenset[str]) -> str:
    run, results = detail.run, detail.final_results
    counts = Counter(STATUSES[past.result.outcome] for past in results)
    start = run.queued_at
    stop = run.ended_at if run.ended_at is not None else start
    attempts = Counter(past.result.test for past in detail.results)
    environment = {"commit": run.head, "branchName": run.branch, "testEnvironment": run.environment}
    document = {
        "reportFormat": "CTRF",
        "specVersion": SPEC_VERSION,
        "runId": run.id,
        "timestamp": timestamp(stop),
        "generatedBy": f"watchtest {version}",
        "results": {
            "tool": {"name": "watchtest", "version": version},
            "summary": {
                "tests": len(results),
                **{status: counts[status] for status in ("passed", "failed", "skipped", "pending", "other")},
                "flaky": sum(past.result.test in flaky for past in results),
                "start": _milliseconds(start),
                "stop": _milliseconds(stop),
            },
            "tests": [_test(past, attempts[past.result.test], flaky) for past in results],
            "environment": {name: value for name, value in environment.items() if value},
            "extra": {"state": run.state.value, "reason": run.reason, "tree": run.tree, "lane": run.lane.value},
        },
    }
    return json.dumps(document, indent=2) + "\n"


def _test(past: PastResult, attempts: int, flaky: frozenset[str]) -> dict[str, object]:
    result, failure = past.result, past.result.failure
    file, classes, _ = parts(result.test)
    document: dict[str, object] = {
        "name": result.test,
        "status": STATUSES[result.outcome],
        "duration": _milliseconds(result.duration_s),
        "rawStatus": result.outcome.value,
        "suite": [file, *classes],
        "filePath": file,
        "retries": attempts - 1,
        "flaky": result.test in flaky,
        "extra": {"duration_s": result.duration_s},
    }
    if failure is not None:
        document |= {"message": failure.message, "trace": failure.text}
        if failure.where is not None:
            document["line"] = failure.where.line
        if failure.source_line:
            document["snippet"] = failure.source_line
        if failure.output:
            document["stdout"] = failure.output.splitlines()
        document["extra"] = {"duration_s": result.duration_s, "kind": failure.kind, "signature": past.signature}
    return document


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)
