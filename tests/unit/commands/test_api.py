"""`watchtest api …` without a watcher, as a user sees it; tests/e2e/test_control.py covers it with one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from watchtest.control.address import ensure_token, token_file


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".git").mkdir(parents=True)
    return folder


def api(workspace: Path, *words: str) -> subprocess.CompletedProcess[str]:
    around = {"WATCHTEST_STATE_DIR": str(workspace.parent / "state"), "WATCHTEST_RUNTIME_DIR": str(workspace.parent)}
    return subprocess.run(
        [sys.executable, "-m", "watchtest", "-C", str(workspace), "api", *words],
        env={**os.environ, **around},
        capture_output=True,
        encoding="utf-8",
        timeout=30,
        check=False,
    )


def test_the_document_needs_no_watcher(workspace: Path) -> None:
    done = api(workspace, "openapi")
    document = json.loads(done.stdout)
    assert (done.returncode, document["openapi"], "/runs/{id}/results" in document["paths"]) == (0, "3.1.0", True)


def test_the_token_is_told_once_there_is_one(workspace: Path) -> None:
    done = api(workspace, "token")
    assert (done.returncode, done.stdout) == (4, "")
    assert "holds no token yet" in done.stderr
    assert "api.listen" in done.stderr
    file = token_file(workspace.parent / "state", workspace)
    token = ensure_token(file)
    assert api(workspace, "token").stdout == f"{token}\n"
    assert api(workspace, "token", "--file").stdout == f"{file}\n"


@pytest.mark.parametrize("action", ["url", "show"])
def test_without_a_watcher_it_says_so(workspace: Path, action: str) -> None:
    done = api(workspace, action)
    assert (done.returncode, done.stdout) == (4, "")
    assert f"no watcher is running on {workspace}" in done.stderr
