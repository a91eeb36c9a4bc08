"""What an engine can refuse, in words a user can act on. Translates; talks to nobody."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence

import requests
from docker.errors import APIError, DockerException, TLSParameterError

from watchtest.boxes.docker.engine_addresses import Address
from watchtest.errors import BY_ITSELF, BoxError, BoxGone, EngineError

WITHOUT_ENGINE = 'or run without a container: box.engine = "local" (`--engine local`)'


def explained_connection(error: BaseException, address: Address, ssh_said: str = "") -> EngineError:
    """Why no engine answers, from the deepest cause that docker-py wraps. `ssh_said` is what ssh complained of."""
    kind = {"docker": "Docker", "podman": "podman"}[address.expected]
    where = f"{address.url} ({address.found_by})"
    causes = list(_causes(error))
    if ssh_said:
        return EngineError(
            f"ssh reaches {address.url}, but no engine answers there: {ssh_said}",
            hint="`docker system dial-stdio` must work over there, by that user: install Docker's client, start the "
            f"engine, add the user to the `docker` group, {WITHOUT_ENGINE}",
        )
    if _has(causes, PermissionError):
        return EngineError(
            f"no permission to talk to the {kind} engine at {where}",
            hint=f"add yourself to the `docker` group and log in again, use a rootless engine, {WITHOUT_ENGINE}",
        )
    if _has(causes, FileNotFoundError, ConnectionRefusedError, socket.gaierror):
        start = (
            "`systemctl --user start podman.socket`" if kind == "podman" else "Docker Desktop, `systemctl start docker`"
        )
        return EngineError(
            f"no {kind} engine answers at {where}",
            hint=f"start it ({start}), set DOCKER_HOST, {WITHOUT_ENGINE}",
        )
    if _has(causes, TLSParameterError, ssl.SSLError) or "HTTPS" in str(error):
        return EngineError(
            f"no secure connection to the {kind} engine at {where}: {_one_line(error)}",
            hint="check DOCKER_TLS_VERIFY and the files ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH, or the "
            "certificates of the Docker context",
        )
    if _has(causes, TimeoutError, requests.exceptions.Timeout):
        return EngineError(
            f"the {kind} engine at {where} takes connections, but does not answer",
            hint=f"look at it, or restart it, {WITHOUT_ENGINE}",
        )
    return EngineError(
        f"the {kind} engine at {where} cannot be used: {_one_line(error)}",
        hint=f"check {address.found_by if address.is_named else 'DOCKER_HOST'}, {WITHOUT_ENGINE}",
    )


_PASSING = ("is not running", "is paused", "is already in progress", "marked for removal")


@contextlib.contextmanager
def explained_api(name: str) -> Iterator[None]:
    """Turn whatever docker-py raises into our own errors. `name` is the container's."""
    try:
        yield
    except APIError as error:
        text = _one_line(error.explanation or error)
        if error.status_code == 409 and "is already in use" in text:
            raise BoxError(
                f"the container name {name} is taken by a container that is not watchtest's",
                hint=f"rename or remove it: `docker rename {name} {name}-old`, `docker rm {name}`",
            ) from error
        if error.status_code == 404 or any(words in text for words in _PASSING):
            raise BoxGone(f"the box is gone or has stopped: {text}", hint=BY_ITSELF) from error
        if error.is_server_error():
            # An engine that is starting, stopping or in trouble answers with these; what it refuses for good is a 4xx.
            raise BoxGone(f"the engine could not do it: {text}", hint=BY_ITSELF) from error
        raise BoxError(f"the engine refused: {text}") from error
    except requests.exceptions.ConnectionError as error:
        raise EngineError(f"lost the container engine: {_one_line(error)}", hint=BY_ITSELF) from error
    except requests.exceptions.Timeout as error:
        raise EngineError("the container engine did not answer in time", hint=BY_ITSELF) from error
    except (DockerException, OSError) as error:
        raise EngineError(f"the container engine failed: {_one_line(error)}") from error


def _has(causes: Sequence[BaseException], *kinds: type[BaseException]) -> bool:
    return any(isinstance(cause, kinds) for cause in causes)


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and all it wraps: by `raise from`, by context, and by requests' habit of passing it as an argument."""
    waiting: list[BaseException] = [error]
    seen: set[int] = set()
    while waiting:
        current = waiting.pop()
        if id(current) in seen:
            continue
        seen.add(id(current))
        yield current
        inner = [current.__cause__, current.__context__, *current.args, getattr(current, "reason", None)]
        waiting += [cause for cause in inner if isinstance(cause, BaseException)]


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:400]
