"""Talks to an engine over its socket: ping it, look up an image, import a tarball. This needs no client program, which
Debian 13 packages separately from the engine."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, urlencode

from engine.command import EngineScriptError

DEFAULT_HOST = "unix:///var/run/docker.sock"
PING_TIMEOUT_S = 5.0
IMPORT_TIMEOUT_S = 180.0


class _SocketConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)


@dataclass(frozen=True, slots=True)
class Engine:
    """The address of an engine, in the format of DOCKER_HOST. `absence` tells whether it answers."""

    host: str

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Engine:
        return cls(environment.get("DOCKER_HOST") or DEFAULT_HOST)

    def absence(self) -> str | None:
        """Return why no engine answers here, or None if one does."""
        try:
            status, body = self._request("GET", "/_ping", timeout_s=PING_TIMEOUT_S)
        except EngineScriptError as error:
            return str(error)
        except OSError as error:
            return f"no engine answers at {self.host}: {error}"
        except http.client.HTTPException as error:
            return f"what listens at {self.host} is not a container engine: {error!r}"
        if status != 200:
            return f"the engine at {self.host} answers a ping with {status}: {_message(body)}"
        return None

    def version(self) -> str:
        status, body = self._request("GET", "/version", timeout_s=PING_TIMEOUT_S)
        if status != 200:
            raise EngineScriptError(f"the engine at {self.host} does not tell its version: {_message(body)}")
        return str(json.loads(body)["Version"])

    def image_labels(self, tag: str) -> dict[str, str] | None:
        """Return the labels of an image, or None if the engine does not have it."""
        path = f"/images/{quote(tag)}/json"
        status, body = self._request("GET", path, timeout_s=PING_TIMEOUT_S)
        if status == 404:
            return None
        if status != 200:
            raise EngineScriptError(f"the engine at {self.host} does not tell of {tag}: {_message(body)}")
        return json.loads(body)["Config"].get("Labels") or {}

    def import_image(self, tarball: Path, tag: str, labels: Mapping[str, str]) -> None:
        """Import a tarball, as `docker import` does."""
        changes = ['CMD ["/bin/bash"]', *(f"LABEL {key}={value}" for key, value in labels.items())]
        # Put the tag into the name, because podman 4 ignores the separate field.
        query = urlencode([("fromSrc", "-"), ("repo", tag), *(("changes", line) for line in changes)])
        with tarball.open("rb") as body:
            headers = {"Content-Type": "application/x-tar", "Content-Length": str(tarball.stat().st_size)}
            connection = self._connection(IMPORT_TIMEOUT_S)
            connection.blocksize = 1 << 20
            with closing(connection):
                connection.request("POST", f"/images/create?{query}", body=body, headers=headers)
                response = connection.getresponse()
                answer = response.read()
        # Once the import has begun the status is 200 in any case; failures come as a line of the response.
        if response.status != 200 or b'"error"' in answer:
            raise EngineScriptError(f"the engine at {self.host} refused {tag} ({tarball}): {_message(answer)}")

    def _request(self, method: str, path: str, *, timeout_s: float) -> tuple[int, bytes]:
        with closing(self._connection(timeout_s)) as connection:
            connection.request(method, path)
            response = connection.getresponse()
            return response.status, response.read()

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        scheme, _, rest = self.host.partition("://")
        if scheme == "unix":
            return _SocketConnection(rest, timeout_s)
        if scheme in ("tcp", "http"):
            return http.client.HTTPConnection(rest.rstrip("/"), timeout=timeout_s)
        raise EngineScriptError(
            f"DOCKER_HOST={self.host}: this script speaks unix:// and plain tcp:// only; "
            "forward the engine's socket and name it with unix://"
        )


def _message(body: bytes) -> str:
    return body.decode(errors="replace").strip() or "(no answer)"
