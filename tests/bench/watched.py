"""Runs a watcher on a folder for the benchmarks and waits for its verdicts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

COMMIT = ("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "x")


def make_repository(root: Path) -> None:
    for command in (("init", "--quiet"), ("add", "-A"), COMMIT):
        subprocess.run(["git", *command], cwd=root, check=True, timeout=120)


def status_of(root: Path) -> dict[str, Any]:
    try:
        status: dict[str, Any] = json.loads((root / ".watchtest" / "status.json").read_bytes())
    except FileNotFoundError:
        return {}
    return status


def next_verdict(root: Path, tree_is_not: str | None, limit_s: float) -> tuple[str, str]:
    """Return tree and verdict of the first status about a tree other than the last one."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        status = status_of(root)
        tree = (status.get("code") or {}).get("tree")
        if tree and tree != tree_is_not and status["verdict"] not in ("unknown", None):
            return str(tree), str(status["verdict"])
        time.sleep(0.001)
    raise SystemExit(f"no verdict within {limit_s:g} s: {status_of(root)}")


@contextmanager
def watching(
    root: Path, engine: str, image: str, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    environ = {**os.environ, "WATCHTEST_NOTIFY_DESKTOP": "false", "WATCHTEST_BOX_IMAGE": image}
    environ |= {"WATCHTEST_CACHE_DIR": str(root.parent / "cache"), "WATCHTEST_STATE_DIR": str(root.parent / "state")}
    command = [sys.executable, "-m", "watchtest", "-C", str(root), "watch", "--plain", "--engine", engine]
    with (root.parent / "watcher.log").open("wb") as log:
        watcher = subprocess.Popen(command, env={**environ, **(env or {})}, stdout=log, stderr=log)
    try:
        yield watcher
    finally:
        watcher.terminate()
        watcher.wait(30)
        if engine == "docker":
            from watchtest.boxes.inventory import remove_boxes

            remove_boxes(str(root.resolve()), os.environ)
