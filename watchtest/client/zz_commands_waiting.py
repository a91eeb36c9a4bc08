"""`watchtest status --wait`: the watcher looks at its source now, and is asked until it has judged what it found.

Not "until it is idle": a save of a moment ago may not have reached it yet. The look is a change like any other, which
leaves `pending` only when a run that contained it has ended: the verdict is of the code as it was at the call or later.
"""

from __future__ import annotations

import argparse
import sys
import time
from typing import Any

from watchtest.client.watcher import START_LIMIT_S, Watcher
from watchtest.control.client import TIMEOUT_S
from watchtest.core.text import one_line
from watchtest.errors import ControlError

POLL_S = 0.03
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
    lane, pause_s, told = rest["lane"], POLL_S, ""
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
