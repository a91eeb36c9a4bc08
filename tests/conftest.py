"""The gate of every test marked `docker`, wherever it lies.

Without an engine such a test skips and says so. Under WATCHTEST_REQUIRE_ENGINE=1 it fails instead, and the session
fails if one was skipped for any reason: a skipped test proves nothing.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path

import pytest
from engine.images import lack
from engine.wire import Engine

HELP = "`python tests/engine up` (as root on Debian) gives the tests an engine"

_skipped: set[str] = set()


def engine_is_required() -> bool:
    return os.environ.get("WATCHTEST_REQUIRE_ENGINE") == "1"


@functools.cache
def engine_lack() -> str | None:
    """Asked once a session, before any test could change the environment."""
    return lack(Engine.from_environment(os.environ))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("docker") is None or (missing := engine_lack()) is None:
        return
    if engine_is_required():
        pytest.fail(f"an engine is required, but {missing}; {HELP}", pytrace=False)
    pytest.skip(f"DOCKER TEST NOT RUN: {missing}; {HELP}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # An expected failure is also reported as skipped, though it ran.
    if report.skipped and "docker" in report.keywords and not hasattr(report, "wasxfail"):
        _skipped.add(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    # A module that skips itself has no tests to tell of; its folder tells that they were Docker tests.
    if report.skipped and "docker" in Path(report.nodeid.partition("::")[0]).parts:
        _skipped.add(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skipped and engine_is_required() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped and engine_is_required():
        terminalreporter.section("Docker tests skipped although an engine is required", red=True, bold=True)
        for node in sorted(_skipped):
            terminalreporter.line(node)
