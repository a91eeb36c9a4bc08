"""`watchtest history prune`: delete old runs.

Delete runs beyond the limits and return the space to the disk.

    watchtest history prune -n --days 90
"""

from __future__ import annotations

import argparse
import time

from watchtest.client.history_access import history_file, print_answer
from watchtest.client.history_tables import format_time
from watchtest.commands import add_json, load_settings
from watchtest.core.text import count
from watchtest.history.store.database_file import history_exists, open_for_reading
from watchtest.history.store.retention import MEGABYTE, PrunePlan, RetentionLimits, plan_pruning, used_bytes
from watchtest.history.store.store import Store

BATCH = 500


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-n", "--dry-run", action="store_true", help="only show what would be deleted")
    parser.add_argument("--days", type=_number, metavar="N", help="keep N days (default: history.max_days)")
    parser.add_argument("--runs", type=_number, metavar="N", help="keep N runs (default: history.max_runs)")
    parser.add_argument("--mb", type=_number, metavar="N", help="keep N megabytes (default: history.max_mb)")
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    history = load_settings(arguments)[1].config.history
    limits = RetentionLimits(
        history.max_days if arguments.days is None else arguments.days,
        history.max_runs if arguments.runs is None else arguments.runs,
        history.max_mb if arguments.mb is None else arguments.mb,
    )
    path = history_file(arguments)
    if not history_exists(path):
        return print_answer(arguments, {"dropped": 0, "reasons": []}, lambda: print("there is no history yet"))
    with open_for_reading(path) as connection:
        plan, before = plan_pruning(connection, limits, time.time()), used_bytes(connection)
    after = before
    if plan and not arguments.dry_run:
        with Store(path) as store:
            while store.drop(plan, BATCH):
                pass
            store.shrink()
        with open_for_reading(path) as connection:
            after = used_bytes(connection)
    document = {"dropped": plan.runs, "reasons": plan.reasons, "dry_run": arguments.dry_run}
    document |= {"bytes_before": before, "bytes_after": after}
    return print_answer(arguments, document, lambda: _print(plan, before, after, arguments.dry_run))


def _print(plan: PrunePlan, before: int, after: int, is_dry: bool) -> None:
    if not plan:
        print("nothing to drop: all runs are within the limits")
        return
    span = f"from {format_time(plan.oldest_at or 0)} to {format_time(plan.newest_at or 0)}"
    verb = "would be dropped" if is_dry else "dropped"
    print(f"{count(plan.runs, 'run')} {verb}, {span}: {'; '.join(plan.reasons)}")
    if not is_dry:
        print(f"{before / MEGABYTE:.1f} MB before, {after / MEGABYTE:.1f} MB now")


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 9:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number; 0 means no limit")
    return int(text)
