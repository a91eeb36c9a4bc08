"""Who may speak with the watcher, asked before a request is read any further. Knows no route.

On the unix socket the system lets nobody in but the user; there, a request that a web page could have sent is refused.
On TCP anybody on this machine can connect, and a web page can make a browser do so: a request must name this very
address as its host (or a page could reach us under a name of its own), come from no other origin, and carry the token.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

from watchtest.control.api.requests import Refusal

Headers = Sequence[tuple[bytes, bytes]]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

REQUESTS_LIMIT = 500
"""Requests at a time, those that listen included."""


@dataclass(frozen=True, slots=True)
class Door:
    """What is asked of a request: no hosts, any; no token, none."""

    hosts: frozenset[str] = frozenset()
    token: str = ""

    def refusal(self, headers: Headers) -> Refusal | None:
        if self.hosts:
            named = _values(headers, b"host")
            if len(named) != 1 or named[0].lower() not in self.hosts:
                return Refusal(403, "foreign_host", "the request is meant for another host", self._hint())
        origins = _values(headers, b"origin")
        if any(origin not in {f"http://{host}" for host in self.hosts} for origin in origins):
            return Refusal(403, "foreign_origin", "requests of web pages are not served")
        if self.token and not self._is_right(_values(headers, b"authorization")):
            hint = "`watchtest api token` tells it: send it as `Authorization: Bearer TOKEN`"
            return Refusal(401, "no_token", "the token is missing or wrong", hint)
        return None

    def _hint(self) -> str:
        return f"address it as {', '.join(sorted(self.hosts))}"

    def _is_right(self, given: Sequence[str]) -> bool:
        if len(given) != 1:
            return False
        scheme, _, word = given[0].partition(" ")
        is_same = hmac.compare_digest(word.strip().encode("utf-8", "replace"), self.token.encode())
        return is_same and scheme.lower() == "bearer"


def loopback_door(port: int, token: str) -> Door:
    names = ("127.0.0.1", "localhost", "[::1]")
    bare = names if port == 80 else ()  # what browsers and curl leave out
    return Door(frozenset({*(f"{name}:{port}" for name in names), *bare}), token)


class Guard:
    """Stands before an application."""

    def __init__(self, application: Application, door: Door, requests_limit: int = REQUESTS_LIMIT) -> None:
        self._application = application
        self._door = door
        self._requests_limit = requests_limit
        self._requests = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        refusal = self._door.refusal(scope["headers"])
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
    """Without a look at its body: the connection is closed behind it."""
    body = json.dumps({"code": refusal.code, "message": refusal.message, "hint": refusal.hint}).encode()
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
