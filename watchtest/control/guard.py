"""Access control, applied before a request is read any further. Knows no routes.

Only the user can open the unix socket; there, requests that a web page could have sent are refused. Every user and
process of this machine can connect to the TCP port, and a web page can make a browser do so. There, a request must name
our own address in its Host header (which prevents DNS rebinding), have no foreign Origin, and carry the token.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from watchtest.control.refusal import Refusal

Headers = Sequence[tuple[bytes, bytes]]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

REQUESTS_LIMIT = 500
"""Concurrent requests, including event streams."""


@dataclass(frozen=True, slots=True)
class AccessRules:
    """The hosts that a request may name (any if empty), and the token that it must carry (none if empty)."""

    hosts: frozenset[str] = frozenset()
    token: str = ""

    def refusal(self, headers: Headers) -> Refusal | None:
        if self.hosts:
            named = _values(headers, b"host")
            if len(named) != 1 or named[0].lower() not in self.hosts:
                hint = f"use {', '.join(sorted(self.hosts))}"
                return Refusal(403, "foreign_host", "the Host header names another host", hint)
        origins = _values(headers, b"origin")
        if any(origin not in {f"http://{host}" for host in self.hosts} for origin in origins):
            return Refusal(403, "foreign_origin", "requests from web pages are not allowed")
        if self.token and not self._has_token(_values(headers, b"authorization")):
            hint = "send `Authorization: Bearer TOKEN`; `watchtest api token` prints the token"
            return Refusal(401, "no_token", "the token is missing or wrong", hint)
        return None

    def _has_token(self, given: Sequence[str]) -> bool:
        if len(given) != 1:
            return False
        scheme, _, token = given[0].partition(" ")
        is_same = hmac.compare_digest(token.strip().encode("utf-8", "replace"), self.token.encode())
        return is_same and scheme.lower() == "bearer"


def loopback_access(port: int, token: str) -> AccessRules:
    names = ("127.0.0.1", "localhost", "[::1]")
    bare = names if port == 80 else ()  # clients omit the default port
    return AccessRules(frozenset({*(f"{name}:{port}" for name in names), *bare}), token)


class Guard:
    """Wraps an application and refuses requests that break the rules, and more than it can serve at a time."""

    def __init__(self, application: Application, access: AccessRules, requests_limit: int = REQUESTS_LIMIT) -> None:
        self._application = application
        self._access = access
        self._requests_limit = requests_limit
        self._requests = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        refusal = self._access.refusal(scope["headers"])
        if refusal is None and self._requests >= self._requests_limit:
            refusal = Refusal(503, "too_many", f"{self._requests} requests are being served", "try again in a moment")
        if refusal is not None:
            await _refuse(refusal, send)
            return
        self._requests += 1
        try:
            await self._application(scope, receive, send)
        finally:
            self._requests -= 1


async def _refuse(refusal: Refusal, send: Send) -> None:
    """Answer without reading the body, and close the connection."""
    body = json.dumps(refusal.document()).encode()
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"connection", b"close"),
    ]
    if refusal.status == 401:
        headers.append((b"www-authenticate", b"Bearer"))
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _values(headers: Headers, name: bytes) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key == name]
