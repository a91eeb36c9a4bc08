"""`watchtest ps`: list the boxes, images and volumes of all workspaces.

List everything watchtest keeps on this machine and its engines, and which workspace it belongs to.

    watchtest ps --json
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from watchtest.commands import add_engine, add_json, print_json, say
from watchtest.core.text import age, clean
from watchtest.workspace.machine import machine_id

if TYPE_CHECKING:
    from watchtest.boxes.docker.engines import Engine
    from watchtest.boxes.inventory import Resource
    from watchtest.core.model import EngineName

KIBI = 1024


def add_options(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    add_engine(parser)


@dataclass(frozen=True, slots=True)
class Inventory:
    """Everything that was found. The engines stay connected, so that resources can be removed."""

    resources: tuple[Resource, ...]
    engines: tuple[Engine, ...]
    host: str

    def orphans(self) -> tuple[Resource, ...]:
        return tuple(resource for resource in self.resources if resource.is_orphan(self.host))

    def as_json(self, resources: tuple[Resource, ...]) -> list[dict[str, Any]]:
        return [{**asdict(resource), "is_orphan": resource.is_orphan(self.host)} for resource in resources]


@contextmanager
def inventory(arguments: argparse.Namespace) -> Iterator[Inventory]:
    """Ask every engine that answers, or the one that was named, and look into the cache folder."""
    from watchtest.boxes.inventory import engine_resources, local_resources, reachable_engines
    from watchtest.workspace.user_dirs import cache_dir

    choice: EngineName = arguments.engine or "auto"
    engines = [] if choice == "local" else reachable_engines(os.environ, choice, say)
    try:
        found = [resource for engine in engines for resource in engine_resources(engine)]
        if choice in ("auto", "local"):
            found += local_resources(cache_dir())
        yield Inventory(tuple(found), tuple(engines), machine_id())
    finally:
        for engine in engines:
            engine.close()


def run(arguments: argparse.Namespace) -> int:
    with inventory(arguments) as found:
        if arguments.json:
            print_json(found.as_json(found.resources))
            return 0
        print_table(found.resources, found.host)
        orphans = len(found.orphans())
    if orphans:
        belong = "belongs" if orphans == 1 else "belong"
        print(f"\n{orphans} of these {belong} to a deleted workspace: `watchtest prune` cleans up")
    return 0


def print_table(resources: tuple[Resource, ...], host: str) -> None:
    """Print one line per resource. Nothing is cut, so that a narrow terminal or a pipe loses nothing."""
    if not resources:
        print("watchtest keeps no box, image or volume here")
        return
    now = time.time()
    rows = [("KIND", "NAME", "LANE", "STATE", "AGE", "SIZE", "IMAGE", "WORKSPACE")]
    rows += [
        (
            resource.what if resource.engine == "local" else f"{resource.engine} {resource.what}",
            resource.name,
            resource.lane or "-",
            resource.state or "-",
            age(now - resource.created_at).removesuffix(" ago") if resource.created_at else "-",
            size(resource.size_bytes),
            resource.image or "-",
            _workspace(resource, host),
        )
        for resource in resources
    ]
    cleaned = [[clean(cell).replace("\n", " ") for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in cleaned) for column in range(len(rows[0]))]
    for row in cleaned:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def size(number: int | None) -> str:
    """Return a number of bytes as `12 MB`; `-` if it is unknown."""
    if number is None:
        return "-"
    value = float(number)
    for unit in ("B", "KB", "MB"):
        if value < KIBI:
            return f"{value:.0f} {unit}"
        value /= KIBI
    return f"{value:.1f} GB"


def _workspace(resource: Resource, host: str) -> str:
    if resource.host != host and resource.workspace:
        return f"{resource.workspace} (on {resource.host or 'an unknown machine'})"
    return f"{resource.workspace or '?'}{' (gone)' if resource.is_orphan(host) else ''}"
