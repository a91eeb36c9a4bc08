"""What of the host a sandboxed box sees: plans the walls, touches nothing.

The whole system is there, read-only; homes, the workspace, other disks and the sockets of services are empty folders.
Below those, only what the box cannot do without is shown again, read-only, with every symlink on the way to it.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from watchtest.errors import BoxError

HOMES = ("/home", "/root")
HIDDEN = (*HOMES, "/run", "/mnt", "/media")
"""/run holds the sockets of engines, desktop buses and key agents; other disks hold other people's homes."""
SCRATCH = ("/tmp", "/var/tmp", "/dev")
"""Hidden, too, by something private that may be written."""
RESOLVER = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/localtime")
"""Often symlinks into what is hidden; without them no name would be found."""
MOST_LINKS = 40


@dataclass(frozen=True, slots=True)
class Folders:
    """Where the box itself lies on the host; the only folders that can be written."""

    tree: Path
    home: Path
    temporary: Path
    """Its /tmp. It lies beside what the box can write, so that the box cannot put a link in its place."""


@dataclass(frozen=True, slots=True)
class Walls:
    """All paths are real ones, except where links lead to them."""

    hidden: tuple[str, ...]
    """Folders that are empty inside, none below another."""
    readable: tuple[str, ...]
    """What lies below a hidden folder and is shown all the same."""
    links: tuple[tuple[str, str], ...]
    """Symlinks below hidden folders that are made again: where, and to what."""
    writable: tuple[str, ...]
    temporary: str | None
    """What is mounted as /tmp; None: memory, because something of the box lies below the host's /tmp itself."""


def plan_walls(
    folders: Folders, *, workspace: str, environ: Mapping[str, str], needed: Iterable[str], welcome: Iterable[str]
) -> Walls:
    """`needed` must be seen: its absence is an error. `welcome` is shown where that gives nothing private away."""
    private = _private(workspace, environ)
    out_of_sight = (*private, *(os.path.realpath(folder) for folder in SCRATCH))
    writable = tuple(os.path.realpath(folder) for folder in (folders.tree, folders.home))
    shown: set[str] = set()
    links: dict[str, str] = {}
    for path, is_needed in (*((path, True) for path in needed), *((path, False) for path in (*welcome, *RESOLVER))):
        on_the_way, real = _way(path)
        if not os.path.lexists(real) or Path(real).is_symlink() or _is_below(real, writable):
            continue
        if _is_below(real, out_of_sight):
            if any(_is_below(folder, (real,)) for folder in out_of_sight):
                if is_needed:
                    raise _exposes_too_much(path, real)
                continue
            shown.add(real)
        links |= {where: target for where, target in on_the_way.items() if _is_below(where, out_of_sight)}
    readable = _topmost(shown)
    visible = (*readable, *writable)
    remade = sorted((where, target) for where, target in links.items() if not _is_below(where, visible))
    is_below_tmp = any(_is_below(path, (os.path.realpath("/tmp"),)) for path in (*visible, *links))
    scratch = tuple(os.path.realpath(folder) for folder in SCRATCH)
    return Walls(
        hidden=tuple(folder for folder in _topmost(private) if not _is_below(folder, scratch)),
        readable=readable,
        links=tuple(remade),
        writable=writable,
        temporary=None if is_below_tmp else str(folders.temporary),
    )


def _private(workspace: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Folders that nobody in the box has any business in. A home of "/" is that of a system user, and no home."""
    candidates = (environ.get("HOME", ""), _home_of_user(), workspace, *HIDDEN)
    real = [os.path.realpath(folder) for folder in candidates if folder and Path(folder).is_dir()]
    return tuple(dict.fromkeys(folder for folder in real if folder != "/"))


def _home_of_user() -> str:
    """As the system has it, whatever HOME says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""  # a user without an entry, as in many containers


def _way(path: str) -> tuple[dict[str, str], str]:
    """Every symlink that is followed on the way to a path, and where it ends."""
    links: dict[str, str] = {}
    hops = 0
    real, rest = "/", list(reversed(str(Path(path).absolute()).split("/")))
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            real = os.path.dirname(real)  # noqa: PTH120  "/" stays "/", as the kernel has it
            continue
        step = str(Path(real, part))
        if hops == MOST_LINKS or not Path(step).is_symlink():
            real = step
            continue
        hops += 1
        target = links[step] = str(Path(step).readlink())
        real = "/" if target.startswith("/") else real
        rest += reversed(target.split("/"))
    return links, real


def _is_below(path: str, folders: Iterable[str]) -> bool:
    """At or below one of them."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _topmost(paths: Iterable[str]) -> tuple[str, ...]:
    found: list[str] = []
    for path in sorted(set(paths)):
        if not _is_below(path, found):
            found.append(path)
    return tuple(found)


def _exposes_too_much(path: str, real: str) -> BoxError:
    return BoxError(
        f"the local box needs {path}, but showing {real} would show all that bubblewrap shall hide",
        hint='set box.python to an interpreter elsewhere, or box.sandbox = "off"',
    )
