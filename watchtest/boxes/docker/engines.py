"""Finding a container engine and connecting to it. `find_engine` is all that others need."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import docker
from docker.errors import DockerException
from docker.tls import TLSConfig
from docker.transport import UnixHTTPAdapter

from watchtest.boxes.docker.engine_addresses import (
    SYSTEM_SOCKETS,
    Address,
    EngineChoice,
    EngineKind,
    SystemSockets,
    TlsFiles,
    addresses,
)
from watchtest.boxes.docker.engine_errors import explained_connection
from watchtest.boxes.docker.ssh_relay import SshRelay
from watchtest.errors import EngineError

API_LIMIT_S = 60
FIRST_ANSWER_LIMIT_S = 10
"""An engine that stalls must not hold up the search for one that answers."""
PODMAN = "Podman Engine"
PODMAN_GREETING = "Libpod-Api-Version"
SOCKET_SCHEME = "http+docker://"
UNIX = "unix://"
NAMES = {"docker": "Docker", "podman": "podman"}
VARIABLES = {"docker": ("DOCKER_HOST",), "podman": ("CONTAINER_HOST",), "auto": ("DOCKER_HOST", "CONTAINER_HOST")}


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that has answered. Its client is for one thread at a time; close it when done."""

    client: docker.APIClient
    kind: EngineKind
    address: Address
    version: str
    api: str
    skipped: tuple[str, ...] = ()
    """What was tried before it, and why that did not serve."""
    relay: SshRelay | None = None

    def describe(self) -> tuple[str, ...]:
        """The engine in lines for people."""
        name = NAMES[self.kind]
        return (f"{name} {self.version} (API {self.api}) at {self.address.url}, found by {self.address.found_by}",)

    def close(self) -> None:
        self.client.close()
        if self.relay is not None:
            self.relay.close()


def find_engine(
    environ: Mapping[str, str], wish: EngineChoice = "auto", machine: SystemSockets = SYSTEM_SOCKETS
) -> Engine:
    """The first engine that answers. One that the user named must; of the usual places, the next is tried."""
    misses: list[EngineError] = []
    for address in addresses(environ, wish, machine):
        try:
            engine = connect(address)
        except EngineError as error:
            if address.is_named:
                raise
            misses.append(error)
            continue
        if wish == "podman" and engine.kind != "podman":
            engine.close()
            continue
        return replace(engine, skipped=tuple(miss.message for miss in misses))
    if misses:
        raise misses[0]
    raise EngineError(
        f"no {'Docker or podman' if wish == 'auto' else NAMES[wish]} engine answers: none listens where one usually "
        f"does, and {' and '.join(VARIABLES[wish])} name{'s' if len(VARIABLES[wish]) == 1 else ''} none",
        hint=_how_to_start(wish),
    )


def connect(address: Address, limit_s: float = FIRST_ANSWER_LIMIT_S) -> Engine:
    """The engine at an address, within a time limit; an EngineError that says why not, and what to do."""
    relay = SshRelay(address.url, address.identity) if address.url.startswith("ssh://") else None
    client = None
    try:
        if relay is None:
            _knock(address.url, limit_s)
        client = _Client(base_url=relay.url if relay else address.url, timeout=limit_s, tls=_tls(address.tls))
        if relay is not None:
            _share_connections(client, relay.url)
        kind, version = client.identity()
    except (DockerException, OSError, ValueError) as error:
        said = relay.stderr_tail() if relay else ""
        if client is not None:
            client.close()
        if relay is not None:
            relay.close()
        raise explained_connection(error, address, said) from error
    client.timeout = API_LIMIT_S
    return Engine(client, kind, address, version, str(client.api_version), relay=relay)


def _knock(url: str, limit_s: float) -> None:
    """Whether anybody listens on a socket of this machine. docker-py would leave a file open where nobody does."""
    if url.startswith(UNIX) and hasattr(socket, "AF_UNIX"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knocking:
            knocking.settimeout(limit_s)
            knocking.connect(f"/{url.removeprefix(UNIX).lstrip('/')}")


class _Client(docker.APIClient):  # type: ignore[misc]  # docker-py ships no types
    """Learns what it talks to from the answer to a ping: podman's full answer asks the package manager each time.

    Trusts the certificate that was given for the engine. requests alone would prefer REQUESTS_CA_BUNDLE to it.
    """

    greeting: Mapping[str, str] = MappingProxyType({})

    def _retrieve_server_version(self) -> str:
        """Asked by docker-py while it sets itself up."""
        answer = self._get(self._url("/_ping", versioned_api=False))
        if answer.ok and "Api-Version" in answer.headers:
            self.greeting = answer.headers
            return str(answer.headers["Api-Version"])
        return str(super()._retrieve_server_version())

    def identity(self) -> tuple[EngineKind, str]:
        """Which engine it is, and its version."""
        product, _, version = self.greeting.get("Server", "").partition(" ")[0].partition("/")
        if PODMAN_GREETING in self.greeting:
            return "podman", str(self.greeting[PODMAN_GREETING])
        if product == "Docker" and version:
            return "docker", version
        told = self.version()
        components = {str(part.get("Name")) for part in told.get("Components") or ()}
        return "podman" if PODMAN in components else "docker", str(told.get("Version", "?"))

    def merge_environment_settings(self, url: str, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        return super().merge_environment_settings(url, proxies, stream, self.verify if verify is None else verify, cert)


class _OnePool(UnixHTTPAdapter):  # type: ignore[misc]  # docker-py ships no types
    """docker-py keeps a connection open for every URL it was ever asked for; by ssh, each is a login over there."""

    def get_connection(self, url: str, proxies: object = None) -> Any:
        return super().get_connection(SOCKET_SCHEME, proxies)


def _share_connections(client: docker.APIClient, url: str) -> None:
    earlier = client.get_adapter(SOCKET_SCHEME)
    client.mount(SOCKET_SCHEME, _OnePool(f"http+{url}", API_LIMIT_S))
    earlier.close()


def _tls(wish: TlsFiles | None) -> TLSConfig | bool:
    if wish is None:
        return False
    own = (wish.certificate, wish.key) if wish.certificate and wish.key else None
    return TLSConfig(client_cert=own, ca_cert=wish.ca or None, verify=wish.is_verified)


def _how_to_start(wish: EngineChoice) -> str:
    podman = "start podman's (`systemctl --user start podman.socket`, `podman machine start`)"
    if wish == "podman":
        return f"{podman}, or name one in CONTAINER_HOST"
    docker_only = "start Docker (Docker Desktop, `systemctl start docker`)"
    local = 'run without a container: box.engine = "local" (`--engine local`)'
    return f"{docker_only}, {podman + ', ' if wish == 'auto' else ''}name one in DOCKER_HOST, or {local}"
