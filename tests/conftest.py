"""Decides which tests a session runs, and guards every test that is marked with a requirement on the machine.

The default session leaves out the tests marked `thorough`; `--thorough` runs all, and so does `-m` with that word in it
or a test named with `::`. A test marked with a requirement (see support/needs.py) skips with a clear reason if it is
not met. Under WATCHTEST_REQUIRE_ENGINE=1 it fails instead, and the session fails if such a test was skipped for any
reason: a skipped test proves nothing.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from support.needs import NEEDS, is_required, lack_of, leave_out

pytest_plugins = ["support.config_command"]
collect_ignore = ["samples"]  # projects for the watcher to test, in boxes of their own
# Four workers share two cores with a container engine, so the duration of one example says nothing.
settings.register_profile("watchtest", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("watchtest")

_skipped: set[str] = set()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--thorough", action="store_true", help="run the tests marked `thorough`, too")


def pytest_configure(config: pytest.Config) -> None:
    for mark, need in NEEDS.items():
        config.addinivalue_line("markers", f"{mark}: needs {need.what}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    is_asked_for = config.option.thorough or "thorough" in config.option.markexpr
    if is_asked_for or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if item.get_closest_marker("thorough") is not None]
    items[:] = [item for item in items if item.get_closest_marker("thorough") is None]
    config.hook.pytest_deselected(items=left_out)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in NEEDS:
        if item.get_closest_marker(mark) is not None and (reason := lack_of(mark)) is not None:
            leave_out(mark, reason)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # An expected failure is also reported as skipped, though it ran.
    if report.skipped and any(mark in report.keywords for mark in NEEDS) and not hasattr(report, "wasxfail"):
        _skipped.add(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    # A module that skips itself has no tests to report; its folder shows that they were Docker tests.
    if report.skipped and not NEEDS.keys().isdisjoint(Path(report.nodeid.partition("::")[0]).parts):
        _skipped.add(report.nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    if _skipped and is_required() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _skipped and is_required():
        terminalreporter.section("tests skipped although what they need is required", red=True, bold=True)
        for node in sorted(_skipped):
            terminalreporter.line(node)
