"""`watchtest history import`: import reports of other tools.

Add JUnit XML or CTRF JSON reports to the history, each as a run.

    watchtest history import report.xml
"""

from __future__ import annotations

import argparse
import re
import time
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.client.history_access import REPORT_FORMATS, history_file
from watchtest.core.text import tests
from watchtest.errors import UsageError, WorkspaceError
from watchtest.history.store.store import Store
from watchtest.workspace.folder import find_workspace

if TYPE_CHECKING:
    from watchtest.history.reports.report_import import ImportedReport

TIMESTAMP = re.compile(rb"""<testsuite\s[^>]*?\btimestamp=["']([^"']{10,40})["']""")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JUnit XML or CTRF JSON")
    text = "format of the report (default: detected from the content)"
    parser.add_argument("--format", choices=REPORT_FORMATS, help=text)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.history.reports.report_import import SIZE_LIMIT, add_report, under_known_names

    workspace = str(find_workspace(arguments.workspace))
    reports: list[tuple[Path, bytes, ImportedReport]] = []
    # Read all of them before the first one is stored.
    for file in arguments.files:
        try:
            with file.open("rb") as stream:
                content = stream.read(SIZE_LIMIT + 1)
        except OSError as error:
            raise WorkspaceError(f"history import: cannot read {file}: {error.strerror or error}") from error
        reports.append((file, content, _read(content, file, arguments.format, workspace)))
    with Store(history_file(arguments)) as store:
        for file, content, raw in reports:
            report = under_known_names(store, raw)
            name, is_new = add_report(store, report, workspace, str(file), content, time.time())
            print(f"{file}: run {name}, {tests(len(report.results)) if is_new else 'already imported'}")
    return 0


def _read(content: bytes, file: Path, chosen: str | None, workspace: str) -> ImportedReport:
    from watchtest.history.reports.report_import import ImportedReport, InvalidReport, read_ctrf, unique_results
    from watchtest.runners.junit import InvalidJUnit, read_junit

    is_json = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    try:
        if (chosen or ("ctrf" if is_json else "junit")) == "ctrf":
            return read_ctrf(content)
        found = read_junit(content, "junit", workspace, "")
        if not found and b"<testsuite" not in content:
            raise InvalidReport("it is not a JUnit report: it has no testsuite")
    except (InvalidReport, InvalidJUnit) as error:
        raise UsageError(
            f"history import {file}: {error}", hint="give a JUnit XML or CTRF JSON file; --format says which it is"
        ) from error
    results = unique_results([replace(result, test=result.test.removeprefix("junit::")) for result in found])
    return ImportedReport(results, at=_started_at(content), duration_s=sum(result.duration_s for result in results))


def _started_at(content: bytes) -> float | None:
    """Return the timestamp of the first suite, if it has one."""
    match = TIMESTAMP.search(content)
    try:
        at = datetime.fromisoformat(match[1].decode()) if match is not None else None
        # The schema of the format says that a time without a zone is UTC.
        return None if at is None else (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
