"""What a Docker engine can refuse, in words a user can act on. Translates; talks to nobody."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import requests
from docker.errors import APIError, DockerException

from watchtest.errors import BoxError, BoxGone, EngineError

WITHOUT_ENGINE = 'or run without a container: box.engine = "local" (`--engine local`)'


def explained_connection(error: BaseException, host: str) -> EngineError:
    """Why no engine answers, from the deepest cause that docker-py wraps."""
    where = host or "the default socket"
    for cause in _causes(error):
        if isinstance(cause, PermissionError):
            return EngineError(
                f"no permission to talk to the Docker engine at {where}",
                hint=f"add yourself to the `docker` group and log in again, use a rootless engine, {WITHOUT_ENGINE}",
            )
    for cause in _causes(error):
        if isinstance(cause, FileNotFoundError | ConnectionRefusedError):
            return EngineError(
                f"no Docker engine answers at {where}",
                hint=f"start it (Docker Desktop, `systemctl start docker`), set DOCKER_HOST, {WITHOUT_ENGINE}",
            )
    return EngineError(
        f"the Docker engine at {where} cannot be used: {_one_line(error)}", hint=f"check DOCKER_HOST, {WITHOUT_ENGINE}"
    )


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
        if error.status_code == 404 or "is not running" in text or "is paused" in text:
            raise BoxGone(f"the box is gone or has stopped: {text}", hint="it is tried again by itself") from error
        raise BoxError(f"the engine refused: {text}") from error
    except requests.exceptions.ConnectionError as error:
        raise EngineError(f"lost the Docker engine: {_one_line(error)}", hint="it is tried again by itself") from error
    except requests.exceptions.Timeout as error:
        raise EngineError("the Docker engine did not answer in time", hint="it is tried again by itself") from error
    except (DockerException, OSError) as error:
        raise EngineError(f"the Docker engine failed: {_one_line(error)}") from error


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
