"""A plugin for any pytest that reports which tests ran, their outcomes, and when they had been chosen.

Writes JSON to the file that BENCH_REPORT names. Imports nothing from watchtest, because it runs in the project's own
Python.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

began = time.perf_counter()
outcomes: dict[str, str] = {}
chosen_s = 0.0
ORDER = ("passed", "skipped", "failed")


def pytest_collection_finish() -> None:
    global chosen_s
    chosen_s = time.perf_counter() - began


def pytest_collectreport(report: Any) -> None:
    if report.failed:
        outcomes[report.nodeid or "."] = "error"


def pytest_runtest_logreport(report: Any) -> None:
    before = outcomes.get(report.nodeid, ORDER[0])
    outcomes[report.nodeid] = max(before, report.outcome, key=ORDER.index)


def pytest_sessionfinish() -> None:
    Path(os.environ["BENCH_REPORT"]).write_text(json.dumps({"outcomes": outcomes, "chosen_s": chosen_s}))
