"""A tiny project in a repository, a watcher for it on the local box, and measurements of its processes."""

from __future__ import annotations

import json
import os
import shlex
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path

from watched import make_repository, status_of

PAGE = os.sysconf("SC_PAGE_SIZE")
TICKS = os.sysconf("SC_CLK_TCK")
MEBIBYTE = 1024 * 1024


def make_project(root: Path) -> None:
    (root / "shop.py").write_text("def total(prices):\n    return sum(prices)\n")
    (root / "test_shop.py").write_text("from shop import total\n\n\ndef test_total():\n    assert total([1, 2]) == 3\n")
    make_repository(root)


def environ(root: Path) -> dict[str, str]:
    """Let the box take pytest from the virtualenv of this process, so that nothing is downloaded."""
    packages = shlex.quote(sysconfig.get_paths()["purelib"])
    setup = [f'cd "$VIRTUAL_ENV"/lib/python3*/site-packages && echo {packages} > pytest.pth']
    return {
        "WATCHTEST_BOX_SETUP": json.dumps(setup),
        "WATCHTEST_BOX_SANDBOX": "off",
        "WATCHTEST_RUNTIME_DIR": str(root.parent / "run"),
    }


def wait_until(what: str, is_so: Callable[[], bool], limit_s: float) -> None:
    deadline = time.monotonic() + limit_s
    while not is_so():
        if time.monotonic() > deadline:
            raise SystemExit(f"not within {limit_s:g} s: {what}")
        time.sleep(0.1)


def is_at_rest(root: Path) -> bool:
    lanes = [lane for lane in (status_of(root).get("lanes") or {}).values() if lane]
    return bool(lanes) and all(
        lane["activity"] == "idle" and lane["verdict"] == "passed" and not lane["pending"]["changes"] for lane in lanes
    )


def processor_s(pid: int) -> float:
    fields = _stat(pid)
    return (int(fields[11]) + int(fields[12])) / TICKS


def resident_mib(pid: int) -> float:
    """Return the resident memory of a process; 0 if it has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / MEBIBYTE
    except (FileNotFoundError, ProcessLookupError):
        return 0.0


def descendants(pid: int) -> list[int]:
    """Return every direct and indirect child process: the agent in the local box and the processes it keeps."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parents[int(folder.name)] = int(_stat(int(folder.name))[1])
            except OSError:
                continue  # ended while we looked
    found, fresh = set[int](), {pid}
    while fresh:
        fresh = {child for child, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return sorted(found)


def _stat(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
