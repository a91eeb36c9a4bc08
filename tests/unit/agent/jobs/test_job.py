"""A supervisor that a test has stopped continues; one that is stopped too often is killed. Uses real processes."""

from __future__ import annotations

import selectors
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from watchtest.agent.jobs import job, job_limits
from watchtest.agent.jobs.disk_watch import DiskWatch
from watchtest.agent.jobs.job import RunningJob
from watchtest.agent.jobs.job_process import JobPipes

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
ORDER = {"limit_s": 60, "silence_s": 60, "grace_s": 1}
STOPPED = """
import os, signal, sys
status = int(sys.argv[1])
os.write(status, b"%d\\n" % os.getpid())
for _ in range(int(sys.argv[2])):
    os.kill(os.getpid(), signal.SIGSTOP)
os.write(status, b'{"status": 0, "left": 0, "expired": false}')
"""


@pytest.mark.parametrize(
    ("stops", "exit_code", "reason"), [(2, 0, ""), (10**6, None, "the run keeps stopping its supervisor")]
)
def test_a_stopped_supervisor_is_continued_a_few_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stops: int, exit_code: int | None, reason: str
) -> None:
    monkeypatch.setattr(job, "REVIVE_EVERY_S", 0.05)
    monkeypatch.setattr(job_limits, "KILL_S", 0.1)
    pipes = JobPipes()
    status = pipes.job_ends.status
    command = [sys.executable, "-c", STOPPED, str(status), str(stops)]
    with subprocess.Popen(command, pass_fds=[status]) as supervisor, selectors.DefaultSelector() as selector:
        pipes.job_ends.close()
        disks = DiskWatch(str(tmp_path), [str(tmp_path)])
        running = RunningJob(1, ORDER, lambda *_: None, selector, pipes.agent_ends, None, disks, b"")
        deadline = time.monotonic() + 20
        while not running.is_over and time.monotonic() < deadline:
            for key, _ in selector.select(0.01):
                key.data(key.fd)
            running.tick()
        supervisor.kill()
        assert running.is_over
    end: dict[str, Any] = running.finish()
    assert (end["exit_code"], end["reason"], end["stopped"]) == (exit_code, reason, None)
