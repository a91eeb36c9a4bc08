"""`watchtest prune`: remove what belongs to deleted workspaces.

Remove boxes, images and volumes of workspaces that no longer exist. Lists them and asks first.

    watchtest prune --dry-run
"""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.commands import add_engine, print_json, say
from watchtest.commands.ps import Inventory, inventory, print_table
from watchtest.core.text import clean, count
from watchtest.errors import UsageError, WatchtestError

if TYPE_CHECKING:
    from watchtest.boxes.inventory import Resource

NOT_REMOVED = 4


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only show what would be removed")
    parser.add_argument("--yes", action="store_true", help="remove without asking")
    text = "print what is, or would be, removed as JSON; never asks (needs --yes or --dry-run)"
    parser.add_argument("--json", action="store_true", help=text)
    add_engine(parser)


def run(arguments: argparse.Namespace) -> int:
    with inventory(arguments) as found:
        orphans = found.orphans()
        if not arguments.json:
            _print(orphans, found.host)
        is_confirmed = bool(orphans) and not arguments.dry_run and (arguments.yes or _ask(arguments, len(orphans)))
        failures = _remove(orphans, found) if is_confirmed else []
        if arguments.json:
            print_json(found.as_json(orphans))
        elif is_confirmed:
            print(f"removed {len(orphans) - len(failures)} of {len(orphans)}")
    if not arguments.dry_run:
        _remove_dead_sockets(is_quiet=arguments.json)
    for failure in failures:
        say(failure)
    return NOT_REMOVED if failures else 0


def _remove_dead_sockets(*, is_quiet: bool) -> None:
    """Remove the sockets of killed watchers, without asking: there is nothing in them."""
    from watchtest.control.address import dead_sockets
    from watchtest.workspace.user_dirs import runtime_dirs

    dead = dead_sockets(runtime_dirs())
    for path in dead:
        path.unlink(missing_ok=True)
    if dead and not is_quiet:
        print(f"removed {count(len(dead), 'socket')} of killed watchers")


def _print(orphans: tuple[Resource, ...], host: str) -> None:
    if not orphans:
        print("nothing to remove: all workspaces exist")
        return
    print_table(orphans, host)
    print("\nThese workspaces no longer exist. If one is on a disk that is not mounted, mount it first:")
    for workspace in sorted({orphan.workspace for orphan in orphans}):
        nearest = next(folder for folder in Path(workspace).parents if folder.exists())
        print(f"  {clean(workspace)} (only {nearest} exists)")


def _ask(arguments: argparse.Namespace, number: int) -> bool:
    if arguments.json or not sys.stdin.isatty():
        text = "prune: nothing was removed, because without a terminal it cannot ask"
        raise UsageError(text, hint="add --yes to remove what is listed, or --dry-run to see it")
    return input(f"Remove {'this' if number == 1 else f'all {number}'}? [y/N] ").strip().lower() in ("y", "yes")


def _remove(orphans: tuple[Resource, ...], found: Inventory) -> list[str]:
    """Remove them in this order, in which nothing is still in use. Return what failed."""
    from watchtest.boxes.inventory import remove
    from watchtest.control.address import token_file
    from watchtest.workspace.user_dirs import state_dir

    failures = []
    for orphan in orphans:
        try:
            remove(orphan, found.engines)
        except WatchtestError as error:
            failures.append(f"{orphan.what} {orphan.name}: {error.message}")
    for workspace in {orphan.workspace for orphan in orphans}:
        with suppress(OSError):  # a token without its workspace is useless, but harmless
            token_file(state_dir(), Path(workspace)).unlink(missing_ok=True)
    return failures
