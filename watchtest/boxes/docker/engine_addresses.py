"""Where container engines listen: what the user named, then the usual places. Looks at names; connects to nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watchtest.boxes.docker.zz_boxes_docker_contexts import Tls, current_context, tls_of_environment

EngineKind = Literal["docker", "podman"]
EngineWish = Literal["auto", "docker", "podman"]
USUAL = "its usual socket"
DOCKER_IN_HOME = (
    ".docker/run/docker.sock",
    ".docker/desktop/docker.sock",
    ".colima/default/docker.sock",
    ".config/colima/default/docker.sock",
    ".orbstack/run/docker.sock",
    ".rd/docker.sock",
)
PODMAN_MACHINE = ".local/share/containers/podman/machine"


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine may be, and how we came to look there."""

    url: str
    found_by: str
    expected: EngineKind
    is_named: bool = False
    """By the user: one that does not answer is an error, and no other is tried in its place."""
    tls: Tls | None = None
    identity: str = ""
    """The key file of an ssh:// address, where the environment names one."""


@dataclass(frozen=True, slots=True)
class Machine:
    """Where this machine keeps what belongs to all of its users."""

    docker: str = "/var/run/docker.sock"
    podman: str = "/run/podman/podman.sock"


THIS_MACHINE = Machine()


def addresses(environ: Mapping[str, str], wish: EngineWish, machine: Machine = THIS_MACHINE) -> Iterator[Address]:
    """Every place to try, in order. Sockets that do not exist are left out."""
    home = Path(environ.get("HOME") or Path.home())
    if wish != "podman":
        yield from _docker(environ, home, machine)
    if wish != "docker":
        yield from _podman(environ, home, machine)
    if wish == "podman":
        # podman likes to stand in for Docker.
        if host := environ.get("DOCKER_HOST"):
            yield Address(host, "DOCKER_HOST", "docker", tls=tls_of_environment(environ, home))
        yield from _sockets([machine.docker], "docker")


def _docker(environ: Mapping[str, str], home: Path, machine: Machine) -> Iterator[Address]:
    if host := environ.get("DOCKER_HOST"):
        yield Address(host, "DOCKER_HOST", "docker", is_named=True, tls=tls_of_environment(environ, home))
        return
    context = current_context(environ, home)
    if context is not None:
        how = "DOCKER_CONTEXT" if context.is_from_environment else "`docker context use`"
        yield Address(context.host, f'the context "{context.name}" ({how})', "docker", is_named=True, tls=context.tls)
        return
    sockets = [machine.docker, str(_runtime(environ) / "docker.sock")]
    yield from _sockets([*sockets, *(str(home / name) for name in DOCKER_IN_HOME)], "docker")
    yield from _pipes("docker_engine", "docker")


def _podman(environ: Mapping[str, str], home: Path, machine: Machine) -> Iterator[Address]:
    if host := environ.get("CONTAINER_HOST"):
        identity = environ.get("CONTAINER_SSHKEY", "")
        yield Address(host, "CONTAINER_HOST", "podman", is_named=True, identity=identity)
        return
    yield from _sockets([str(_runtime(environ) / "podman" / "podman.sock"), machine.podman], "podman")
    if sys.platform == "darwin":
        temporary = Path(environ.get("TMPDIR") or "/tmp") / "podman"
        machines = [*temporary.glob("*-api.sock"), *(home / PODMAN_MACHINE).glob("**/podman.sock")]
        yield from _sockets([str(socket) for socket in sorted(machines)], "podman")
    yield from _pipes("podman-machine-default", "podman")


def _runtime(environ: Mapping[str, str]) -> Path:
    """The folder of this user's own sockets."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")


def _sockets(paths: list[str], expected: EngineKind) -> Iterator[Address]:
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110  Path.exists raises where a parent may not be read, before Python 3.12
            yield Address(f"unix://{path}", USUAL, expected)


def _pipes(name: str, expected: EngineKind) -> tuple[Address, ...]:
    is_windows = os.name == "nt"
    return (Address(f"npipe:////./pipe/{name}", USUAL, expected),) if is_windows else ()
