"""`watchtest ps`: everything that watchtest keeps on this machine and its engines, and whose it is. Changes nothing."""

from __future__ import annotations

import argparse
import json
import time
from typing import TYPE_CHECKING

from watchtest.client.settings import add_engine

if TYPE_CHECKING:
    from watchtest.boxes.inventory import Resource

KIBI = 1024


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("ps", help="every box, image and volume of watchtest, of all workspaces")
    parser.add_argument("--json", action="store_true", help="as JSON")
    add_engine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.belongings import look

    with look(arguments) as seen:
        if arguments.json:
            print(json.dumps(seen.as_json(seen.belongings), indent=2))
            return 0
        show(seen.belongings, seen.host)
        orphans = len(seen.orphans())
    if orphans:
        print(f"\n{orphans} of a workspace that is gone: `watchtest prune` removes them")
    return 0


def show(belongings: tuple[Resource, ...], host: str) -> None:
    """As a table; nothing is cut, so that a narrow terminal or a pipe loses nothing."""
    from watchtest.core.text import age, clean

    if not belongings:
        print("nothing: no box, image or volume of watchtest is here")
        return
    now = time.time()
    rows = [("KIND", "NAME", "LANE", "STATE", "AGE", "SIZE", "IMAGE", "WORKSPACE")]
    rows += [
        (
            one.what if one.engine == "local" else f"{one.engine} {one.what}",
            one.name,
            one.lane or "-",
            one.state or "-",
            age(now - one.created_at).removesuffix(" ago") if one.created_at else "-",
            size(one.size_bytes),
            one.image or "-",
            _workspace(one, host),
        )
        for one in belongings
    ]
    cleaned = [[clean(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cleaned) for column in range(len(rows[0]))]
    for row in cleaned:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def size(count: int | None) -> str:
    if count is None:
        return "-"
    value = float(count)
    for unit in ("B", "KB", "MB"):
        if value < KIBI:
            return f"{value:.0f} {unit}"
        value /= KIBI
    return f"{value:.1f} GB"


def _workspace(one: Resource, host: str) -> str:
    if one.host != host and one.workspace:
        return f"{one.workspace or '?'} (on {one.host or 'an unknown machine'})"
    return f"{one.workspace or '?'}{' (gone)' if one.is_orphan(host) else ''}"
