"""A command's end of the control socket. Standard library only, one connection a request, each with a time limit."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchtest.errors import ControlError, UsageError
from watchtest.workspace.user_dirs import is_private

TIMEOUT_S = 10.0
"""Longer than the server ever takes over an answer."""
ANSWER_LIMIT = 16 * 1024 * 1024

Document = dict[str, Any]


class NobodyListens(ControlError):
    """There is no socket, or nobody behind it."""


class Declined(UsageError):
    """The watcher understood, and does not do it: `reason` is its word for why."""

    def __init__(self, reason: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Client:
    """Speaks with whoever listens at the first of these places."""

    places: Sequence[Path]
    timeout_s: float = TIMEOUT_S

    def get(self, path: str) -> Document:
        return self._request("GET", path, None)

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Document:
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: Mapping[str, object] | None) -> Document:
        connection = _Connection(self._connected(), self.timeout_s)
        try:
            headers = {"Content-Type": "application/json", "Connection": "close"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            status, content = response.status, response.read(ANSWER_LIMIT + 1)
        except TimeoutError as error:
            raise ControlError(
                f"the watcher has not answered within {self.timeout_s:g} s", hint="look at `watchtest status`"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(f"the watcher left in the middle of an answer ({_said(error)})") from error
        finally:
            connection.close()
        return _understood(status, content)

    def _connected(self) -> socket.socket:
        last: OSError | None = None
        for place in self.places:
            if not is_private(place.parent):
                continue  # anybody might listen there
            connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connected.settimeout(self.timeout_s)
            try:
                connected.connect(str(place))
            except OSError as error:
                connected.close()
                last = error
            else:
                return connected
        raise NobodyListens(f"nobody listens on the control socket ({_said(last) if last else 'there is none'})")


class _Connection(http.client.HTTPConnection):
    """Over a socket that is connected already."""

    def __init__(self, connected: socket.socket, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self.sock = connected


def _understood(status: int, content: bytes) -> Document:
    document: object = None
    if len(content) <= ANSWER_LIMIT:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            pass  # told below, as everything that is no document
    if not isinstance(document, dict):
        raise ControlError(f"the watcher's answer cannot be understood (status {status})", hint="is it as old as this?")
    if status < 400:
        return document
    message, hint = str(document.get("message", f"status {status}")), str(document.get("hint", ""))
    if status >= 500:
        raise ControlError(message, hint=hint)
    raise Declined(str(document.get("code", "")), message, hint=hint)


def _said(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
