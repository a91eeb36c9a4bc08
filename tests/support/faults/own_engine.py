"""A Docker engine for a single test, which may stop, kill and restart it. Linux and root only.

All of it is in one folder with a short path (paths of unix sockets are limited). The next test session removes what a
killed one left behind: a folder whose lock is not held has no owner.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from engine import daemon
from engine.images import PYTHON_313, RECIPE_LABEL, RECIPES
from engine.main import cache_folder
from engine.process import OwnProcess, children_of
from engine.wire import Engine

PREFIX = "watchtest-engine-"
SYSTEM_FOLDERS = "/usr/local/sbin:/usr/sbin:/sbin"


class OwnEngine:
    """Runs while entered, with the test image loaded; afterwards none of its processes, mounts or folders is left."""

    def __init__(self) -> None:
        _clear_away_the_ownerless()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _locked(self.folder)
        self._place = daemon.Place(self.folder, self.folder)

    @property
    def host(self) -> str:
        """Its address in the format of DOCKER_HOST."""
        return self._place.host

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def is_up(self) -> bool:
        return Engine(self.host).absence() is None

    def __enter__(self) -> Self:
        # dockerd and iptables are in folders that an ordinary PATH may lack.
        os.environ["PATH"] = f"{os.environ.get('PATH', os.defpath)}:{SYSTEM_FOLDERS}"
        try:
            self.start()
            (recipe,) = (recipe for recipe in RECIPES if recipe.tag == PYTHON_313)
            tarball = recipe.tarball(cache_folder(os.environ))
            Engine(self.host).import_image(tarball, recipe.tag, {RECIPE_LABEL: recipe.digest})
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        _remove(self.folder)
        self._lock.close()

    def start(self) -> None:
        daemon.start(self._place, lambda _line: None)

    def stop(self) -> None:
        """Stop the engine. Its containers stop with it and are kept."""
        family = daemon.started(self._place)
        daemon.stop(self._place)
        _reap([own.pid for own in family])

    def crash(self) -> None:
        """Kill dockerd without warning; the shims of its containers survive until the next dockerd finds them."""
        for own in daemon.started(self._place):
            os.kill(own.pid, signal.SIGKILL)
        self.stop()

    def log(self) -> str:
        """Return the end of the current dockerd's log."""
        lines = self._place.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "level=info" not in line][-20:])


def _reap(pids: list[int]) -> None:
    """Collect dockerd, which is our child process; `engine.daemon` does not wait for it."""
    for pid in pids:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            continue  # containerd is dockerd's child


def _locked(folder: Path) -> IO[bytes]:
    lock = (folder / "owner").open("wb")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise
    return lock


def _clear_away_the_ownerless() -> None:
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        try:
            lock = _locked(folder)
        except (BlockingIOError, FileNotFoundError):
            continue  # it belongs to another test, or was just removed
        with lock:
            daemon.stop(daemon.Place(folder, folder))
            _remove(folder)


def _remove(folder: Path) -> None:
    for pid in _pids_of(folder):
        # A shim survived a crash of its engine. First kill what runs in it, which would outlive the shim.
        for name, member in (*children_of(pid), ("shim", pid)):
            own = OwnProcess.of(name, member)
            if own is not None:
                own.end(patience_s=2)
    for point in mounts_in(folder):
        subprocess.run(["umount", "--lazy", point], check=True, timeout=10)
    shutil.rmtree(folder)


def _pids_of(folder: Path) -> list[int]:
    """Return the processes of this engine, identified by program and by a path that only they use."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            program, line = (process / "comm").read_text(), (process / "cmdline").read_bytes()
            if program.startswith(("dockerd", "containerd")) and f"{folder}/".encode() in line:
                found.append(int(process.name))
        except OSError:
            continue  # ended while we looked
    return found


def mounts_in(folder: Path) -> list[str]:
    """Return the mounts below a folder, deepest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), key=len, reverse=True)
