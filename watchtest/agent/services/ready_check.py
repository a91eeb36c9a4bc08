"""Checks whether a service is ready: a port accepts connections, a URL answers, or a command succeeds.

Each probe is a short-lived process with a time limit, so it never blocks the service manager, which has no threads
because it forks.
"""

from __future__ import annotations

import math
import os
import signal
import socket
from typing import Any, Callable, Dict, List, Optional, Tuple

from .service_process import ServiceProcess, detach_from_parent, fork

PROBE_LIMIT_S = 2.0
COMMAND_LIMIT_S = 10.0
LOCAL_HOSTS = ("127.0.0.1", "::1")
ANSWER_LIMIT = 1000

Check = Dict[str, Any]


class Probe:
    """A probe by a function that returns why the service is not ready, or "" if it is."""

    def __init__(self, why_not: Callable[[], str], limit_s: float = PROBE_LIMIT_S) -> None:
        self._read, write = os.pipe()
        self._answer = b""
        self.is_over = False
        self.pid = fork([self._read, write])
        if self.pid == 0:
            try:
                detach_from_parent([write])
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
        """Leave the process to its own time limit: its pid may belong to another process by now."""
        if not self.is_over:
            os.close(self._read)
            self.is_over = True


class CommandProbe:
    """A probe by a shell command: exit code 0 means ready, otherwise its last line says why not."""

    def __init__(self, order: Dict[str, Any], lock: str) -> None:
        self._process = ServiceProcess(order, lock, COMMAND_LIMIT_S)
        self._output = b""
        self._is_abandoned = False
        self.pid = self._process.supervisor_pid

    @property
    def fds(self) -> List[int]:
        return self._process.fds

    @property
    def is_over(self) -> bool:
        return self._is_abandoned or self._process.is_over

    def read(self, fd: int) -> None:
        self._output = (self._output + self._process.read(fd))[-ANSWER_LIMIT:]

    @property
    def why_not(self) -> str:
        self._output = (self._output + self._process.close())[-ANSWER_LIMIT:]
        if self._process.exit_code == 0:
            return ""
        lines = self._output.decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "")
        return "the ready command {}{}".format(self._process.end, ": " + last[:200] if last else "")

    def abandon(self) -> None:
        """Close its pipe, which ends it."""
        if not self.is_over:
            self._process.close()
            self._is_abandoned = True


def start_probe(definition: Dict[str, Any], lock: str) -> Any:
    """Start a probe for the ready check of this service."""
    check = definition["ready"]
    if "command" in check:
        return CommandProbe(dict(definition, argv=["/bin/sh", "-c", str(check["command"])]), lock)
    if "http" in check:
        return Probe(lambda: _http(str(check["http"])))
    return Probe(lambda: _tcp(int(check["tcp"])))


def start_port_probe(check: Optional[Check]) -> Optional[Probe]:
    """Start a probe that fails if another process already serves the port; None if the check names no local port."""
    if not check or "command" in check:
        return None
    hosts, port = (LOCAL_HOSTS, int(check["tcp"])) if "tcp" in check else _address(str(check["http"]))
    if not all(host in ("localhost", "::1", "0.0.0.0") or host.startswith("127.") for host in hosts):
        return None
    return Probe(lambda: "" if _tcp(port, hosts) else "port {} is in use by another process".format(port))


def _tcp(port: int, hosts: Tuple[str, ...] = LOCAL_HOSTS) -> str:
    why = ""
    for host in hosts:
        try:
            socket.create_connection((host, port), timeout=PROBE_LIMIT_S / 2).close()
            return ""
        except OSError as error:
            # The error of the first address is more useful: many boxes have no IPv6 at all.
            why = why or "nothing answers on port {} ({})".format(port, error.strerror or error)
    return why


def _http(url: str) -> str:
    """Return why the URL is not ready; a status below 400 is. Neither follows redirects nor checks certificates."""
    import http.client
    import ssl
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    hosts, port = _address(url)
    connection = http.client.HTTPConnection(hosts[0], port, timeout=PROBE_LIMIT_S)
    if parts.scheme == "https":
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(hosts[0], port, timeout=PROBE_LIMIT_S, context=context)
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
