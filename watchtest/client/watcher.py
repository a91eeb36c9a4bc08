"""The running watcher of a workspace, as commands find it and send requests to it. Imports little, to be fast."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watchtest.client.status_file import is_watched
from watchtest.control.address import socket_paths
from watchtest.control.client import TIMEOUT_S, ControlClient, RequestRefused, WatcherUnreachable
from watchtest.core.text import one_line
from watchtest.errors import ControlError
from watchtest.workspace.folder import FOLDER, find_workspace
from watchtest.workspace.user_dirs import runtime_dirs

START_LIMIT_S = 5.0
"""How long to wait for a watcher that has just been started and does not listen yet."""
POLL_S = 0.05

Report = dict[str, Any]


class Watcher:
    """The watcher of the workspace that the arguments name. Every request raises ControlError if there is none."""

    def __init__(
        self, arguments: argparse.Namespace, *, timeout_s: float = TIMEOUT_S, start_limit_s: float = START_LIMIT_S
    ) -> None:
        self.folder = find_workspace(arguments.workspace)
        self._client = ControlClient(socket_paths(self.folder, runtime_dirs()), timeout_s)
        self._start_limit_s = start_limit_s

    def get(self, path: str) -> Report:
        return self._retry_while_starting(lambda: self._client.get(path))

    def post(self, path: str, body: dict[str, object] | None = None) -> Report:
        return self._retry_while_starting(lambda: self._client.post(path, body))

    def wait_for_end(
        self, run: str, limit_s: float | None, on_progress: Callable[[Report], None] = lambda _report: None
    ) -> Report | None:
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

    def _retry_while_starting(self, request: Callable[[], Report]) -> Report:
        deadline = time.monotonic() + self._start_limit_s
        while True:
            is_running = is_watched(self.folder)
            try:
                return request()
            except RequestRefused:
                raise
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


def from_workspace(test: str, workspace: Path) -> str:
    """Turn a file or test id relative to the current folder into one relative to the workspace."""
    file, separator, rest = test.partition("::")
    path = Path(os.path.normpath(Path.cwd() / file))
    if (path.exists() or file.startswith(".")) and path.is_relative_to(workspace):
        file = path.relative_to(workspace).as_posix()
    return f"{file}{separator}{rest}"


VERDICT_POLL_S = 0.03
LONGEST_POLL_S = 0.5
AT_WORK = ("starting", "syncing", "running")
LONG_START_S = 60.0
"""A watcher that has just been started may have to find an engine before it listens."""


def wait_for_verdict(arguments: argparse.Namespace) -> tuple[Report, bool]:
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
