"""There is one watcher per workspace, whatever happens to the lock file."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from watchtest.errors import WorkspaceError
from watchtest.workspace.lock import WatcherLock


def test_a_second_watcher_is_refused(tmp_path: Path) -> None:
    with WatcherLock(tmp_path / ".watchtest"), pytest.raises(WorkspaceError, match="is already watched"):
        WatcherLock(tmp_path / ".watchtest").__enter__()


def test_a_dead_watcher_leaves_no_lock(tmp_path: Path) -> None:
    script = "import os, sys; from pathlib import Path; from watchtest.workspace.lock import WatcherLock\n"
    script += "WatcherLock(Path(sys.argv[1])).__enter__(); os.kill(os.getpid(), 9)"
    subprocess.run([sys.executable, "-c", script, str(tmp_path / ".watchtest")], timeout=30)
    with WatcherLock(tmp_path / ".watchtest"):
        pass


def test_a_lock_file_that_was_removed_is_taken_again(tmp_path: Path) -> None:
    with WatcherLock(tmp_path / ".watchtest") as lock:
        shutil.rmtree(tmp_path / ".watchtest")
        lock.keep()
        with pytest.raises(WorkspaceError, match="is already watched"):
            WatcherLock(tmp_path / ".watchtest").__enter__()


def test_a_watcher_that_lost_its_lock_to_another_stops(tmp_path: Path) -> None:
    with WatcherLock(tmp_path / ".watchtest") as first:
        shutil.rmtree(tmp_path / ".watchtest")
        with WatcherLock(tmp_path / ".watchtest"), pytest.raises(WorkspaceError, match="is already watched"):
            first.keep()


def test_a_workspace_that_is_gone_is_not_made_again(tmp_path: Path) -> None:
    workspace = tmp_path / "project"
    workspace.mkdir()
    with WatcherLock(workspace / ".watchtest") as lock:
        shutil.rmtree(workspace)
        lock.keep()
        assert not workspace.exists()
