"""The running watcher of a workspace, as commands find it and speak with it: HTTP on its control socket.

Imports little, to be fast; each request has its own connection.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchtest.client.status_file import is_watched
from watchtest.control.address import socket_paths
from watchtest.core.text import one_line
from watchtest.errors import ControlError, UsageError
from watchtest.workspace.folder import FOLDER, find_workspace
from watchtest.workspace.user_dirs import is_private, runtime_dirs

TIMEOUT_S = 10.0
"""Longer than the server ever takes to answer."""
ANSWER_LIMIT = 16 * 1024 * 1024
START_LIMIT_S = 5.0
"""How long to wait for a watcher that has just been started and does not listen yet."""
LONG_START_S = 60.0
"""The same for `status --wait` without --timeout: the watcher may have to find an engine before it listens."""
POLL_S = 0.05
VERDICT_POLL_S = 0.03
LONGEST_POLL_S = 0.5
AT_WORK = ("starting", "syncing", "running")

Document = dict[str, Any]


class WatcherUnreachable(ControlError):
    """No watcher listens on the control socket."""


class RequestRefused(UsageError):
    """The watcher refused the request; `reason` is the code of the refusal."""

    def __init__(self, reason: str, message: str, *, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.reason = reason


class Watcher:
    """The watcher of the workspace that the arguments name. Every request raises ControlError if there is none."""

    def __init__(
        self, arguments: argparse.Namespace, *, timeout_s: float = TIMEOUT_S, start_limit_s: float = START_LIMIT_S
    ) -> None:
        self.folder = find_workspace(arguments.workspace)
        self._client = ControlClient(socket_paths(self.folder, runtime_dirs()), timeout_s)
        self._start_limit_s = start_limit_s

    def get(self, path: str) -> Document:
        return self._retry_while_starting(lambda: self._client.get(path))

    def post(self, path: str, body: dict[str, object] | None = None) -> Document:
        return self._retry_while_starting(lambda: self._client.post(path, body))

    def wait_for_end(
        self, run: str, limit_s: float | None, on_progress: Callable[[Document], None] = lambda _report: None
    ) -> Document | None:
        """Return the report of the run once it has ended, or None after the time limit."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            try:
                report = self.get(f"/runs/{run}")
            except ControlError as error:
                raise ControlError(f"lost track of run {run}: {error.message}", hint=error.hint) from error
            if report["ended"]:
                return report
            if deadline is not None and time.monotonic() >= deadline:
                return None
            on_progress(report)
            time.sleep(POLL_S)

    def _retry_while_starting(self, request: Callable[[], Document]) -> Document:
        deadline = time.monotonic() + self._start_limit_s
        while True:
            is_running = is_watched(self.folder)
            try:
                return request()
            except WatcherUnreachable as error:
                if not is_running:
                    raise ControlError(
                        f"no watcher is running on {self.folder}",
                        hint="start one with `watchtest` or `watchtest start`; `watchtest watch --once` needs none",
                    ) from error
                if time.monotonic() > deadline:
                    raise ControlError(
                        f"the watcher of {self.folder} does not accept commands: {error.message}",
                        hint=f"`watchtest watch --once` never does; otherwise see {FOLDER}/watchtest.log",
                    ) from error
            time.sleep(POLL_S)


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


def wait_for_verdict(arguments: argparse.Namespace) -> tuple[Document, bool]:
    """Return the status document with a verdict on the code as it is now, and whether there was one in time.

    Waiting until the watcher is idle would not do: it may not have noticed a save made a moment ago. So the watcher is
    told to look at the files. That counts as a change, which stays pending until a run that contained it has ended.
    """
    limit_s: float | None = arguments.timeout
    deadline = None if limit_s is None else time.monotonic() + limit_s
    watcher = Watcher(
        arguments,
        timeout_s=TIMEOUT_S if limit_s is None else min(max(limit_s, 0.1), TIMEOUT_S),
        start_limit_s=LONG_START_S if limit_s is None else max(limit_s, START_LIMIT_S),
    )
    rest = watcher.post("/look", {"lane": arguments.lane})
    lane, pause_s, reported = rest["lane"], VERDICT_POLL_S, ""
    while True:
        if rest["settled"]:
            document = watcher.get("/status")
            if document["lanes"][lane]["activity"] not in AT_WORK:
                return document, True
            # The files have changed again since, so wait for that verdict, too.
        if rest["waits_for"] and rest["waits_for"] != reported:
            reported = rest["waits_for"]
            print(f"watchtest: waiting: {one_line(reported)}", file=sys.stderr)
        if deadline is not None and time.monotonic() >= deadline:
            return watcher.get("/status"), False
        time.sleep(pause_s if deadline is None else min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(pause_s * 1.2, LONGEST_POLL_S)
        try:
            rest = watcher.get(f"/look?lane={lane}")
        except ControlError as error:
            raise ControlError(f"lost the watcher before its verdict: {error.message}", hint=error.hint) from error


def from_workspace(test: str, workspace: Path) -> str:
    """Turn a file or test id relative to the current folder into one relative to the workspace."""
    file, separator, rest = test.partition("::")
    path = Path(os.path.normpath(Path.cwd() / file))
    if (path.exists() or file.startswith(".")) and path.is_relative_to(workspace):
        file = path.relative_to(workspace).as_posix()
    return f"{file}{separator}{rest}"
