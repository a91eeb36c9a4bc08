"""Bubblewrap: whether it works here, and the command that puts walls around another one.

Inside: the box's own folders alone can be written, homes and workspace are not to be seen, /tmp is private, processes
have a pid, ipc and uts namespace of their own. When the command ends, everything it ever started ends with it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from watchtest.boxes.local.zz_boxes_local_walls import Walls

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

    def command(self, walls: Walls, *, cwd: str, is_cut_off: bool, dies_with_parent: bool = False) -> list[str]:
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


def _mounts(walls: Walls) -> list[str]:
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
