"""Find out where container engines listen: the address that the user named, or the usual sockets. Connects to nothing.

Also reads the current Docker context from the files of the `docker` program. docker-py can do this too, but only for
the environment of its own process, and it fails on an unreadable file.
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

EngineKind = Literal["docker", "podman"]
ENGINE_NAMES: Mapping[EngineKind, str] = {"docker": "Docker", "podman": "podman"}
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
DOCKER_SOCKET = "/var/run/docker.sock"
PODMAN_SOCKET = "/run/podman/podman.sock"
"""The sockets that all users of this machine share."""
DEFAULT_CONTEXT = "default"


@dataclass(frozen=True, slots=True)
class Address:
    """Where an engine may listen, and how we found the address."""

    url: str
    found_by: str
    expected: EngineKind
    is_named: bool = False
    """Whether the user named it: then no answer is an error, and no other address is tried."""
    tls: Mapping[str, Any] | None = None
    """The arguments of docker-py's TLSConfig; None for an engine without TLS."""
    identity: str = ""
    """The key file for an ssh:// address, if the environment names one."""


def current_context(environ: Mapping[str, str], home: Path) -> Address | None:
    """Return the address of the chosen Docker context; None if none is chosen: this machine's own engine."""
    folder = Path(environ.get("DOCKER_CONFIG") or home / ".docker")
    chosen = environ.get("DOCKER_CONTEXT", "")
    name = chosen or str(_json(folder / "config.json").get("currentContext") or DEFAULT_CONTEXT)
    if name == DEFAULT_CONTEXT:
        named = Address(f"unix://{DOCKER_SOCKET}", 'the context "default" (DOCKER_CONTEXT)', "docker", is_named=True)
        return named if chosen and os.name != "nt" else None
    identity = hashlib.sha256(name.encode()).hexdigest()
    endpoints = _json(folder / "contexts" / "meta" / identity / "meta.json").get("Endpoints")
    endpoint = endpoints.get("docker") if isinstance(endpoints, dict) else None
    host = endpoint.get("Host") if isinstance(endpoint, dict) else None
    if not isinstance(endpoint, dict) or not isinstance(host, str) or not host:
        where = "DOCKER_CONTEXT" if chosen else str(folder / "config.json")
        raise EngineError(
            f'the Docker context "{name}", set in {where}, does not exist or names no engine',
            hint="`docker context ls` lists them; `docker context use default` goes back to this machine's engine",
        )
    tls = _tls_of_context(
        folder / "contexts" / "tls" / identity / "docker", is_verified=not endpoint.get("SkipTLSVerify")
    )
    how = "DOCKER_CONTEXT" if chosen else "`docker context use`"
    return Address(host, f'the context "{name}" ({how})', "docker", is_named=True, tls=tls)


def tls_of_environment(environ: Mapping[str, str], home: Path) -> Mapping[str, Any] | None:
    """Return the files that DOCKER_TLS_VERIFY and DOCKER_CERT_PATH name. They apply to DOCKER_HOST."""
    is_verified = bool(environ.get("DOCKER_TLS_VERIFY"))
    folder = environ.get("DOCKER_CERT_PATH")
    if not is_verified and not folder:
        return None
    ca, certificate, key = (str(Path(folder or home / ".docker", f"{name}.pem")) for name in ("ca", "cert", "key"))
    return {"ca_cert": ca, "client_cert": (certificate, key), "verify": is_verified}


def _tls_of_context(folder: Path, *, is_verified: bool) -> Mapping[str, Any] | None:
    if not folder.is_dir():
        return None
    ca, certificate, key = (folder / f"{name}.pem" for name in ("ca", "cert", "key"))
    own = (str(certificate), str(key)) if certificate.exists() and key.exists() else None
    return {"ca_cert": str(ca) if ca.exists() else None, "client_cert": own, "verify": is_verified}


def _json(file: Path) -> Mapping[str, Any]:
    """Return the JSON object in a file; {} if it cannot be read, like the `docker` program."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}


def addresses(environ: Mapping[str, str], choice: EngineChoice) -> Iterator[Address]:
    """Yield every address to try, in order. Sockets that do not exist are left out."""
    home = Path(environ.get("HOME") or Path.home())
    is_docker_named = environ.get("DOCKER_HOST") or environ.get("DOCKER_CONTEXT")
    if choice == "auto" and environ.get("CONTAINER_HOST") and not is_docker_named:
        yield from _podman(environ, home)
        return
    if choice != "podman":
        yield from _docker(environ, home)
    if choice != "docker":
        yield from _podman(environ, home)
    if choice == "podman":
        # podman often serves Docker's socket.
        if host := environ.get("DOCKER_HOST"):
            yield Address(host, "DOCKER_HOST", "docker", tls=tls_of_environment(environ, home))
        yield from _sockets([DOCKER_SOCKET], "docker")


def _docker(environ: Mapping[str, str], home: Path) -> Iterator[Address]:
    if host := environ.get("DOCKER_HOST"):
        yield Address(host, "DOCKER_HOST", "docker", is_named=True, tls=tls_of_environment(environ, home))
        return
    context = current_context(environ, home)
    if context is not None:
        yield context
        return
    sockets = [DOCKER_SOCKET, str(_runtime(environ) / "docker.sock")]
    yield from _sockets([*sockets, *(str(home / name) for name in DOCKER_IN_HOME)], "docker")
    if os.name == "nt":
        yield Address("npipe:////./pipe/docker_engine", USUAL, "docker")


def _podman(environ: Mapping[str, str], home: Path) -> Iterator[Address]:
    if host := environ.get("CONTAINER_HOST"):
        identity = environ.get("CONTAINER_SSHKEY", "")
        yield Address(host, "CONTAINER_HOST", "podman", is_named=True, identity=identity)
        return
    yield from _sockets([str(_runtime(environ) / "podman" / "podman.sock"), PODMAN_SOCKET], "podman")
    if sys.platform == "darwin":
        temporary = Path(environ.get("TMPDIR") or "/tmp") / "podman"
        machines = [*temporary.glob("*-api.sock"), *(home / PODMAN_MACHINE).glob("**/podman.sock")]
        yield from _sockets([str(socket) for socket in sorted(machines)], "podman")
    if os.name == "nt":
        yield Address("npipe:////./pipe/podman-machine-default", USUAL, "podman")


def _runtime(environ: Mapping[str, str]) -> Path:
    """Return the folder of this user's own sockets."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    return Path(environ.get("XDG_RUNTIME_DIR") or f"/run/user/{user}")


def _sockets(paths: list[str], expected: EngineKind) -> Iterator[Address]:
    for path in paths:
        if os.path.exists(path):  # noqa: PTH110  Path.exists raises where a parent may not be read, before Python 3.12
            yield Address(f"unix://{path}", USUAL, expected)
