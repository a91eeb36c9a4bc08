"""What a watcher costs while nothing happens: its share of one core, in processor time, with an idle box.

    python tests/bench/idle.py [--seconds S] [--lanes save|all] [--view plain|silent|dashboard]

Uses a tiny project in a repository, with all three lanes on and one box per lane. The watcher must stay below LIMIT.
"""

from __future__ import annotations

import argparse
import os
import pty
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tiny import descendants, environ, is_at_rest, make_project, processor_s, wait_until

LIMIT = 0.005
START_LIMIT_S = 180.0
CALM_S = 10.0
"""Lets the work after the last verdict finish: the second scan, saving the map, restarting the warm process."""
ALL_LANES = ("--trigger", "stage=all", "--trigger", "commit=all")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--lanes", choices=("save", "all"), default="all")
    parser.add_argument("--view", choices=("plain", "silent", "dashboard"), default="plain")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the watcher must not outlive us
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "project"
        root.mkdir()
        make_project(root)
        flags = [] if arguments.view == "dashboard" else [f"--{arguments.view}"]
        flags += ALL_LANES if arguments.lanes == "all" else ()
        with watcher(root, flags, has_terminal=arguments.view == "dashboard") as process:
            wait_until("all lanes at rest", lambda: is_at_rest(root), START_LIMIT_S)
            time.sleep(CALM_S)
            share, boxes = shares(process.pid, arguments.seconds)
    print(f"lanes: {arguments.lanes} · view: {arguments.view} · over {arguments.seconds:g} s of nothing")
    print(f"  watcher    {share:8.3%} of a core, limit {LIMIT:.1%}")
    print(f"  its boxes  {boxes:8.3%}")
    sys.exit(0 if share < LIMIT else 1)


def shares(pid: int, seconds: float) -> tuple[float, float]:
    children = descendants(pid)
    own, others, began = processor_s(pid), sum(map(processor_s, children)), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    if descendants(pid) != children:
        raise SystemExit("processes of the box came or went: the watcher was not at rest")
    return (processor_s(pid) - own) / took, (sum(map(processor_s, children)) - others) / took


@contextmanager
def watcher(root: Path, flags: list[str], *, has_terminal: bool) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-m", "watchtest", "-C", str(root), "watch", "--engine", "local", *flags]
    own = {"WATCHTEST_CACHE_DIR": str(root.parent / "cache"), "WATCHTEST_STATE_DIR": str(root.parent / "state")}
    surroundings = {**os.environ, **environ(root), **own, "WATCHTEST_NOTIFY_DESKTOP": "false", "TERM": "xterm-256color"}
    ours, theirs = pty.openpty()
    output = theirs if has_terminal else subprocess.DEVNULL
    process = subprocess.Popen(
        command, env=surroundings, stdin=theirs if has_terminal else subprocess.DEVNULL, stdout=output, stderr=output
    )
    os.close(theirs)
    threading.Thread(target=drain, args=(ours,), daemon=True).start()
    try:
        yield process
    finally:
        process.terminate()
        process.wait(30)


def drain(terminal: int) -> None:
    """Read the terminal, because a full buffer would block the watcher."""
    try:
        while os.read(terminal, 65536):
            pass
    except OSError:
        return  # the other end is closed


if __name__ == "__main__":
    main()
