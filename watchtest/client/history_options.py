"""The options that several `watchtest history` commands share, and what they select."""

from __future__ import annotations

import argparse
import re
import time

from watchtest.core.model import Lane
from watchtest.history.queries import run_queries
from watchtest.workspace.folder import find_workspace

LONGEST_LIST = 10_000
AGES = {"m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}


def add_filters(
    parser: argparse.ArgumentParser, *, with_json: bool = True, with_lane: bool = True, since: str | None = None
) -> None:
    """Add the common options. `since` is the default of `--since`; without it there is no such option."""
    parser.add_argument("--all-worktrees", action="store_true", help="include all worktrees of the repository")
    if with_json:
        parser.add_argument("--json", action="store_true", help="print JSON")
    if with_lane:
        parser.add_argument("--lane", choices=[lane.value for lane in Lane], help="only runs of this lane")
    if since is not None:
        text = f"only the last AGE: 90m, 12h, 7d, 4w, or all (default: {since})"
        parser.add_argument("--since", type=parse_age, default=parse_age(since), metavar="AGE", help=text)


def add_run(parser: argparse.ArgumentParser) -> None:
    text = "a run id, or last (default), last-failed, last-green"
    parser.add_argument("name", nargs="?", default="last", metavar="RUN", help=text)


def add_limit(parser: argparse.ArgumentParser, flag: str, default: int, text: str) -> None:
    """Add `-n` as `limit`, or `--runs`."""
    text = f"{text} (default: {default})"
    name = "limit" if flag == "-n" else flag.removeprefix("--")
    parser.add_argument(flag, dest=name, type=parse_limit, default=default, metavar="N", help=text)


def parse_age(text: str) -> float | None:
    """Return an age such as `7d` in seconds, or None for `all`."""
    if text == "all":
        return None
    found = re.fullmatch(r"([0-9]{1,6})([mhdw])", text)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not an age: write 90m, 12h, 7d, 4w or all")
    return int(found[1]) * AGES[found[2]]


def parse_limit(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= LONGEST_LIST:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {LONGEST_LIST}")
    return int(text)


def chosen_runs(arguments: argparse.Namespace) -> run_queries.RunFilter:
    """Return the runs that the common options select."""
    options = vars(arguments)
    lane, since = options.get("lane"), options.get("since")
    return run_queries.RunFilter(
        workspace=None if arguments.all_worktrees else str(find_workspace(arguments.workspace)),
        lane=Lane(lane) if lane else None,
        since=None if since is None else time.time() - since,
    )
