"""Bubblewrap: whether it works here, and the command that puts walls around another one.

Inside: the box's own folders alone can be written, homes and workspace are not to be seen, /tmp is private, processes
have a pid, ipc and uts namespace of their own. When the command ends, everything it ever started ends with it.

What of the host a sandboxed box sees: plans the walls, touches nothing.

The whole system is there, read-only; homes, the workspace, other disks and the sockets of services are empty folders.
Below those, only what the box cannot do without is shown again, read-only, with every symlink on the way to it.
"""

from __future__ import annotations

import functools
import os
import pwd
import shutil
import subprocess
import sys
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
class BoxFolders:
    """Where the box itself lies on the host; the only folders that can be written."""

    tree: Path
    home: Path
    temporary: Path
    """Its /tmp. It lies beside what the box can write, so that the box cannot put a link in its place."""


@dataclass(frozen=True, slots=True)
class SandboxMounts:
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


def plan_mounts(
    folders: BoxFolders, *, workspace: str, environ: Mapping[str, str], needed: Iterable[str], welcome: Iterable[str]
) -> SandboxMounts:
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
    return SandboxMounts(
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


PROBE_LIMIT_S = 10.0
APART = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL")
SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
ROOT_CAN_WRITE = ("sys", "sysrq-trigger", "bus", "irq", "fs", "acpi", "scsi", "mtrr")
"""Of /proc: the kernel lets root write these without any capability, and they are the whole machine's."""
INSTALL = "install the package bubblewrap"
NO_NAMESPACES = (
    "user namespaces seem to be off: allow them (sysctl kernel.unprivileged_userns_clone=1, or "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, more privileges)"
)


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """It is there and works."""

    program: str
    version: str

    def command(self, walls: SandboxMounts, *, cwd: str, is_cut_off: bool, dies_with_parent: bool = False) -> list[str]:
        """What goes in front of a command. `is_cut_off`: no network but a loopback of its own.

        `dies_with_parent` only from a thread that lives as long as the command shall: the kernel means threads.
        """
        return [
            self.program,
            *APART,
            *(("--unshare-net",) if is_cut_off else ()),
            *(("--die-with-parent",) if dies_with_parent else ()),
            *_mounts(walls),
            *("--chdir", cwd),
        ]


@dataclass(frozen=True, slots=True)
class NoBubblewrap:
    """Why there is none, and what to do about it."""

    reason: str
    hint: str = ""


def find_bubblewrap(environ: Mapping[str, str], *, is_cut_off: bool = False) -> Bubblewrap | NoBubblewrap:
    """Tried once a process; where it is installed it may still not be allowed to do anything."""
    if not sys.platform.startswith("linux"):
        return NoBubblewrap("bubblewrap exists on Linux only")
    program = shutil.which("bwrap", path=environ.get("PATH"))
    return _tried(program, is_cut_off) if program else NoBubblewrap("bubblewrap is not installed", INSTALL)


@functools.cache
def _tried(program: str, is_cut_off: bool) -> Bubblewrap | NoBubblewrap:
    network = ("--unshare-net",) if is_cut_off else ()
    command = [program, *APART, *network, *SYSTEM, *_covers(), "--", program, "--version"]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=PROBE_LIMIT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return NoBubblewrap(f"bubblewrap does not answer within {PROBE_LIMIT_S:g} s ({program})")
    except OSError as error:
        return NoBubblewrap(f"bubblewrap cannot be started: {error.strerror} ({program})")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        return NoBubblewrap(f"bubblewrap does not work here: {lines[-1]}", _advice(lines[-1]))
    return Bubblewrap(program, done.stdout.strip())


def _advice(message: str) -> str:
    if "nknown option" in message:
        return "install bubblewrap 0.5 or newer"
    words = ("namespace", "uid map", "Operation not permitted", "Permission denied")
    return NO_NAMESPACES if any(word in message for word in words) else ""


def _mounts(walls: SandboxMounts) -> list[str]:
    """In this order: what is hidden, then what is shown again inside it, and only then is the empty part closed."""
    mounts = [*SYSTEM, *_covers()]
    for folder in walls.hidden:
        mounts += ("--tmpfs", folder)
    temporary = os.path.realpath("/tmp")
    mounts += ("--bind", walls.temporary, temporary) if walls.temporary else ("--tmpfs", temporary)
    if not Path("/var/tmp").is_symlink():
        mounts += ("--tmpfs", "/var/tmp")
    for path in walls.readable:
        mounts += ("--ro-bind", path, path)
    for where, target in walls.links:
        mounts += ("--symlink", target, where)
    for folder in walls.writable:
        mounts += ("--bind", folder, folder)
    for folder in walls.hidden:
        mounts += ("--remount-ro", folder)
    return mounts


def _covers() -> list[str]:
    if os.geteuid() != 0:
        return []
    found = [f"/proc/{name}" for name in ROOT_CAN_WRITE if Path("/proc", name).exists()]
    return [part for path in found for part in ("--ro-bind", path, path)]
