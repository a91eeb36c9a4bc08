"""The gate of every test marked with what it needs of the machine (`docker`, `bubblewrap`, …), wherever it lies.

Without that such a test skips and says so. Under WATCHTEST_REQUIRE_ENGINE=1 it fails instead, and the session
fails if one was skipped for any reason: a skipped test proves nothing.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import time
import zlib
from pathlib import Path

import pytest
from engine.images import lack
from engine.main import podman_place
from engine.wire import Engine
from hypothesis import HealthCheck, settings

from watchtest.boxes.local.bubblewrap import NoBubblewrap, find_bubblewrap

HELP = "`python tests/engine up` (as root on Debian) gives the tests an engine"
DESKTOP_HELP = "install dunst, xvfb and dbus-daemon"
NEEDS = {
    "docker": lambda: lack(Engine.from_environment(os.environ)),
    "podman": lambda: lack(Engine(podman_place(os.environ).host)),
    "bubblewrap": lambda: lack_of_bubblewrap(),
    "desktop": lambda: lack_of_desktop(),
}
"""What a mark asks for: why it is missing, in one line, or None."""

VARIANTS = re.compile(
    r"""test_hanging_tests\.py.*\[(local-warm|docker-cold)\]
      | test_warm_runs\.py.*\[local
      | test_a_module_that_does_more_than_define_things_does_it_in_every_run\[(?!listener)
      | test_projects_of_uv_and_poetry\.py.*\[poetry\]
      | test_random_cancels\.py.*\[local
      | test_a_hanging_test_is_ended_by_the_limit_and_named_where_its_tool_tells
      | test_on_change\.py.*after\ its\ end
      | contract/test_(services|jobs_are_supervised)\.py.*\[podman\]
      | contract/test_services\.py.*\[bubblewrap
      | test_worktree_random\.py.*\[2\]
      | test_a_library_that_looks_into_the_project_when_it_is_imported.*\[(os|pathlib)
      | test_a_project_may_shadow_what_pytest_itself_uses\[(?!difflib)
      | test_a_program_that_writes_all_the_time.*restart
    """,
    re.VERBOSE,
)
"""Only under WATCHTEST_THOROUGH=1: the same tests run every time in another kind of box, and CI has 15 minutes."""

MANY = re.compile(r"contract/test_nasty_edits\.py.*\[|contract/.*\[(podman|bubblewrap)\b")
"""Of these, a third that their names choose."""
SLOW = re.compile(r"^tests/(e2e|docker|contract)/")
SHARES = 4
"""Of these, one share rests each day, another one the next: all of them run within so many days."""
KIND = re.compile(r"(\[|-)(local|docker)(-|\])")

collect_ignore = ["samples"]  # projects for the watcher to test, in boxes of their own
# Four workers share two cores with a container engine: how long an example takes says nothing.
settings.register_profile("watchtest", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("watchtest")

_skipped: set[str] = set()


def lack_of_bubblewrap() -> str | None:
    found = find_bubblewrap(os.environ, is_cut_off=True)
    return f"{found.reason} ({found.hint})" if isinstance(found, NoBubblewrap) else None


def lack_of_desktop() -> str | None:
    missing = [name for name in ("dbus-daemon", "dunst", "Xvfb") if shutil.which(name) is None]
    return f"there is no {' and no '.join(missing)} here" if missing else None


def engine_is_required() -> bool:
    return os.environ.get("WATCHTEST_REQUIRE_ENGINE") == "1"


@functools.cache
def lack_of(mark: str) -> str | None:
    """Asked once a session, before any test could change the environment."""
    return NEEDS[mark]()


def pytest_configure() -> None:
    """One day for all workers, also of a session that begins before midnight."""
    os.environ.setdefault("WATCHTEST_DAY", str(int(time.time() // 86400)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if os.environ.get("WATCHTEST_THOROUGH") == "1" or any("::" in argument for argument in config.args):
        return
    left_out = [item for item in items if VARIANTS.search(item.nodeid)]
    if lack_of("docker") is None:
        left_out += _one_of_two(items)
    left_out += [item for item in items if MANY.search(item.nodeid) and zlib.crc32(item.nodeid.encode()) % 3]
    day = int(os.environ["WATCHTEST_DAY"])
    left_out += [
        item for item in items if SLOW.search(item.nodeid) and zlib.crc32(item.nodeid.encode()) % SHARES == day % SHARES
    ]
    left_out = list(dict.fromkeys(left_out))
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=left_out)


def _one_of_two(items: list[pytest.Item]) -> list[pytest.Item]:
    """Of a story that is told over the local box and over Docker, the one that its name decides against.

    What the boxes themselves promise is in the contract suite, which runs on each.
    """
    names = {item.nodeid for item in items}
    twins = [item for item in items if "e2e/" in item.nodeid and KIND.search(item.nodeid)]
    left_out = []
    for item in twins:
        kind = "docker" if zlib.crc32(KIND.sub("", item.nodeid).encode()) % 2 else "local"
        has_twin = {KIND.sub(rf"\1{one}\3", item.nodeid) for one in ("docker", "local")} <= names
        if has_twin and KIND.search(item.nodeid)[2] != kind:  # type: ignore[index]
            left_out.append(item)
    return left_out


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in NEEDS:
        if item.get_closest_marker(mark) is None or (missing := lack_of(mark)) is None:
            continue
        remedy = DESKTOP_HELP if mark == "desktop" else HELP
        if engine_is_required():
            pytest.fail(f"an engine is required, but {missing}; {remedy}", pytrace=False)
        pytest.skip(f"{mark.upper()} TEST NOT RUN: {missing}; {remedy}")


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # An expected failure is also reported as skipped, though it ran.
    if report.skipped and any(mark in report.keywords for mark in NEEDS) and not hasattr(report, "wasxfail"):
        _skipped.add(report.nodeid)


def pytest_collectreport(report: pytest.CollectReport) -> None:
    # A module that skips itself has no tests to tell of; its folder tells that they were Docker tests.
    if report.skipped and not NEEDS.keys().isdisjoint(Path(report.nodeid.partition("::")[0]).parts):
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
