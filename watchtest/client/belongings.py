"""What `ps` and `prune` share: everything of watchtest's on this machine and its engines, in order."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchtest.workspace.machine import machine_id

if TYPE_CHECKING:
    from watchtest.boxes.docker.engines import Engine
    from watchtest.boxes.inventory import Resource
    from watchtest.core.model import EngineName


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything that was found. The engines stay connected, to remove some of it."""

    belongings: tuple[Resource, ...]
    engines: tuple[Engine, ...]
    host: str

    def orphans(self) -> tuple[Resource, ...]:
        return tuple(one for one in self.belongings if one.is_orphan(self.host))

    def as_json(self, ones: tuple[Resource, ...]) -> list[dict[str, Any]]:
        return [{**asdict(one), "is_orphan": one.is_orphan(self.host)} for one in ones]


@contextmanager
def look(arguments: argparse.Namespace) -> Iterator[Seen]:
    """Ask every engine there is, or the one that was named, and the cache folder."""
    from watchtest.boxes.inventory import engine_resources, local_resources, reachable_engines
    from watchtest.workspace.user_dirs import cache_dir

    wish: EngineName = arguments.engine or "auto"
    engines = [] if wish == "local" else reachable_engines(os.environ, wish, _say)
    try:
        found = [one for engine in engines for one in engine_resources(engine)]
        if wish in ("auto", "local"):
            found += local_resources(cache_dir())
        yield Seen(tuple(found), tuple(engines), machine_id())
    finally:
        for engine in engines:
            engine.close()


def nearest(workspace: str) -> Path:
    """The deepest folder on the way to a workspace that is still there."""
    return next(folder for folder in Path(workspace).parents if folder.exists())


def _say(text: str) -> None:
    print(f"watchtest: {text}", file=sys.stderr)
