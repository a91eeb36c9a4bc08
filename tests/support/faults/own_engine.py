"""A Docker engine for one test alone, so that it may be stopped, killed and started again. Linux and root only.

All of it lies in one short folder (a unix socket's path has little room). What a killed test run left behind is found
and cleared away by the next one: a folder whose lock nobody holds has no owner.
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
    """Up while entered, with the image of the tests; afterwards no process, mount or folder of it is left."""

    def __init__(self) -> None:
        _clear_away_the_ownerless()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX))
        self._lock = _locked(self.folder)
        self._place = daemon.Place(self.folder, self.folder)

    @property
    def host(self) -> str:
        """In the words of DOCKER_HOST."""
        return self._place.host

    @property
    def socket(self) -> Path:
        return self.folder / "docker.sock"

    @property
    def is_up(self) -> bool:
        return Engine(self.host).absence() is None

    def __enter__(self) -> Self:
        # dockerd and iptables lie in folders that an ordinary PATH may leave out.
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
        """Its containers stop with it, and stay."""
        family = daemon.started(self._place)
        daemon.stop(self._place)
        _reap([own.pid for own in family])

    def crash(self) -> None:
        """dockerd dies without a word; the shims of its containers live on until the next one finds them."""
        for own in daemon.started(self._place):
            os.kill(own.pid, signal.SIGKILL)
        self.stop()

    def log(self) -> str:
        """The end of what the present dockerd complained of."""
        lines = self._place.log.read_text(errors="replace").splitlines()
        return "\n".join([line for line in lines if "level=info" not in line][-20:])


def _reap(pids: list[int]) -> None:
    """A dockerd is our child, and `engine.daemon` leaves it to the end of the process to collect it."""
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
            continue  # another test's, or one that was just removed
        with lock:
            daemon.stop(daemon.Place(folder, folder))
            _remove(folder)


def _remove(folder: Path) -> None:
    for pid in _pids_of(folder):
        # A shim that outlived a crash of its engine; first what runs in it, which would outlive the shim.
        for name, member in (*children_of(pid), ("shim", pid)):
            own = OwnProcess.of(name, member)
            if own is not None:
                own.end(patience_s=2)
    for point in mounts_in(folder):
        subprocess.run(["umount", "--lazy", point], check=True, timeout=10)
    shutil.rmtree(folder)


def _pids_of(folder: Path) -> list[int]:
    """What belongs to its engine: by the program, and by a path that nobody else names."""
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
    """The deepest first."""
    points = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
    return sorted((point for point in points if point.startswith(f"{folder}/")), key=len, reverse=True)
