"""`history export` and `history import`: reports that other tools read and write."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.client.history_access import (
    NAMES_OF_RUNS,
    answer,
    asked_workspace,
    path_of,
    run_named,
    unknown_run,
    workspace_of,
)
from watchtest.commands.history.html import write
from watchtest.core.model import RunState
from watchtest.errors import UsageError, WorkspaceError

if TYPE_CHECKING:
    from watchtest.history.queries.run_queries import PastRun
    from watchtest.history.reports.report_import import Report
    from watchtest.history.store.database import Connection

FORMATS = ("junit", "ctrf")
STAMP = re.compile(rb"""<testsuite\s[^>]*?\btimestamp=["']([^"']{10,40})["']""")
HAS_ITS_SAY = (RunState.PASSED, RunState.FAILED, RunState.NO_TESTS)


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help=NAMES_OF_RUNS)
    parser.add_argument("--format", choices=FORMATS, help="(default: ctrf for FILE.json, else junit)")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="(default: the terminal)")
    parser.add_argument("--all-worktrees", action="store_true", help="runs of every worktree of the repository")
    parser.set_defaults(run=_export)


def _add_import(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="JUnit XML or CTRF JSON")
    parser.add_argument("--format", choices=FORMATS, help="(default: by what the file begins with)")
    parser.set_defaults(run=_import)


ADD = {"export": _add_export, "import": _add_import}


# -- export ----------------------------------------------------------------------------------------


def _export(arguments: argparse.Namespace) -> int:
    found = answer(arguments, lambda connection: _report(connection, arguments))
    if found is None:
        raise unknown_run("export", arguments.name, [])
    run, text = found
    if run.state not in HAS_ITS_SAY:
        # Neither format has a word for it, and nobody shall take what is left of it for green.
        from watchtest.core.text import one_line

        was = f"run {run.id} was {run.state.value}{f' ({one_line(run.reason)})' if run.reason else ''}"
        print(f"{was}: only what its tests had said is in the report", file=sys.stderr)
    if arguments.output is None:
        sys.stdout.write(text)
    else:
        write(arguments.output, text)
        print(arguments.output)
    return 0


def _report(connection: Connection, arguments: argparse.Namespace) -> tuple[PastRun, str]:
    from watchtest import __version__
    from watchtest.history.queries.flaky_tests import flaky_now
    from watchtest.history.queries.run_queries import detail
    from watchtest.history.reports.report_export import ctrf, junit

    run = run_named(connection, arguments.name, asked_workspace(arguments), "export")
    found = detail(connection, run.id)
    assert found is not None
    is_json = arguments.output is not None and arguments.output.suffix == ".json"
    if (arguments.format or ("ctrf" if is_json else "junit")) == "junit":
        return run, junit(found)
    return run, ctrf(found, __version__, flaky_now(connection, run.workspace, time.time()))


# -- import ----------------------------------------------------------------------------------------


def _import(arguments: argparse.Namespace) -> int:
    from watchtest.core.text import tests
    from watchtest.history.reports.report_import import add_report, under_known_names
    from watchtest.history.store.store import Store

    workspace = workspace_of(arguments)
    # All of them are read before the first is kept.
    read = [
        (file, content, _read(content, file, arguments.format, workspace)) for file, content in _contents(arguments)
    ]
    with Store.open(path_of(arguments)) as store:
        for file, content, raw in read:
            report = under_known_names(store, raw)
            name, is_new = add_report(store, report, str(workspace), str(file), content, time.time())
            said = tests(len(report.results)) if is_new else "known already"
            print(f"{file}: run {name}, {said}")
    return 0


def _contents(arguments: argparse.Namespace) -> list[tuple[Path, bytes]]:
    from watchtest.history.reports.report_import import LARGEST

    found = []
    for file in arguments.files:
        try:
            with file.open("rb") as stream:
                found.append((file, stream.read(LARGEST + 1)))
        except OSError as error:
            raise WorkspaceError(f"history import: cannot read {file}: {error.strerror or error}") from error
    return found


def _read(content: bytes, file: Path, chosen: str | None, workspace: Path) -> Report:
    from watchtest.history.reports.report_import import Unreadable, read_ctrf
    from watchtest.runners import junit

    is_json = content.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
    try:
        if (chosen or ("ctrf" if is_json else "junit")) == "ctrf":
            return read_ctrf(content)
        return _of_junit(content, workspace)
    except (Unreadable, junit.Unreadable) as error:
        raise UsageError(
            f"history import {file}: {error}", hint="JUnit XML and CTRF JSON can be read; --format says which it is"
        ) from error


def _of_junit(content: bytes, workspace: Path) -> Report:
    from dataclasses import replace

    from watchtest.history.reports.report_import import Report, Unreadable, once
    from watchtest.runners.junit import read_junit

    found = read_junit(content, "junit", str(workspace), "")
    if not found and b"<testsuite" not in content:
        raise Unreadable("it has no testsuite: it is no JUnit report")
    results = once([replace(result, test=result.test.removeprefix("junit::")) for result in found])
    return Report(results, at=_begun(content), duration_s=sum(result.duration_s for result in results))


def _begun(content: bytes) -> float | None:
    """When its first suite began, where it says so."""
    from datetime import UTC, datetime

    said = STAMP.search(content)
    try:
        at = datetime.fromisoformat(said[1].decode()) if said is not None else None
        # Without a zone it is UTC: so the format's schema has it.
        return None if at is None else (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
