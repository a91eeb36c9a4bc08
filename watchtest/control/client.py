"""The client that commands use to send requests to the watcher. Standard library only; one connection per request."""

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
"""Longer than the server ever takes to answer."""
ANSWER_LIMIT = 16 * 1024 * 1024

Document = dict[str, Any]


class WatcherUnreachable(ControlError):
    """No watcher listens on the control socket."""


class RequestRefused(UsageError):
    """The watcher refused the request; `reason` is the code of the refusal."""

    def __init__(self, reason: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ControlClient:
    """Sends requests to the watcher that listens on the first of these sockets."""

    paths: Sequence[Path]
    timeout_s: float = TIMEOUT_S

    def get(self, path: str) -> Document:
        return self._request("GET", path, None)

    def post(self, path: str, body: Mapping[str, object] | None = None) -> Document:
        return self._request("POST", path, body)

    def _request(self, method: str, path: str, body: Mapping[str, object] | None) -> Document:
        connection = http.client.HTTPConnection("localhost", timeout=self.timeout_s)
        connection.sock = self._connect()
        try:
            headers = {"Content-Type": "application/json", "Connection": "close"} if body is not None else {}
            connection.request(method, path, None if body is None else json.dumps(body).encode(), headers)
            response = connection.getresponse()
            status, content = response.status, response.read(ANSWER_LIMIT + 1)
        except TimeoutError as error:
            raise ControlError(
                f"the watcher did not answer within {self.timeout_s:g} s", hint="see `watchtest status`"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise ControlError(f"the watcher closed the connection before it answered ({_text(error)})") from error
        finally:
            connection.close()
        return _parse(status, content)

    def _connect(self) -> socket.socket:
        last: OSError | None = None
        for path in self.paths:
            if not is_private(path.parent):
                continue  # another user may be listening there
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            connection.settimeout(self.timeout_s)
            try:
                connection.connect(str(path))
            except OSError as error:
                connection.close()
                last = error
            else:
                return connection
        raise WatcherUnreachable(f"no watcher listens on the control socket ({_text(last) if last else 'no socket'})")


def _parse(status: int, content: bytes) -> Document:
    document: object = None
    if len(content) <= ANSWER_LIMIT:
        try:
            document = json.loads(content)
        except (ValueError, RecursionError):
            pass  # reported below
    if not isinstance(document, dict):
        hint = "restart the watcher; it may be of another version"
        raise ControlError(f"the watcher's answer is invalid (status {status})", hint=hint)
    if status < 400:
        return document
    message, hint = str(document.get("message", f"status {status}")), str(document.get("hint", ""))
    if status >= 500:
        raise ControlError(message, hint=hint)
    raise RequestRefused(str(document.get("code", "")), message, hint=hint)


def _text(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
