"""Starts an engine where none answers, installing it first on Debian, and stops only the one it started.

A record beside the images names what was started, so that a later `down` in another process can find it. A `Startable`
describes the program: dockerd or podman.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from engine.command import EngineScriptError, last_lines, run
from engine.process import OwnProcess, children_of
from engine.wire import DEFAULT_HOST, Engine

START_TIMEOUT_S = 60.0
STOP_PATIENCE_S = 60.0
APT_TIMEOUT_S = 400.0
POLL_S = 0.1

PROGRAMS = {"dockerd": "docker.io", "iptables": "iptables"}


class Startable(Protocol):
    """An engine that can be started, and where its files are."""

    @property
    def name(self) -> str:
        """The name of its program."""

    @property
    def host(self) -> str: ...

    @property
    def log(self) -> Path: ...

    @property
    def record(self) -> Path: ...

    @property
    def pid_files(self) -> tuple[Path, ...]: ...

    def prepare(self) -> None:
        """Make the folders and files it needs to start."""

    def command(self) -> list[str]: ...

    def environment(self) -> Mapping[str, str]: ...


@dataclass(frozen=True, slots=True)
class Place:
    """The paths of a started dockerd. `root` keeps all of it in one folder, apart from any other engine."""

    state: Path
    root: Path | None = None

    @property
    def name(self) -> str:
        return "dockerd"

    @property
    def host(self) -> str:
        return f"unix://{self.root / 'docker.sock'}" if self.root else DEFAULT_HOST

    @property
    def log(self) -> Path:
        return self.state / "dockerd.log"

    @property
    def record(self) -> Path:
        return self.state / "started.json"

    @property
    def pid_files(self) -> tuple[Path, ...]:
        """The files with the process ids of dockerd and of the containerd it starts."""
        containerd = Path("containerd", "containerd.pid")
        if self.root is None:
            return Path("/var/run/docker.pid"), Path("/var/run/docker") / containerd
        return self.root / "dockerd.pid", self.root / "exec" / containerd

    def prepare(self) -> None:
        if self.root:
            self.root.mkdir(parents=True, exist_ok=True)

    def environment(self) -> Mapping[str, str]:
        return {}

    def command(self) -> list[str]:
        if self.root is None:
            return ["dockerd", f"--host={self.host}"]
        # Use a separate network namespace: two engines would share docker0, and the second might even delete it.
        # Containers of such an engine have no network access.
        return [
            *("unshare", "--net", "dockerd"),
            f"--host={self.host}",
            f"--data-root={self.root / 'data'}",
            f"--exec-root={self.root / 'exec'}",
            f"--pidfile={self.pid_files[0]}",
        ]


def install(programs: dict[str, str], say: Callable[[str], None]) -> None:
    """Install the Debian packages of the programs that are missing."""
    packages = [package for program, package in programs.items() if not _is_installed(program)]
    if not packages:
        return
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise EngineScriptError(
            f"{', '.join(packages)} must be installed, which this script does only as root on Debian; "
            "install it by hand, or start an engine and name it in DOCKER_HOST"
        )
    began = time.monotonic()
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    apt = ("apt-get", "-o", "DPkg::Lock::Timeout=120", "-o", "Acquire::Retries=3")
    run((*apt, "update"), timeout_s=APT_TIMEOUT_S, environment=quiet)
    run(
        (*apt, "install", "--yes", "--no-install-recommends", *packages),
        timeout_s=APT_TIMEOUT_S,
        environment=quiet,
    )
    say(f"installed {', '.join(packages)} in {time.monotonic() - began:.1f} s")


def start(place: Startable, say: Callable[[str], None]) -> Engine:
    """Start the engine and wait until it answers; otherwise end it and show the end of its log."""
    if os.geteuid() != 0:
        raise EngineScriptError(
            f"no engine answers at {place.host}, and only root can start one; "
            "start Docker yourself, or name a reachable engine in DOCKER_HOST"
        )
    place.log.parent.mkdir(parents=True, exist_ok=True)
    place.prepare()
    began = time.monotonic()
    with place.log.open("wb") as log:
        # Use a separate session, so that Ctrl-C in a test session does not reach the engine.
        daemon = subprocess.Popen(
            place.command(),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd="/",  # a daemon outlives the folder that it was started in
            env={**os.environ, **place.environment()},
            start_new_session=True,
        )
    own = OwnProcess.of(place.name, daemon.pid)
    if own is not None:
        _write_record(place, [own])
    engine = Engine(place.host)
    try:
        _wait_for_answer(engine, daemon, place)
    except BaseException:
        # Whatever interrupted the wait, including Ctrl-C, leave no half-started engine behind.
        stop(place)
        raise
    _write_record(place, _family(place.name, daemon.pid))
    # The engine is meant to outlive this process, so it is never waited for; suppress Python's warning about that.
    daemon.returncode = 0
    say(f"started {place.name} (process {daemon.pid}) at {place.host} in {time.monotonic() - began:.1f} s")
    return engine


def stop(place: Startable) -> list[str]:
    """End the processes in the record if they are still the same ones, and report what happened to each."""
    lines = []
    for own in started(place):
        lines.append(own.end(patience_s=STOP_PATIENCE_S))
        # Killed engines leave these files behind, and the next ones refuse to start while the id is in use again.
        for pid_file in place.pid_files:
            if pid_file.exists() and pid_file.read_text().strip() == str(own.pid):
                pid_file.unlink()
    place.record.unlink(missing_ok=True)
    return lines


def started(place: Startable) -> list[OwnProcess]:
    try:
        text = place.record.read_text()
    except FileNotFoundError:
        return []
    try:
        return [OwnProcess(**fields) for fields in json.loads(text)]
    except (ValueError, TypeError) as error:
        raise EngineScriptError(
            f"{place.record} cannot be read ({error}); look for a {place.name} of ours by hand, then remove the file"
        ) from error


def _is_installed(program: str) -> bool:
    # The `sbin` folders are often missing from PATH, so `program` may also be the path of a file from the package.
    return Path(program).exists() or shutil.which(program) is not None


def _wait_for_answer(engine: Engine, daemon: subprocess.Popen[bytes], place: Startable) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while (absence := engine.absence()) is not None:
        if daemon.poll() is not None:
            why = f"`{place.name}` ended with {daemon.returncode}"
        elif time.monotonic() > deadline:
            why = f"`{place.name}` did not answer within {START_TIMEOUT_S:.0f} s ({absence})"
        else:
            time.sleep(POLL_S)
            continue
        raise EngineScriptError(f"{why}; the end of {place.log}:\n{last_lines(place.log.read_text())}")


def _family(name: str, pid: int) -> list[OwnProcess]:
    """List dockerd first, because it stops its containerd; containerd is listed in case dockerd could not."""
    members = [(name, pid), *(child for child in children_of(pid) if child[0] == "containerd")]
    return [own for name, member in members if (own := OwnProcess.of(name, member)) is not None]


def _write_record(place: Startable, processes: list[OwnProcess]) -> None:
    unfinished = place.record.with_suffix(".unfinished")
    unfinished.write_text(json.dumps([asdict(own) for own in processes], indent=1))
    unfinished.rename(place.record)
