"""Turn errors of docker-py into our own errors, with hints that help the user."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator, Sequence

import requests
from docker.errors import APIError, DockerException, TLSParameterError

from watchtest.boxes.docker.engine_addresses import ENGINE_NAMES, Address
from watchtest.errors import BY_ITSELF, BoxError, BoxGone, EngineError

WITHOUT_ENGINE = 'or run without a container: box.engine = "local" (`--engine local`)'


def connection_error(error: BaseException, address: Address, ssh_stderr: str = "") -> EngineError:
    """Explain why no engine answers, from the deepest cause that docker-py wraps, or from what ssh reported."""
    kind = ENGINE_NAMES[address.expected]
    where = f"{address.url} ({address.found_by})"
    causes = list(_causes(error))
    if ssh_stderr:
        message = f"ssh reaches {address.url}, but no engine answers there: {ssh_stderr}"
        hint = (
            "`docker system dial-stdio` must work there for that user: install Docker's client, start the engine, "
            f"add the user to the `docker` group, {WITHOUT_ENGINE}"
        )
    elif _has(causes, PermissionError):
        message = f"no permission to talk to the {kind} engine at {where}"
        hint = f"add yourself to the `docker` group and log in again, use a rootless engine, {WITHOUT_ENGINE}"
    elif _has(causes, FileNotFoundError, ConnectionRefusedError, socket.gaierror):
        message = f"no {kind} engine answers at {where}"
        docker, podman = "Docker Desktop, `systemctl start docker`", "`systemctl --user start podman.socket`"
        hint = f"start it ({podman if kind == 'podman' else docker}), set DOCKER_HOST, {WITHOUT_ENGINE}"
    elif _has(causes, TLSParameterError, ssl.SSLError) or "HTTPS" in str(error):
        message = f"no secure connection to the {kind} engine at {where}: {_one_line(error)}"
        hint = (
            "check DOCKER_TLS_VERIFY and the files ca.pem, cert.pem and key.pem in DOCKER_CERT_PATH, or the "
            "certificates of the Docker context"
        )
    elif _has(causes, TimeoutError, requests.exceptions.Timeout):
        message = f"the {kind} engine at {where} accepts connections, but does not answer"
        hint = f"check or restart it, {WITHOUT_ENGINE}"
    else:
        message = f"the {kind} engine at {where} cannot be used: {_one_line(error)}"
        hint = f"check {address.found_by if address.is_named else 'DOCKER_HOST'}, {WITHOUT_ENGINE}"
    return EngineError(message, hint=hint)


_TEMPORARY = ("is not running", "is paused", "is already in progress", "marked for removal")


@contextlib.contextmanager
def explained_api(name: str) -> Iterator[None]:
    """Turn any error of docker-py into one of ours. `name` is the name of the container."""
    try:
        yield
    except APIError as error:
        text = _one_line(error.explanation or error)
        if error.status_code == 409 and "is already in use" in text:
            raise BoxError(
                f"another container, which is not watchtest's, has the name {name}",
                hint=f"rename or remove it: `docker rename {name} {name}-old`, `docker rm {name}`",
            ) from error
        if error.status_code == 404 or any(words in text for words in _TEMPORARY):
            raise BoxGone(f"the box is gone or has stopped: {text}", hint=BY_ITSELF) from error
        if error.is_server_error():
            # An engine that is starting, stopping or overloaded answers with a 5xx; a final refusal is a 4xx.
            raise BoxGone(f"the engine failed: {text}", hint=BY_ITSELF) from error
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
    """Yield the error and all that it wraps: causes, contexts, and (in requests) arguments."""
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
