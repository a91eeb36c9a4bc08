"""The further paths under which symlinks of a tree show its files. Pure: links are followed in the snapshot.

Whoever looks at the tree through a link, like pytest when it collects tests, finds the files below it once more, under
other names. So a change of a file is also a change of every path that leads to it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from watchtest.core.model import Entry

MOST_LINKS = 40
"""Linux follows at most this many links in one path."""
MOST_PATHS = 100_000


@dataclass(frozen=True, slots=True)
class LinkedPaths:
    """The paths through links in one tree."""

    real: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By path through a link: the path of the same file without links."""
    circles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """By link: the folder that it leads back to. The paths behind it are not in `real`, because they have no end."""

    def __or__(self, other: LinkedPaths) -> LinkedPaths:
        return LinkedPaths({**self.real, **other.real}, {**self.circles, **other.circles})

    def entries(self, entries: Mapping[str, Entry]) -> dict[str, Entry]:
        return {path: entries[real] for path, real in self.real.items()}


def follow_links(entries: Mapping[str, Entry], targets: Mapping[str, str]) -> LinkedPaths:
    """Return what the links in a tree lead to; `targets` has the target of each link, which may not be in the tree."""
    links = {path: target for path, target in targets.items() if path in entries}
    if not links:
        return LinkedPaths()
    walk = _Walk(entries, links, sorted(entries), {}, {})
    for link in links:
        walk.follow(link, link, ())
    return LinkedPaths(walk.real, walk.circles)


@dataclass(frozen=True, slots=True)
class _Walk:
    entries: Mapping[str, Entry]
    links: Mapping[str, str]
    ordered: list[str]
    real: dict[str, str]
    circles: dict[str, str]

    def follow(self, path: str, link: str, way: tuple[str, ...]) -> None:
        """Note all paths behind a link, which `path` leads to through other links, in the folders `way`."""
        target = self._resolve(link)
        way = (*way, link.rpartition("/")[0])
        if target is None or target in self.links:
            return
        if target in self.entries:
            self.real[path] = target
            return
        if any(_is_below(folder, target) for folder in way):
            self.circles[path] = target
            return
        start = len(target) + 1 if target else 0
        for inner in self._below(target):
            shown = f"{path}/{inner[start:]}"
            if inner in self.links:
                self.follow(shown, inner, way)
            else:
                self.real[shown] = inner
            if len(self.real) > MOST_PATHS:
                self.circles[path] = ""
                return

    def _below(self, folder: str) -> Iterator[str]:
        start = f"{folder}/" if folder else ""
        for index in range(bisect_left(self.ordered, start), len(self.ordered)):
            if not self.ordered[index].startswith(start):
                return
            yield self.ordered[index]

    def _resolve(self, path: str) -> str | None:
        """Return the path without links; None if it leads out of the tree or in a circle."""
        found: list[str] = []
        parts = path.split("/")[::-1]
        hops = 0
        while parts:
            part = parts.pop()
            if part == "..":
                if not found:
                    return None
                found.pop()
            elif part not in ("", "."):
                found.append(part)
                target = self.links.get("/".join(found))
                if target is not None:
                    hops += 1
                    if hops > MOST_LINKS or target.startswith("/"):
                        return None
                    found.pop()
                    parts += target.split("/")[::-1]
        return "/".join(found)


def _is_below(folder: str, top: str) -> bool:
    return not top or folder == top or folder.startswith(f"{top}/")
