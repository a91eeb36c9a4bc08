"""Find out whether bubblewrap works here, plan what a sandbox shows of the host, and build its command.

Inside the sandbox the whole system is visible, read-only. Homes, the workspace, other disks and the sockets of services
are empty folders; below them, only what the box needs is shown again, with every symlink on the way to it. Only the
box's own folders are writable. /tmp is private, and so are the pid, ipc and uts namespaces: when the command ends,
everything that it started ends with it.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from watchtest.boxes.local.box_folder import HOME, TEMPORARY, TREE
from watchtest.errors import BoxError

HOMES = ("/home", "/root")
HIDDEN = (*HOMES, "/run", "/mnt", "/media")
"""/run holds the sockets of engines, desktop buses and key agents; other disks hold other people's homes."""
SCRATCH = ("/tmp", "/var/tmp", "/dev")
"""Replaced by private folders that are writable."""
RESOLVER = ("/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/localtime")
"""Often symlinks into hidden folders; without them name resolution fails."""
MAX_LINKS = 40


# -- mounts ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SandboxMounts:
    """What a sandbox shows of the host. All paths are resolved, except those of links."""

    hidden: tuple[str, ...]
    """Folders that are empty inside, none below another."""
    readable: tuple[str, ...]
    """Paths below hidden folders that are shown nevertheless."""
    links: tuple[tuple[str, str], ...]
    """Symlinks below hidden folders to recreate: path and target."""
    writable: tuple[str, ...]
    temporary: str | None
    """The folder to mount as /tmp; None for a tmpfs, because the box itself lies below the host's /tmp."""


def plan_mounts(
    box: Path, *, workspace: str, environ: Mapping[str, str], required: Iterable[str], optional: Iterable[str]
) -> SandboxMounts:
    """Plan the mounts. Raise if a required path would expose private folders; skip an optional one then."""
    private = _private(workspace, environ)
    scratch = tuple(map(os.path.realpath, SCRATCH))
    out_of_sight = (*private, *scratch)
    writable = (os.path.realpath(box / TREE), os.path.realpath(box / HOME))
    shown: set[str] = set()
    links: dict[str, str] = {}
    needed = {**dict.fromkeys((*optional, *RESOLVER), False), **dict.fromkeys(required, True)}
    for path, is_required in needed.items():
        links_on_path, real = _resolve(path)
        if not os.path.lexists(real) or Path(real).is_symlink() or _is_below(real, writable):
            continue
        is_hidden = _is_below(real, out_of_sight)
        exposes_all = is_hidden and any(_is_below(folder, (real,)) for folder in out_of_sight)
        if exposes_all and is_required:
            raise BoxError(
                f"the local box needs {path}, but showing {real} would expose everything that bubblewrap should hide",
                hint='set box.python to an interpreter elsewhere, or box.sandbox = "off"',
            )
        if exposes_all:
            continue
        if is_hidden:
            shown.add(real)
        links |= links_on_path
    readable = _topmost(shown)
    visible = (*readable, *writable)
    hidden_links = [link for link in sorted(links) if _is_below(link, out_of_sight) and not _is_below(link, visible)]
    is_below_tmp = any(_is_below(path, (os.path.realpath("/tmp"),)) for path in (*visible, *links))
    return SandboxMounts(
        hidden=tuple(folder for folder in _topmost(private) if not _is_below(folder, scratch)),
        readable=readable,
        links=tuple((link, links[link]) for link in hidden_links),
        writable=writable,
        temporary=None if is_below_tmp else str(box / TEMPORARY),
    )


