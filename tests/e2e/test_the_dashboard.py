"""The dashboard in a real terminal at three sizes, compared with screens that a person has reviewed.

WATCHTEST_WRITE_SCREENS=1 writes the screens instead of comparing them; review them before you commit them.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.projects import end
from support.terminal import Terminal
from support.watcher_process import Project

SCREENS = Path(__file__).parent / "screens"
SIZES = ((80, 24), (60, 15), (200, 50))
SHOP = "import time\n\n\ndef total(prices):\n    return sum(prices)\n\n\ndef wait():\n    pass\n"
TESTS = """
from shop import total, wait


def test_prices_add_up():
    assert total([1, 2]) == 3


def test_an_empty_basket_costs_nothing():
    assert total([]) == 0


def test_a_name_is_a_name():
    assert {"name": "cart", "total": total([1])} == {"name": "cart", "total": 1}


def test_waiting():
    wait()
"""

pytestmark = pytest.mark.tmux


def shop(project: Project) -> Project:
    project.save("shop.py", SHOP)
    project.save("test_shop.py", TESTS)
    project.save("pytest.ini", "[pytest]\n")
    return project


def watching(project: Project, *words: str) -> Terminal:
    command = [sys.executable, "-m", "watchtest", *(words or ("watch", "--engine", project.kind))]
    return Terminal(command, project.root, {**project.environ, "PAGER": "less", "EDITOR": "vi"})


def look(terminal: Terminal, stage: str) -> None:
    """Compare the screen at each size with the stored one."""
    for width, height in SIZES:
        terminal.resize(width, height)
        kept = SCREENS / f"{stage}-{width}x{height}.txt"
        if os.environ.get("WATCHTEST_WRITE_SCREENS"):
            kept.parent.mkdir(exist_ok=True)
            kept.write_text("\n".join(terminal.steady()) + "\n", encoding="utf-8")
        expected = kept.read_text(encoding="utf-8").rstrip("\n").split("\n")
        assert terminal.comes_to(expected) == expected, f"{kept.name} looks different"
    terminal.resize(*SIZES[0])


@pytest.mark.docker
def test_a_day_at_the_dashboard(docker_project: Project) -> None:
    project = shop(docker_project)
    with watching(project) as terminal:
        terminal.shows("PASSED 4 tests", limit_s=60)
        look(terminal, "1-green")
        project.save("shop.py", SHOP.replace("sum(prices)", "sum(prices) + 1"))
        terminal.shows("FAILED 3 of 4 tests", "waiting for a change")
        look(terminal, "2-red")
        terminal.press("Down", "Down")
        terminal.shows("▸ test_shop.py:10")
        look(terminal, "3-chosen")
        terminal.press("Escape", "/", *"basket")
        terminal.shows("/basket")
        look(terminal, "4-filter")
        terminal.press("Escape", "h")
        terminal.shows("show or hide this help")
        look(terminal, "5-help")
        terminal.press("h")
        project.save("shop.py", SHOP.replace("    pass", "    time.sleep(60)"))
        terminal.shows("running 3/4")
        terminal.press("c")
        terminal.shows("waiting for a change", "1 change pending")
        look(terminal, "6-cancelled")
        project.save("shop.py", SHOP)
        terminal.shows("PASSED 4 tests", "waiting for a change")
        subprocess.run(["docker", "kill", project.container()], check=True, capture_output=True, timeout=30)
        terminal.shows("retrying")
        terminal.shows("PASSED 4 tests", "waiting for a change")
        look(terminal, "7-healed")
        terminal.press("q")
        assert "left with code 0" in "\n".join(terminal.shows("left with code"))
        assert not any("PASSED" in row for row in terminal.screen)  # the previous screen is back
        assert terminal.screen[0] == "✔ passed 4 tests"  # and the last line stays


@pytest.fixture
def local_project(tmp_path: Path, make_project: object) -> Iterator[Project]:
    made = make_project(tmp_path, "local")  # type: ignore[operator]
    yield made
    end(made)


def test_attached_one_sees_the_same_and_leaves_the_watcher_alone(local_project: Project) -> None:
    project = shop(local_project)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    with watching(project, "attach") as terminal:
        terminal.shows("PASSED 4 tests", "waiting for a change")
        project.save("shop.py", SHOP.replace("sum(prices)", "sum(prices) + 1"))
        terminal.shows("FAILED 3 of 4 tests", "✘ test_shop.py:6  test_prices_add_up  new")
        terminal.press("f")
        terminal.shows("failed tests only")
        project.save("shop.py", SHOP)
        terminal.shows("PASSED 4 tests")
        terminal.press("f", "r")
        terminal.press("p")
        terminal.shows("paused: press p to resume")
        terminal.press("p", "o")
        terminal.shows("passed 4 tests · run")
        terminal.press("C-c")
        terminal.steady()  # less drops keys that arrive while it handles the interrupt
        terminal.press("q")
        terminal.shows("waiting for a change")
        terminal.press("q")
        terminal.shows("left with code 0")
    assert watcher.is_alive


def test_an_attached_dashboard_tells_of_a_watcher_that_dies(local_project: Project) -> None:
    project = shop(local_project)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    with watching(project, "attach") as terminal:
        terminal.shows("PASSED 4 tests")
        os.kill(watcher.process.pid, signal.SIGKILL)
        terminal.shows("no watcher is running on")
        again = project.watch()
        again.wait_for_verdict("passed")
        terminal.shows("PASSED 4 tests", "waiting for a change")
        terminal.press("q")
        terminal.shows("left with code 0")


def test_the_terminal_is_as_before_after_a_crash_and_after_sleep(local_project: Project) -> None:
    project = shop(local_project)
    shell = ["env", "PS1=$ ", "bash", "--norc", "--noprofile", "-i"]
    with Terminal(shell, project.root, project.environ) as terminal:
        terminal.shows("$")
        terminal.press(f"{sys.executable} -m watchtest watch --engine local", "Enter")
        terminal.shows("PASSED 4 tests")
        terminal.press("C-z")
        terminal.shows("Stopped")
        terminal.press("fg", "Enter")
        terminal.shows("PASSED 4 tests")
        terminal.press("o")
        terminal.shows("passed 4 tests · run")
        terminal.press("C-z")
        terminal.shows("Stopped")
        terminal.press("fg", "Enter")
        terminal.shows("passed 4 tests · run")
        time.sleep(1.0)
        assert not any("h help" in row for row in terminal.screen)  # the pager owns the terminal
        terminal.press("q")
        terminal.shows("h help", "PASSED 4 tests")
        terminal.press("C-z")
        terminal.shows("Stopped")
        terminal.press("bg", "Enter")
        time.sleep(1.0)
        assert not any("h help" in row for row in terminal.screen)  # the shell owns it
        terminal.press("fg", "Enter")
        terminal.shows("h help", "PASSED 4 tests")
        terminal.press("C-c")
        terminal.shows("Stopped", "fg")
        time.sleep(0.5)
        terminal.press("stty -a | tr ' ' '\\n' | grep -c -x -- -icanon", "Enter")
        terminal.shows("\n0")
