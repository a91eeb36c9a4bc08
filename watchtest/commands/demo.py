"""`watchtest demo`: watch a small project go green, red and green again.

Create a small project in a temporary folder, watch it, and save three times. It uses a container engine if there is
one, otherwise the local box, and removes everything afterwards. Exit code 0 if each save got the right verdict.

    watchtest demo
    watchtest demo --engine local
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.client.status_file import last_status
from watchtest.commands import add_engine, say
from watchtest.errors import BoxError, EngineError, ImageError, WatchtestError

if TYPE_CHECKING:
    from watchtest.boxes.docker.engine_addresses import EngineChoice
    from watchtest.core.model import EngineName

FIRST_LIMIT_S = 600.0
"""The first verdict may have to wait until an image is pulled and pytest is installed."""
LIMIT_S = 60.0
END_LIMIT_S = 20.0
PRINT_S = 0.2
"""The watcher prints a verdict a moment after it has written it to the status file."""

SHOP = '''"""Prices."""


def total(prices: list[float], discount: float = 0.0) -> float:
    """Return the sum, minus a discount in percent."""
    return round(sum(prices) * (1 - discount / 100), 2)
'''
TEST_SHOP = """from shop import total


def test_an_empty_basket_costs_nothing():
    assert total([]) == 0


def test_prices_add_up():
    assert total([1.50, 2.25]) == 3.75


def test_a_discount_is_subtracted():
    assert total([80, 20], discount=25) == 75
"""
BROKEN = SHOP.replace("1 - discount", "1 + discount")
STEPS = (
    ("Green. Now a bug is saved in shop.py: the discount is added instead of subtracted.", BROKEN, "failed", "Red"),
    ("Now the bug is fixed and shop.py is saved again.", SHOP, "passed", "Green"),
)


def add_options(parser: argparse.ArgumentParser) -> None:
    add_engine(parser, opens_box=False)


def run(arguments: argparse.Namespace) -> int:
    engine: EngineName = arguments.engine or "auto"
    try:
        _play(engine)
    except ImageError:
        if engine != "auto":
            raise
        _say("There is no container image here and none can be pulled. The demo continues in the local box instead.")
        _play("local")
    _say("That was the demo; its project and its box are removed. To watch your own project, run `watchtest` in it.")
    return 0


def _play(engine: EngineName) -> None:
    """Watch a new project, break its code and fix it. Raises an error if a verdict is missing or wrong."""
    folder = Path(tempfile.mkdtemp(prefix="watchtest-demo-")).resolve()
    (folder / "shop.py").write_text(SHOP, encoding="utf-8")
    (folder / "test_shop.py").write_text(TEST_SHOP, encoding="utf-8")
    _say(f"Created a small project in {folder}: shop.py, and 3 tests in test_shop.py.")
    _say("Starting a watcher on it. The first run creates the box, which can take a minute.")
    # In the project's folder, boxes and history are removed together with it.
    own = {"WATCHTEST_CACHE_DIR": str(folder / ".cache"), "WATCHTEST_STATE_DIR": str(folder / ".state")}
    ignore = {"WATCHTEST_WATCH_IGNORE": '[".cache", ".state"]', "WATCHTEST_NOTIFY_DESKTOP": "false"}
    command = [
        *(sys.executable, "-P", "-m", "watchtest", "-C", str(folder)),  # -P: nothing of the current folder is imported
        *("watch", "--plain", "--engine", engine, "--trust"),
    ]
    watcher = subprocess.Popen(command, env={**os.environ, **own, **ignore}, stdin=subprocess.DEVNULL)
    try:
        _wait_for("passed", folder, watcher, FIRST_LIMIT_S, after=0.0)
        for announcement, content, verdict, colour in STEPS:
            _say(announcement)
            saved_at = time.time()
            (folder / "shop.py").write_text(content, encoding="utf-8")
            _wait_for(verdict, folder, watcher, LIMIT_S, after=saved_at)
            _say(f"{colour}, {time.time() - saved_at - PRINT_S:.1f} s after the save.")
    finally:
        _end(watcher)
        if engine != "local":
            _remove_box(folder, engine)
        shutil.rmtree(folder, ignore_errors=True)


def _wait_for(verdict: str, folder: Path, watcher: subprocess.Popen[bytes], limit_s: float, after: float) -> None:
    """Wait until the status file has this verdict. Raises an error if it cannot or does not get it."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        status = last_status(folder)
        problem = status.get("problem")
        if isinstance(problem, dict):
            error = ImageError if problem["code"] == ImageError.code else BoxError
            raise error(f"the demo could not run: {problem['message']}", hint=str(problem.get("hint") or ""))
        if status.get("verdict") not in (None, "unknown") and _seconds(status.get("verdict_at")) > after:
            time.sleep(PRINT_S)
            if status["verdict"] != verdict:
                raise BoxError(f"the demo could not run: the verdict is {status['verdict']}, not {verdict}")
            return
        if watcher.poll() is not None:
            raise BoxError(f"the demo could not run: the watcher ended with exit code {watcher.returncode}")
        time.sleep(0.02)
    raise BoxError(f"the demo could not run: no verdict within {limit_s:g} s")


def _seconds(stamp: object) -> float:
    from datetime import datetime

    return datetime.fromisoformat(stamp).timestamp() if isinstance(stamp, str) else 0.0


def _end(watcher: subprocess.Popen[bytes]) -> None:
    watcher.send_signal(signal.SIGTERM)
    try:
        watcher.wait(END_LIMIT_S)
    except subprocess.TimeoutExpired:
        watcher.kill()
        watcher.wait(END_LIMIT_S)


def _remove_box(folder: Path, engine: EngineChoice) -> None:
    """Remove the container of the demo, if it created one."""
    from watchtest.boxes.inventory import remove_boxes

    try:
        remove_boxes(str(folder), os.environ, engine)
    except WatchtestError as error:
        if not isinstance(error, EngineError):  # without an engine there is no container
            say(f"the container of the demo could not be removed: {error}")


def _say(text: str) -> None:
    print(f"\n» {text}", flush=True)
