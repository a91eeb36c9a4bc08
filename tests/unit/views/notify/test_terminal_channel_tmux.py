"""A real tmux passes the sequence on to the terminal around it if allowed, and otherwise only the bell."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.tmux

LIMIT_S = 30.0
PROGRAM = """
import asyncio, os, sys
from watchtest.core.model import Lane, Verdict
from watchtest.views.notify.notifications import Notification, NotificationKind
from watchtest.views.notify.terminal_channel import TerminalMethod
from watchtest.views.notify.terminal_channel import TerminalAccess, TerminalChannel

def write(text):
    sys.stdout.write(text)
    sys.stdout.flush()

channel = TerminalChannel(TerminalAccess(write), os.environ, "/shop", TerminalMethod.OSC9)
notice = Notification(NotificationKind.RED, "shop: 1 test failed", ("test_x",), Lane.SAVE, Verdict.FAILED)
asyncio.run(channel.deliver(notice))
print("told", channel.support.method.value, flush=True)
sys.stdin.read()
"""


def seen_around_tmux(passthrough: str, *needles: bytes) -> bytes:
    """Return what a terminal receives from a program in a tmux inside it, once it has received all `needles`."""
    with tempfile.TemporaryDirectory(prefix="wt-tmux-") as folder:
        config, program = Path(folder, "conf"), Path(folder, "program.py")
        config.write_text(f"set -g allow-passthrough {passthrough}\nset -g bell-action any\n")
        program.write_text(PROGRAM)
        tmux = ["tmux", "-S", f"{folder}/socket", "-f", str(config)]
        environ = {"PATH": os.environ["PATH"], "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", "HOME": folder}
        ours, theirs = pty.openpty()
        command = [*tmux, "new-session", "-x", "80", "-y", "10", sys.executable, str(program)]
        client = subprocess.Popen(
            command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
        os.close(theirs)
        seen = b""
        try:
            deadline = time.monotonic() + LIMIT_S
            while not all(needle in seen for needle in needles):
                assert time.monotonic() < deadline, seen
                if select.select([ours], [], [], 0.1)[0]:
                    seen += os.read(ours, 65536)
            return seen
        finally:
            subprocess.run([*tmux, "kill-server"], env=environ, timeout=LIMIT_S, check=False, capture_output=True)
            client.kill()
            client.wait(LIMIT_S)
            os.close(ours)


def test_where_tmux_lets_it_pass_the_terminal_gets_the_sequence() -> None:
    seen = seen_around_tmux("on", b"told osc9", b"\a")
    assert b"\x1b]9;watchtest: shop: 1 test failed: test_x\x1b\\" in seen


def test_where_tmux_lets_nothing_pass_the_terminal_gets_the_bell() -> None:
    seen = seen_around_tmux("off", b"told bell", b"\a")
    assert b"]9;" not in seen
