"""`history html`: the report page, written and shown."""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from watchtest.client.history_access import age as age_of
from watchtest.client.history_access import answer, asked_since, asked_workspace, limit, workspace_of
from watchtest.errors import UsageError, WorkspaceError


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="(default: watchtest-history.html)")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    parser.add_argument("--runs", type=limit, default=300, metavar="N", help="the latest N runs (default: 300)")
    parser.add_argument("--since", type=age_of, default=None, metavar="AGE", help="only what is younger, such as 7d")
    parser.add_argument("--all-worktrees", action="store_true", help="runs of every worktree of the repository")
    parser.set_defaults(run=_run)


ADD = {"html": _add}


def _run(arguments: argparse.Namespace) -> int:
    from watchtest.core.text import clean
    from watchtest.history.reports.html_page import Wish, page, page_data

    wish = Wish(
        name=workspace_of(arguments).name,
        workspace=asked_workspace(arguments),
        now=time.time(),
        since=asked_since(arguments),
        runs=arguments.runs,
    )
    data = answer(arguments, lambda connection: page_data(connection, wish, clean))
    if data is None:
        raise UsageError("history html: there are no runs yet", hint="start one: watchtest watch")
    # Without a name given, a page to look at does not belong into the project.
    is_passing = arguments.open and arguments.output is None
    folder = Path(tempfile.mkdtemp(prefix="watchtest-")) if is_passing else Path()
    path = arguments.output or folder / "watchtest-history.html"
    write(path, page(data))
    print(path)
    if arguments.open:
        _open(path)
    return 0


def write(path: Path, text: str) -> None:
    """Whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise WorkspaceError(
            f"cannot write {path}: {error.strerror or error}", hint="name another file with -o"
        ) from error


def _open(path: Path) -> None:
    import webbrowser

    if not webbrowser.open(path.absolute().as_uri()):
        raise UsageError(f"history html --open: no browser was found; the page is {path}")
