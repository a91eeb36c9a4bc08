"""The agent's loop when files are closed, or processes cannot be started, while it polls."""

from __future__ import annotations

import os
import selectors
import sys
from pathlib import Path
from typing import Any

import pytest

from watchtest.agent.main import ready_keys
from watchtest.agent.warm.zygote_link import ZygoteLink

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the agent lives in a box")


def test_a_number_that_has_come_to_mean_another_file_is_not_read() -> None:
    """Reading it anyway would block the agent until something is written there."""
    pipes = [os.pipe() for _ in range(2)]
    with selectors.DefaultSelector() as selector:
        for ours, theirs in pipes:
            os.write(theirs, b"x")
            selector.register(ours, selectors.EVENT_READ)
        seen = []
        for key in ready_keys(selector, 0):
            seen.append(key.fd)
            (other,) = {ours for ours, _ in pipes} - {key.fd}
            selector.unregister(other)
            os.close(other)
            fresh = os.pipe()
            assert other in fresh
            selector.register(other, selectors.EVENT_READ)
    for fd in {*fresh, *(theirs for _, theirs in pipes), *seen}:
        os.close(fd)
    assert len(seen) == 1


def test_a_warm_process_that_cannot_be_started_leaves_runs_cold_and_the_agent_alive(tmp_path: Path) -> None:
    link = ZygoteLink(str(tmp_path / "gone"), str(tmp_path), str(tmp_path / "lock"), b"")
    options: dict[str, Any] = {"python": sys.executable, "args": [], "tests": None, "order": []}
    order = {"pytest": options, "root": str(tmp_path), "cwd": str(tmp_path), "env": {}}
    for _ in range(20):
        link.prepare(order, [])
    assert link.fds == []
    assert link.fork(order, 1.0) == "the warm process cannot be started: No such file or directory"
