"""Whether a service is ready: somebody answers on a port, a URL or by a command. Each look is a process of its own.

So no look can hold up the steward, which has no threads that a fork would break. A look ends by itself in time.
"""

from __future__ import annotations

import math
import os
import signal
import socket
from typing import Any, Callable, Dict, List, Optional, Tuple

from .supervised_process import Supervised, fork, shed

LOOK_LIMIT_S = 2.0
COMMAND_LIMIT_S = 10.0
LOCAL_HOSTS = ("127.0.0.1", "::1")
ANSWER_LIMIT = 1000

Check = Dict[str, Any]


class Look:
    """One look by a function that says why not; "" means that all is well."""

    def __init__(self, why_not: Callable[[], str], limit_s: float = LOOK_LIMIT_S) -> None:
        self._read, write = os.pipe()
        self._answer = b""
        self.is_over = False
        self.pid = fork([self._read, write])
        if self.pid == 0:
            try:
                shed([write])
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                signal.alarm(math.ceil(limit_s))
                os.write(write, b"!" + why_not()[:ANSWER_LIMIT].encode("utf-8", "replace"))
            finally:
                os._exit(0)
        os.close(write)

    @property
    def fds(self) -> List[int]:
        return [] if self.is_over else [self._read]

    def read(self, fd: int) -> None:
        piece = os.read(fd, ANSWER_LIMIT)
        self._answer += piece
        if not piece:
            self.is_over = True
            os.close(self._read)

    @property
    def why_not(self) -> str:
        if not self._answer.startswith(b"!"):
            return "no answer in time"
        return self._answer[1:].decode("utf-8", "replace")

    def abandon(self) -> None:
        """It is left to its own limit: by its pid somebody else might be hit by now."""
        if not self.is_over:
            os.close(self._read)
            self.is_over = True


class CommandLook:
    """One look by a shell command: its exit code says it, its last line why not."""

    def __init__(self, order: Dict[str, Any], lock: str) -> None:
        self._process = Supervised(order, lock, COMMAND_LIMIT_S)
        self._said = b""
        self._is_abandoned = False
        self.pid = self._process.supervisor

    @property
    def fds(self) -> List[int]:
        return self._process.fds

    @property
    def is_over(self) -> bool:
        return self._is_abandoned or self._process.is_over

    def read(self, fd: int) -> None:
        self._said = (self._said + self._process.read(fd))[-ANSWER_LIMIT:]

    @property
    def why_not(self) -> str:
        self._said = (self._said + self._process.close())[-ANSWER_LIMIT:]
        if self._process.exit_code == 0:
            return ""
        lines = self._said.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return "the ready command {}{}".format(self._process.end, ": " + last[:200] if last else "")

    def abandon(self) -> None:
        """Letting go of its pipe ends it."""
        if not self.is_over:
            self._process.close()
            self._is_abandoned = True


def look_for(check: Check, order: Dict[str, Any], lock: str) -> Any:
    """A look at a service with this check; `order` is what the service itself was started with."""
    if "command" in check:
        command = dict(order, argv=["/bin/sh", "-c", str(check["command"])])
        return CommandLook(command, lock)
    if "http" in check:
        return Look(lambda: _http(str(check["http"])))
    return Look(lambda: _tcp(int(check["tcp"])))


def look_for_others(check: Optional[Check]) -> Optional[Look]:
    """Whether somebody else serves the port before we start; nothing to look at where no port of this box is named."""
    if not check or "command" in check:
        return None
    hosts, port = (LOCAL_HOSTS, int(check["tcp"])) if "tcp" in check else _address(str(check["http"]))
    if not all(_is_local(host) for host in hosts):
        return None
    return Look(lambda: "" if _tcp(port, hosts) else "port {} is taken: another process answers on it".format(port))


def _tcp(port: int, hosts: Tuple[str, ...] = LOCAL_HOSTS) -> str:
    why = ""
    for host in hosts:
        try:
            socket.create_connection((host, port), timeout=LOOK_LIMIT_S / 2).close()
            return ""
        except OSError as error:
            # Of the two usual addresses the first tells more: many boxes have no IPv6 at all.
            why = why or "nothing answers on port {} ({})".format(port, error.strerror or error)
    return why


def _http(url: str) -> str:
    """Any answer below 400 is ready; where it redirects to is not looked at, and no certificate is checked."""
    import http.client
    import ssl
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    hosts, port = _address(url)
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(hosts[0], port, timeout=LOOK_LIMIT_S, context=context)
    else:
        connection = http.client.HTTPConnection(hosts[0], port, timeout=LOOK_LIMIT_S)
    try:
        connection.request("GET", (parts.path or "/") + ("?" + parts.query if parts.query else ""))
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        return "{} does not answer ({})".format(url, getattr(error, "strerror", None) or error or type(error).__name__)
    return "" if status < 400 else "{} answers {}".format(url, status)


def _address(url: str) -> Tuple[Tuple[str, ...], int]:
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    return (parts.hostname or "localhost",), parts.port or (443 if parts.scheme == "https" else 80)


def _is_local(host: str) -> bool:
    return host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.")
