"""Where container engines listen: what the user named, then the usual places. Looks at names; connects to nothing.

The Docker context that is in use, as the `docker` program keeps it. Reads files; talks to no engine.

docker-py can do this too, but only for the environment of its own process, and fails on a file it cannot read.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from watchtest.errors import EngineError

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Certificates for an engine behind TLS: files, each "" where there is none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    is_verified: bool = True


@dataclass(frozen=True, slots=True)
class DockerContext:
    name: str
    host: str
    tls: TlsFiles | None
    is_from_environment: bool
    """Chosen by DOCKER_CONTEXT, not by `docker context use`."""


def current_context(environ: Mapping[str, str], home: Path) -> DockerContext | None:
    """The context that was chosen; None is the default one: this machine's own engine."""
    folder = Path(environ.get("DOCKER_CONFIG") or home / ".docker")
    chosen = environ.get("DOCKER_CONTEXT", "")
    name = chosen or str(_json(folder / "config.json").get("currentContext") or DEFAULT)
    if name == DEFAULT:
        return None
    identity = hashlib.sha256(name.encode()).hexdigest()
    endpoints = _json(folder / "contexts" / "meta" / identity / "meta.json").get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = endpoint.get("Host") if isinstance(endpoint, dict) else None
    if not isinstance(endpoint, dict) or not isinstance(host, str) or not host:
        where = "DOCKER_CONTEXT" if chosen else str(folder / "config.json")
        raise EngineError(
            f'the Docker context "{name}", which {where} names, is not there or names no engine',
            hint="`docker context ls` shows those that are; `docker context use default` goes back to this machine's",
        )
    tls = _tls(folder / "contexts" / "tls" / identity / "docker", is_verified=not endpoint.get("SkipTLSVerify"))
    return DockerContext(name, host, tls, bool(chosen))


def tls_of_environment(environ: Mapping[str, str], home: Path) -> TlsFiles | None:
    """What DOCKER_TLS_VERIFY and DOCKER_CERT_PATH ask for. They belong to DOCKER_HOST."""
    is_verified = bool(environ.get("DOCKER_TLS_VERIFY"))
    folder = environ.get("DOCKER_CERT_PATH")
    if not is_verified and not folder:
        return None
    at = Path(folder) if folder else home / ".docker"
    return TlsFiles(str(at / "ca.pem"), str(at / "cert.pem"), str(at / "key.pem"), is_verified)


def _tls(folder: Path, *, is_verified: bool) -> TlsFiles | None:
    if not folder.is_dir():
        return None
    found = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key") if (folder / f"{name}.pem").exists()}
    return TlsFiles(found.get("ca", ""), found.get("cert", ""), found.get("key", ""), is_verified)


def _json(file: Path) -> Mapping[str, Any]:
    """The object in a file; nothing where there is none that can be read: the `docker` program does so too."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


EngineKind = Literal["docker", "podman"]
EngineChoice = Literal["auto", "docker", "podman"]
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
    tls: TlsFiles | None = None
    identity: str = ""
    """The key file of an ssh:// address, where the environment names one."""


@dataclass(frozen=True, slots=True)
class SystemSockets:
    """Where this machine keeps what belongs to all of its users."""

    docker: str = "/var/run/docker.sock"
    podman: str = "/run/podman/podman.sock"


SYSTEM_SOCKETS = SystemSockets()


def addresses(
    environ: Mapping[str, str], wish: EngineChoice, machine: SystemSockets = SYSTEM_SOCKETS
) -> Iterator[Address]:
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


def _docker(environ: Mapping[str, str], home: Path, machine: SystemSockets) -> Iterator[Address]:
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


def _podman(environ: Mapping[str, str], home: Path, machine: SystemSockets) -> Iterator[Address]:
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
