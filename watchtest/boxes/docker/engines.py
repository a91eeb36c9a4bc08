"""Find a container engine and connect to it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from types import MappingProxyType
from typing import Any

import docker
from docker.errors import DockerException
from docker.tls import TLSConfig
from docker.transport import UnixHTTPAdapter

from watchtest.boxes.docker.engine_addresses import ENGINE_NAMES, Address, EngineChoice, EngineKind, addresses
from watchtest.boxes.docker.engine_errors import connection_error
from watchtest.boxes.docker.ssh_relay import SshRelay
from watchtest.errors import EngineError, NoEngine

API_LIMIT_S = 60
FIRST_ANSWER_LIMIT_S = 10
"""An engine that hangs must not delay the search for one that answers."""
PODMAN = "Podman Engine"
PODMAN_GREETING = "Libpod-Api-Version"
SOCKET_SCHEME = "http+docker://"
UNIX = "unix://"
VARIABLES = {"docker": ("DOCKER_HOST",), "podman": ("CONTAINER_HOST",), "auto": ("DOCKER_HOST", "CONTAINER_HOST")}


@dataclass(frozen=True, slots=True)
class Engine:
    """A connected engine. Only one thread at a time may use its client; close it when done."""

    client: docker.APIClient
    kind: EngineKind
    address: Address
    version: str
    api: str
    skipped: tuple[str, ...] = ()
    """Why each address that was tried before did not work."""
    relay: SshRelay | None = None

    def __str__(self) -> str:
        name = ENGINE_NAMES[self.kind]
        return f"{name} {self.version} (API {self.api}) at {self.address.url}, found by {self.address.found_by}"

    def close(self) -> None:
        self.client.close()
        if self.relay is not None:
            self.relay.close()


def find_engine(environ: Mapping[str, str], choice: EngineChoice = "auto") -> Engine:
    """Return the first engine that answers. An engine that the user named must answer; usual sockets are optional.

    Raises NoEngine only if the user named none.
    """
    failures: list[EngineError] = []
    for address in addresses(environ, choice):
        try:
            engine = connect(address)
        except EngineError as error:
            if address.is_named:
                raise
            failures.append(error)
            continue
        if choice == "podman" and engine.kind != "podman":
            engine.close()
            if address.is_named:
                raise EngineError(
                    f"the engine at {address.url} ({address.found_by}) is {ENGINE_NAMES[engine.kind]}, not podman",
                    hint="name podman's address there, or choose --engine docker",
                )
            continue
        return replace(engine, skipped=tuple(failure.message for failure in failures))
    if failures:
        raise NoEngine(failures[0].message, hint=failures[0].hint) from failures[0]
    name = "Docker or podman" if choice == "auto" else ENGINE_NAMES[choice]
    variables = VARIABLES[choice]
    raise NoEngine(
        f"no {name} engine answers: there is none at the usual sockets, and {' and '.join(variables)} "
        f"{'is' if len(variables) == 1 else 'are'} not set",
        hint=_how_to_start(choice),
    )


def connect(address: Address, limit_s: float = FIRST_ANSWER_LIMIT_S) -> Engine:
    """Connect to the engine at an address within a time limit, or raise an EngineError with a hint."""
    relay = SshRelay(address.url, address.identity) if address.url.startswith("ssh://") else None
    client = None
    try:
        if relay is None:
            _check_listener(address.url, limit_s)
        tls = TLSConfig(**address.tls) if address.tls else False
        client = _Client(base_url=relay.url if relay else address.url, timeout=limit_s, tls=tls)
        if relay is not None:
            earlier = client.get_adapter(SOCKET_SCHEME)
            client.mount(SOCKET_SCHEME, _OnePool(f"http+{relay.url}", API_LIMIT_S))
            earlier.close()
        kind, version = client.identity()
    except (DockerException, OSError, ValueError) as error:
        ssh_stderr = relay.stderr_tail() if relay else ""
        if client is not None:
            client.close()
        if relay is not None:
            relay.close()
        raise connection_error(error, address, ssh_stderr) from error
    client.timeout = API_LIMIT_S
    return Engine(client, kind, address, version, str(client.api_version), relay=relay)


def _check_listener(url: str, limit_s: float) -> None:
    """Raise if no process listens on a local socket. docker-py would leak a file descriptor then."""
    if url.startswith(UNIX) and hasattr(socket, "AF_UNIX"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(limit_s)
            probe.connect(f"/{url.removeprefix(UNIX).lstrip('/')}")


class _Client(docker.APIClient):  # type: ignore[misc]  # docker-py ships no types
    """Identifies the engine by its answer to a ping: for `version`, podman asks the package manager each time.

    Trusts the certificate that was given for the engine; requests would prefer REQUESTS_CA_BUNDLE.
    """

    greeting: Mapping[str, str] = MappingProxyType({})

    def _retrieve_server_version(self) -> str:
        """Return the API version; docker-py calls this in its constructor."""
        answer = self._get(self._url("/_ping", versioned_api=False))
        if answer.ok and "Api-Version" in answer.headers:
            self.greeting = answer.headers
            return str(answer.headers["Api-Version"])
        return str(super()._retrieve_server_version())

    def identity(self) -> tuple[EngineKind, str]:
        """Return the kind of the engine and its version."""
        product, _, version = self.greeting.get("Server", "").partition(" ")[0].partition("/")
        if PODMAN_GREETING in self.greeting:
            return "podman", str(self.greeting[PODMAN_GREETING])
        if product == "Docker" and version:
            return "docker", version
        answer = self.version()
        components = {str(part.get("Name")) for part in answer.get("Components") or ()}
        return "podman" if PODMAN in components else "docker", str(answer.get("Version", "?"))

    def merge_environment_settings(self, url: str, proxies: Any, stream: Any, verify: Any, cert: Any) -> Any:
        return super().merge_environment_settings(url, proxies, stream, self.verify if verify is None else verify, cert)


class _OnePool(UnixHTTPAdapter):  # type: ignore[misc]  # docker-py ships no types
    """Shares one connection pool. docker-py keeps a connection open per URL, and over ssh each one is a login."""

    def get_connection(self, url: str, proxies: object = None) -> Any:
        return super().get_connection(SOCKET_SCHEME, proxies)


def _how_to_start(choice: EngineChoice) -> str:
    podman = "start podman's (`systemctl --user start podman.socket`, `podman machine start`)"
    if choice == "podman":
        return f"{podman}, or name one in CONTAINER_HOST"
    docker_only = "start Docker (Docker Desktop, `systemctl start docker`)"
    local = 'run without a container: box.engine = "local" (`--engine local`)'
    return f"{docker_only}, {podman + ', ' if choice == 'auto' else ''}name one in DOCKER_HOST, or {local}"


def parse_time(text: str) -> float:
    """Return an engine's time as seconds since the epoch, 0 if it is invalid."""
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return 0.0
