"""The Docker context that is in use, as the `docker` program keeps it. Reads files; talks to no engine.

docker-py can do this too, but only for the environment of its own process, and fails on a file it cannot read.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchtest.errors import EngineError

DEFAULT = "default"


@dataclass(frozen=True, slots=True)
class Tls:
    """Certificates for an engine behind TLS: files, each "" where there is none."""

    ca: str = ""
    certificate: str = ""
    key: str = ""
    is_verified: bool = True


@dataclass(frozen=True, slots=True)
class Context:
    name: str
    host: str
    tls: Tls | None
    is_from_environment: bool
    """Chosen by DOCKER_CONTEXT, not by `docker context use`."""


def current_context(environ: Mapping[str, str], home: Path) -> Context | None:
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
    return Context(name, host, tls, bool(chosen))


def tls_of_environment(environ: Mapping[str, str], home: Path) -> Tls | None:
    """What DOCKER_TLS_VERIFY and DOCKER_CERT_PATH ask for. They belong to DOCKER_HOST."""
    is_verified = bool(environ.get("DOCKER_TLS_VERIFY"))
    folder = environ.get("DOCKER_CERT_PATH")
    if not is_verified and not folder:
        return None
    at = Path(folder) if folder else home / ".docker"
    return Tls(str(at / "ca.pem"), str(at / "cert.pem"), str(at / "key.pem"), is_verified)


def _tls(folder: Path, *, is_verified: bool) -> Tls | None:
    if not folder.is_dir():
        return None
    found = {name: str(folder / f"{name}.pem") for name in ("ca", "cert", "key") if (folder / f"{name}.pem").exists()}
    return Tls(found.get("ca", ""), found.get("cert", ""), found.get("key", ""), is_verified)


def _json(file: Path) -> Mapping[str, Any]:
    """The object in a file; nothing where there is none that can be read: the `docker` program does so too."""
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return content if isinstance(content, dict) else {}
