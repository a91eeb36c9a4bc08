"""`watchtest prune`: removes what belongs to workspaces of this machine that are gone. Asks first, and names each."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.client.settings import add_engine
from watchtest.errors import UsageError, WatchtestError

if TYPE_CHECKING:
    from watchtest.boxes.inventory import Resource
    from watchtest.client.belongings import Seen

NOT_REMOVED = 4


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("prune", help="remove what belongs to workspaces that are gone")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="what is, or would be, removed, as JSON; asks nothing")
    add_engine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.belongings import look

    with look(arguments) as seen:
        orphans = seen.orphans()
        if not arguments.json:
            _tell(orphans, seen.host)
        is_meant = bool(orphans) and not arguments.dry_run and (arguments.yes or _is_confirmed(arguments, len(orphans)))
        failures = _remove(orphans, seen) if is_meant else []
        if arguments.json:
            print(json.dumps(seen.as_json(orphans), indent=2))
        elif is_meant:
            print(f"removed {len(orphans) - len(failures)} of {len(orphans)}")
    if not arguments.dry_run:
        _sweep(is_quiet=arguments.json)
    for failure in failures:
        print(f"watchtest: {failure}", file=sys.stderr)
    return NOT_REMOVED if failures else 0


def _sweep(*, is_quiet: bool) -> None:
    """Sockets that killed watchers left: nothing is in them, so nobody is asked."""
    from watchtest.control.address import dead_sockets
    from watchtest.workspace.user_dirs import runtime_dirs

    dead = dead_sockets(runtime_dirs())
    for path in dead:
        path.unlink(missing_ok=True)
    if dead and not is_quiet:
        print(f"removed {len(dead)} socket{'' if len(dead) == 1 else 's'} of watchers that were killed")


def _tell(orphans: tuple[Resource, ...], host: str) -> None:
    from watchtest.client.belongings import nearest
    from watchtest.commands.ps import show
    from watchtest.core.text import clean

    if not orphans:
        print("nothing to remove: every workspace is there")
        return
    show(orphans, host)
    print("\nTheir workspaces are gone. A disk that is not mounted looks the same:")
    for workspace in sorted({orphan.workspace for orphan in orphans}):
        print(f"  {clean(workspace)} (of it, only {nearest(workspace)} is there)")


def _is_confirmed(arguments: argparse.Namespace, count: int) -> bool:
    if arguments.json or not sys.stdin.isatty():
        raise UsageError(
            "prune: nobody can be asked here, so nothing was removed",
            hint="add --yes to remove what is listed, or --dry-run to see it",
        )
    return input(f"Remove {'this' if count == 1 else f'all {count}'}? [y/N] ").strip().lower() in ("y", "yes")


def _remove(orphans: tuple[Resource, ...], seen: Seen) -> list[str]:
    """In order, so that nothing is still in use; what could not be removed."""
    from watchtest.boxes.inventory import remove

    failures = []
    for orphan in orphans:
        try:
            remove(orphan, seen.engines)
        except WatchtestError as error:
            failures.append(f"{orphan.what} {orphan.name}: {error.message}")
    _forget_tokens({orphan.workspace for orphan in orphans})
    return failures


def _forget_tokens(workspaces: set[str]) -> None:
    """The words by which programs reached the watchers of workspaces that are gone."""
    from watchtest.control.address import token_file
    from watchtest.workspace.user_dirs import state_dir

    for workspace in workspaces:
        with suppress(OSError):  # of no use to anybody any more, there or not
            token_file(state_dir(), Path(workspace)).unlink(missing_ok=True)
