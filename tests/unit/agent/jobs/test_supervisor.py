"""A prestarted run may wait for any time, but its CPU time is limited. Uses real processes."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SCRIPT = """
import os, sys, time
from watchtest.agent.jobs import supervisor
supervisor._PRESTART_CPU_LIMIT_S = 0.2
supervisor._CHECK_WAITING_EVERY_S = 0.1
pid = os.fork()
if pid == 0:
    exec(sys.argv[3])
    os._exit(0)
supervisor.supervise(pid, int(sys.argv[1]), int(sys.argv[2]), 30.0, is_waiting=True)
"""


@pytest.mark.parametrize(("code", "has_expired"), [("while True: pass", True), ("time.sleep(1)", False)])
def test_one_that_works_instead_of_waiting_is_ended(code: str, has_expired: bool) -> None:
    control, commands = os.pipe()
    report, status = os.pipe()
    command = [sys.executable, "-c", SCRIPT, str(control), str(status), code]
    with subprocess.Popen(command, pass_fds=[control, status]) as process:
        os.close(status)
        with os.fdopen(report) as stream:
            said = json.loads(stream.read().partition("\n")[2])
        assert process.wait(20) == 0
    os.close(commands)
    os.close(control)
    assert said["expired"] is has_expired
