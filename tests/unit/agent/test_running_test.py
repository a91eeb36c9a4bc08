"""The name of the running test outlives its process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from watchtest.agent import running_test
from watchtest.agent.rows import RowKind, RowWriter, TestRow
from watchtest.agent.running_test import RunningTest

KILLED = """
import os, signal, sys
from watchtest.agent.running_test import RunningTest
running = RunningTest(sys.argv[1])
running.note("test_a.py::test_a_long_name")
running.note("test_a.py::test_ü")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_name_is_there_after_its_process_was_killed(tmp_path: Path) -> None:
    file = str(tmp_path / "running")
    running_test.prepare(file)
    assert subprocess.run([sys.executable, "-c", KILLED, file], check=False, timeout=30).returncode == -9
    assert running_test.read(file) == "test_a.py::test_ü"
    assert running_test.read(file) == "test_a.py::test_ü", "the agent that has read it may be lost, too"
    running_test.remove(file)
    assert running_test.read(file) == ""


def test_a_test_that_has_ended_is_not_running(tmp_path: Path) -> None:
    file = str(tmp_path / "running")
    running_test.prepare(file)
    running = RunningTest(file)
    running.note("x" * 10_000)
    running.note("")
    assert running_test.read(file) == ""


def test_a_file_that_a_test_has_removed_or_emptied_is_no_problem(tmp_path: Path) -> None:
    file = tmp_path / "running"
    RunningTest(str(file)).note("test_a.py::test_a")
    file.touch()
    RunningTest(str(file)).note("test_a.py::test_a")
    assert running_test.read(str(file)) == ""


@pytest.mark.parametrize("reader_dies", [False, True])
def test_after_a_job_that_never_ended_a_name_stays_until_the_result_of_its_test_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reader_dies: bool
) -> None:
    monkeypatch.setattr(running_test, "READ_LIMIT_S", 0.5)
    file = str(tmp_path / "running")
    running_test.prepare(file)
    running_test.prepare(file)
    reading, writing = os.pipe()
    writer = RowWriter(writing, file)
    seen = []

    def read_late() -> None:
        time.sleep(0.1)
        seen.append(running_test.read(file))
        os.close(reading) if reader_dies else os.read(reading, 10_000)

    reader = threading.Thread(target=read_late)
    reader.start()
    writer.start("test_a.py::test_kills")
    writer.end(TestRow(k=RowKind.TEST, test="test_a.py::test_kills", outcome="passed", duration_s=0.1))
    reader.join()
    assert seen == ["test_a.py::test_kills"]
    assert running_test.read(file) == ("test_a.py::test_kills" if reader_dies else "")