def _private(workspace: str, environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the folders that are private to the user. A home of "/" belongs to a system user and is none."""
    candidates = (environ.get("HOME", ""), _home_in_passwd(), workspace, *HIDDEN)
    real = [os.path.realpath(folder) for folder in candidates if folder and Path(folder).is_dir()]
    return tuple(dict.fromkeys(folder for folder in real if folder != "/"))


def _home_in_passwd() -> str:
    import pwd  # not on Windows

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""  # a user without an entry, as in many containers


def _resolve(path: str) -> tuple[dict[str, str], str]:
    """Resolve a path. Return every symlink on the way with its target, and the real path."""
    links: dict[str, str] = {}
    real, rest = "/", list(reversed(str(Path(path).absolute()).split("/")))
    hops = 0
    while rest:
        part = rest.pop()
        if part in ("", "."):
            continue
        if part == "..":
            real = os.path.dirname(real)  # noqa: PTH120  the parent of "/" is "/", as in the kernel
            continue
        step = str(Path(real, part))
        if hops == MAX_LINKS or not Path(step).is_symlink():
            real = step
            continue
        hops += 1
        target = links[step] = str(Path(step).readlink())
        real = "/" if target.startswith("/") else real
        rest += reversed(target.split("/"))
    return links, real


def _is_below(path: str, folders: Iterable[str]) -> bool:
    """Return whether the path is one of the folders or below one."""
    return any(path == folder or path.startswith(f"{folder.rstrip('/')}/") for folder in folders)


def _topmost(paths: Iterable[str]) -> tuple[str, ...]:
    found: list[str] = []
    for path in sorted(set(paths)):
        if not _is_below(path, found):
            found.append(path)
    return tuple(found)


# -- bubblewrap ------------------------------------------------------------------------------------

PROBE_LIMIT_S = 10.0
START_TRIES = 4
SETUP_FAILED = 1
"""bubblewrap's exit code if it cannot set up the sandbox."""
ISOLATION = ("--unshare-pid", "--unshare-ipc", "--unshare-uts", "--cap-drop", "ALL")
SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
ROOT_CAN_WRITE = ("sys", "sysrq-trigger", "bus", "irq", "fs", "acpi", "scsi", "mtrr")
"""Parts of /proc that root can write without any capability, although they belong to the whole machine."""
INSTALL = "install the package bubblewrap"
NO_NAMESPACES = (
    "user namespaces seem to be off: allow them (sysctl kernel.unprivileged_userns_clone=1, or "
    "kernel.apparmor_restrict_unprivileged_userns=0; in a container, more privileges)"
)


def mount_vanished(stderr: str) -> bool:
    """Return whether bubblewrap failed because a mount of the host disappeared meanwhile; then a retry helps.

    bubblewrap copies the mounts of the host and remounts each one. A container that ends at this moment takes its
    overlay mount away.
    """
    return "Unable to apply mount flags" in stderr or "Unable to remount" in stderr


@dataclass(frozen=True, slots=True)
class Bubblewrap:
    """A bubblewrap that works."""

    program: str
    version: str

    def __str__(self) -> str:
        return f"{self.version} ({self.program})"

    def command(
        self, mounts: SandboxMounts, *, cwd: str, is_offline: bool, dies_with_parent: bool, status_fd: int
    ) -> list[str]:
        """Return what to put in front of a command. With `is_offline` it has only a loopback network of its own.

        Use `dies_with_parent` only in a thread that outlives the command: the kernel watches the thread.
        """
        return [
            self.program,
            *ISOLATION,
            *(("--unshare-net",) if is_offline else ()),
            *(("--die-with-parent",) if dies_with_parent else ()),
            *(("--json-status-fd", str(status_fd)) if status_fd >= 0 else ()),
            *_mount_options(mounts),
            *("--chdir", cwd),
        ]


@dataclass(frozen=True, slots=True)
class NoBubblewrap:
    """Why bubblewrap cannot be used, and how to change that."""

    reason: str
    hint: str = ""

    def __str__(self) -> str:
        return f"{self.reason}; {self.hint}" if self.hint else self.reason


def find_bubblewrap(environ: Mapping[str, str], *, is_offline: bool = False) -> Bubblewrap | NoBubblewrap:
    """Find bubblewrap and try it, once per process: where it is installed, it may still lack permissions."""
    if not sys.platform.startswith("linux"):
        return NoBubblewrap("bubblewrap exists only on Linux")
    program = shutil.which("bwrap", path=environ.get("PATH"))
    return _probe(program, is_offline) if program else NoBubblewrap("bubblewrap is not installed", INSTALL)


@functools.cache
def _probe(program: str, is_offline: bool) -> Bubblewrap | NoBubblewrap:
    network = ("--unshare-net",) if is_offline else ()
    command = [program, *ISOLATION, *network, *SYSTEM, *_proc_covers(), "--", program, "--version"]
    for _ in range(START_TRIES):
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROBE_LIMIT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return NoBubblewrap(f"bubblewrap does not answer within {PROBE_LIMIT_S:g} s ({program})")
        except OSError as error:
            return NoBubblewrap(f"bubblewrap cannot be started: {error.strerror} ({program})")
        if done.returncode == 0:
            return Bubblewrap(program, done.stdout.decode("utf-8", "replace").strip())
        stderr = done.stderr.decode("utf-8", "replace")
        if not mount_vanished(stderr):
            break
    lines = stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return NoBubblewrap(f"bubblewrap does not work here: {lines[-1]}", _advice(lines[-1]))


def _advice(message: str) -> str:
    if "nknown option" in message:
        return "install bubblewrap 0.5 or newer"
    words = ("namespace", "uid map", "Operation not permitted", "Permission denied")
    return NO_NAMESPACES if any(word in message for word in words) else ""


def _mount_options(mounts: SandboxMounts) -> list[str]:
    """Return the options in this order: hide folders, show paths inside them, make the hidden folders read-only."""
    options = [*SYSTEM, *_proc_covers()]
    for folder in mounts.hidden:
        options += ("--tmpfs", folder)
    temporary = os.path.realpath("/tmp")
    options += ("--bind", mounts.temporary, temporary) if mounts.temporary else ("--tmpfs", temporary)
    if not Path("/var/tmp").is_symlink():
        options += ("--tmpfs", "/var/tmp")
    for path in mounts.readable:
        options += ("--ro-bind", path, path)
    for link, target in mounts.links:
        options += ("--symlink", target, link)
    for folder in mounts.writable:
        options += ("--bind", folder, folder)
    for folder in mounts.hidden:
        options += ("--remount-ro", folder)
    return options


def _proc_covers() -> list[str]:
    if os.geteuid() != 0:
        return []
    found = [f"/proc/{name}" for name in ROOT_CAN_WRITE if Path("/proc", name).exists()]
    return [part for path in found for part in ("--ro-bind", path, path)]
