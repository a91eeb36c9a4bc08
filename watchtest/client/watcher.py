"""The running watcher of a workspace, as commands find it and speak with it. Light, for they must be quick.

`watchtest status --wait`: the watcher looks at its source now, and is asked until it has judged what it found.

Not "until it is idle": a save of a moment ago may not have reached it yet. The look is a change like any other, which
leaves `pending` only when a run that contained it has ended: the verdict is of the code as it was at the call or later.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from watchtest.client.status_file import is_locked
from watchtest.control.address import socket_places
from watchtest.control.client import TIMEOUT_S, Client, Declined, NobodyListens
from watchtest.core.model import Lane
from watchtest.core.text import one_line
from watchtest.errors import ControlError
from watchtest.workspace.folder import FOLDER, find_workspace
from watchtest.workspace.user_dirs import runtime_dirs

START_LIMIT_S = 5.0
"""A watcher that has just been started listens a moment later."""
POLL_S = 0.05

Report = dict[str, Any]


def add_lane(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--lane", choices=[lane.value for lane in Lane], help=f"of this lane (default: {default})")


class Watcher:
    """The watcher of the workspace that the arguments name. ControlError where there is none."""

    def __init__(
        self, arguments: argparse.Namespace, *, timeout_s: float = TIMEOUT_S, start_limit_s: float = START_LIMIT_S
    ) -> None:
        self.folder = find_workspace(arguments.workspace or Path.cwd())
        self._client = Client(socket_places(self.folder, runtime_dirs()), timeout_s)
        self._start_limit_s = start_limit_s

    def get(self, path: str) -> Report:
        return self._spoken(lambda: self._client.get(path))

    def post(self, path: str, body: dict[str, object] | None = None) -> Report:
        return self._spoken(lambda: self._client.post(path, body))

    def end_of(self, run: str, limit_s: float | None, tell: Callable[[Report], None]) -> Report | None:
        """The report of a run that has ended; None: not within the limit. `tell` hears each look on the way."""
        deadline = None if limit_s is None else time.monotonic() + limit_s
        while True:
            try:
                report = self.get(f"/runs/{run}")
            except ControlError as error:
                raise ControlError(
                    f"nobody can tell any more how run {run} ends: {error.message}", hint=error.hint
                ) from error
            if report["ended"]:
                return report
            if deadline is not None and time.monotonic() >= deadline:
                return None
            tell(report)
            time.sleep(POLL_S)

    def _spoken(self, speak: Callable[[], Report]) -> Report:
        deadline = time.monotonic() + self._start_limit_s
        while True:
            is_watched = is_locked(self.folder / FOLDER / "lock")
            try:
                return speak()
            except Declined:
                raise
            except NobodyListens as error:
                if is_watched is not True:
                    raise ControlError(
                        f"no watcher runs on {self.folder}",
                        hint="start one with `watchtest watch` or `start`; `watch --once` runs the tests without one",
                    ) from error
                if time.monotonic() > deadline:
                    raise ControlError(
                        f"the watcher of {self.folder} takes no commands: {error.message}",
                        hint=f"`watch --once` takes none; else see {FOLDER}/watchtest.log",
                    ) from error
            time.sleep(POLL_S)


VERDICT_POLL_S = 0.03
LONGEST_POLL_S = 0.5
AT_WORK = ("starting", "syncing", "running")
LONG_START_S = 60.0
"""A watcher that has just been started may have an engine to ask before it listens."""


def settled(arguments: argparse.Namespace) -> tuple[dict[str, Any], bool]:
    """The status document once the lane has come to rest; or, not in time, as it is then."""
    limit_s: float | None = arguments.timeout
    deadline = None if limit_s is None else time.monotonic() + limit_s
    watcher = Watcher(
        arguments,
        timeout_s=TIMEOUT_S if limit_s is None else min(max(limit_s, 0.1), TIMEOUT_S),
        start_limit_s=LONG_START_S if limit_s is None else max(limit_s, START_LIMIT_S),
    )
    body: dict[str, object] = {"lane": arguments.lane} if arguments.lane else {}
    rest = watcher.post("/look", body)
    lane, pause_s, told = rest["lane"], VERDICT_POLL_S, ""
    while True:
        if rest["settled"]:
            document = watcher.get("/status")
            if document["lanes"][lane]["activity"] not in AT_WORK:
                return document, True
            # Something has changed since: it is the code as it is now, so that is waited for, too.
        if rest["waits_for"] and rest["waits_for"] != told:
            told = rest["waits_for"]
            print(f"watchtest: waits: {one_line(told)}", file=sys.stderr)
        if deadline is not None and time.monotonic() >= deadline:
            return watcher.get("/status"), False
        time.sleep(pause_s if deadline is None else min(pause_s, max(0.0, deadline - time.monotonic())))
        pause_s = min(pause_s * 1.2, LONGEST_POLL_S)
        try:
            rest = watcher.get(f"/look?lane={lane}")
        except ControlError as error:
            text = f"nobody can tell any more what becomes of the code as it is: {error.message}"
            raise ControlError(text, hint=error.hint) from error
