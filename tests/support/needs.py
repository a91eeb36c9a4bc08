"""What a test may need on the machine: a mark for each need, how to detect that it is missing, and how to get it.

A test with such a mark skips with a clear reason if the need is not met. Under WATCHTEST_REQUIRE_ENGINE=1, which CI
sets, it fails instead.
"""

from __future__ import annotations

import functools
import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

import pytest
from engine.images import lack
from engine.main import podman_place
from engine.wire import Engine

from watchtest.boxes.local.bubblewrap import NoBubblewrap, find_bubblewrap

ENGINE_REMEDY = "`python tests/engine up` (as root on Debian) gives the tests an engine"
REQUIRED = "WATCHTEST_REQUIRE_ENGINE"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")


@dataclass(frozen=True)
class Need:
    """`lack` returns in one line why the thing is missing, or None if it is there."""

    what: str
    lack: Callable[[], str | None]
    remedy: str


def _programs(*names: str) -> Callable[[], str | None]:
    def lack() -> str | None:
        missing = [name for name in names if shutil.which(name) is None]
        return f"there is no {' and no '.join(missing)} here" if missing else None

    return lack


def _bubblewrap() -> str | None:
    found = find_bubblewrap(os.environ, is_offline=True)
    return f"{found.reason} ({found.hint})" if isinstance(found, NoBubblewrap) else None


NEEDS = {
    "docker": Need("a real container engine", lambda: lack(Engine.from_environment(os.environ)), ENGINE_REMEDY),
    "podman": Need("a podman that serves its API", lambda: lack(Engine(podman_place(os.environ).host)), ENGINE_REMEDY),
    "bubblewrap": Need("a bubblewrap that works", _bubblewrap, "install bubblewrap"),
    "desktop": Need(
        "dunst, Xvfb and dbus-daemon", _programs("dbus-daemon", "dunst", "Xvfb"), "install dunst, xvfb and dbus-daemon"
    ),
    "dbus": Need("dbus-daemon", _programs("dbus-daemon"), "install dbus-daemon"),
    "tmux": Need("tmux", _programs("tmux"), "install tmux"),
    "vim": Need("vim", _programs("vim"), "install vim"),
    "go": Need("the Go toolchain", _programs("go"), "install golang-go"),
    "cargo": Need("the Rust toolchain", _programs("cargo"), "install cargo"),
    "npm": Need(
        "Node.js with npm, and the packages of the samples", _programs("node", "npm"), "install nodejs and npm"
    ),
    "chromium": Need(
        "a browser that can run without a screen",
        lambda: None if any(map(shutil.which, BROWSERS)) else "there is no chromium here",
        "install chromium",
    ),
    "systemd": Need("systemd-analyze", _programs("systemd-analyze"), "install systemd"),
}


def is_required() -> bool:
    return os.environ.get(REQUIRED) == "1"


@functools.cache
def lack_of(mark: str) -> str | None:
    """Return why a need is not met. Cached per process, before any test can change the environment."""
    return NEEDS[mark].lack()


def leave_out(mark: str, reason: str) -> NoReturn:
    """Skip the running test because the need of its mark is not met, or fail it if that is required."""
    if is_required():
        pytest.fail(f"{NEEDS[mark].what} is required, but {reason}; {NEEDS[mark].remedy}", pytrace=False)
    pytest.skip(f"{mark.upper()} TEST NOT RUN: {reason}; {NEEDS[mark].remedy}")


def must_be_marked(request: pytest.FixtureRequest, mark: str) -> None:
    """Fail a test that uses a need without carrying its mark."""
    assert request.node.get_closest_marker(mark) is not None, f"{request.node.nodeid} has to be marked `{mark}`"
