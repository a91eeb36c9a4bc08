"""A prestarted session continues only if one that began now would be in the same state. Uses real processes."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from watchtest.agent.messages import receive, send

# Code stands in for what a run does between the gate and its order.
SCRIPT = """
import os, sys, tempfile
from watchtest.agent.warm.prestart import Gate
tempfile.gettempdir()  # tries it out, once a process; the warm process has done so
class PreloadedState:
    def first_change(self):
        return 'a library' if os.path.exists('library-changed') else ''
awaited = ['awaited.py', 'package/__init__.py'] if sys.argv[2] == 'deep' else []
gate = Gate(int(sys.argv[1]), sys.argv[2], os.getcwd(), sys.argv[4:], PreloadedState(), awaited)
orders = []
gate.on_reached = lambda: orders.append(gate.wait())
sys.path.insert(0, os.getcwd())
exec(sys.argv[3])
order = orders[0] if orders else gate.wait()
open('went', 'w').write(repr(order))
"""


class Session:
    def __init__(self, root: Path, point: str, code: str, *args: str) -> None:
        self.root = root
        self.channel, theirs = socket.socketpair()
        self.channel.settimeout(20)
        command = [sys.executable, "-c", SCRIPT, str(theirs.fileno()), point, code, *args]
        self._process = subprocess.Popen(command, cwd=root, pass_fds=[theirs.fileno()])
        theirs.close()
        self.said: dict[str, Any] = receive(self.channel)[0]

    def go(self) -> dict[str, Any]:
        send(self.channel, {"order": {"tests": 1}})
        return receive(self.channel)[0]

    def close(self) -> int:
        """Return the exit code."""
        self.channel.close()
        return self._process.wait(20)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "conftest.py").write_text("")
    (tmp_path / "tests" / "unit").mkdir(parents=True)
    (tmp_path / "data.json").write_text(json.dumps([1]))
    return tmp_path


@pytest.mark.parametrize("point", ["early", "late"])
def test_it_waits_and_goes_on_with_its_order(root: Path, point: str) -> None:
    with Session(root, point, "") as session:
        assert session.said == {"parked": point}
        assert not (root / "went").exists()
        assert session.go() == {"going": True}
        assert session.close() == 0
    assert (root / "went").read_text() == "{'tests': 1}"


CHANGES = {
    "a conftest changed": ("conftest.py", "import os\n"),
    "a conftest came": ("tests/conftest.py", ""),
    "a conftest of what is run came": ("tests/unit/conftest.py", ""),
    "settings came": ("pytest.ini", "[pytest]\n"),
    "settings beside what is run came": ("tests/unit/tox.ini", "[pytest]\n"),
    "data that was read changed": ("data.json", "[2]"),
    "a module that was looked for came": ("library-changed", ""),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("point", ["early", "late"])
def test_it_does_not_go_on_when_something_it_has_read_changed(root: Path, point: str, change: str) -> None:
    with Session(root, point, "open('data.json').read()", "tests/unit::test_a", "-q") as session:
        file, text = CHANGES[change]
        (root / file).write_text(text)
        assert "stale" in session.go()
    assert not (root / "went").exists()


NOTICEABLE = {
    "write": "open('made', 'w')",
    "append": "open('made', 'a')",
    "low": "os.open('made', os.O_CREAT)",
    "folder": "os.mkdir('made')",
    "remove": "os.remove('data.json')",
    "rename": "os.rename('data.json', 'made')",
    "process": "import subprocess; subprocess.run(['touch', 'made'])",
    "shell": "os.system('touch made')",
    "fork": "os.fork() or open('made', 'w')",
    "listen": "import socket; socket.create_server(('127.0.0.1', 0)); open('made', 'w')",
    "thread": "import threading; threading.Thread(target=lambda: open('made', 'w')).start()",
    "database": "import sqlite3; sqlite3.connect('made')",
    "temporary": "tempfile.mkdtemp(dir='.'); open('made', 'w')",
    "kill": "os.kill(os.getppid(), 0); open('made', 'w')",
    "timer": "import signal; signal.alarm(60)",
}


@pytest.mark.parametrize("what", NOTICEABLE)
def test_it_ends_before_it_does_anything_that_others_could_notice(root: Path, what: str) -> None:
    before = sorted(root.iterdir())
    with Session(root, "late", NOTICEABLE[what]) as session:
        assert "noticeable" in session.said
    assert sorted(root.iterdir()) == before


@pytest.mark.parametrize(
    "code",
    [
        "open('data.json').read()",
        "open(os.devnull, 'w')",
        "tempfile.TemporaryFile()",
        "os.makedirs('tests', exist_ok=True)",
        "os.listdir('.'); os.environ['A'] = 'b'; os.chdir('tests'); os.chdir('..')",
        "import json.tool",
        "os.fdopen(os.dup(1), 'w')",
    ],
)
def test_a_change_without_effect_is_no_reason_to_end(root: Path, code: str) -> None:
    with Session(root, "late", code) as session:
        assert session.said == {"parked": "late"}


def test_it_ends_when_it_is_no_longer_needed(root: Path) -> None:
    with Session(root, "early", "") as session:
        assert session.close() == 0
    assert not (root / "went").exists()


@pytest.mark.parametrize("name", ["awaited", "package", "package.inner"])
def test_a_deep_one_waits_before_it_looks_for_what_is_likely_to_change(root: Path, name: str) -> None:
    (root / "awaited.py").write_text("VALUE = 'old'\n")
    (root / "package").mkdir()
    (root / "package" / "__init__.py").write_text("VALUE = 'old'\n")
    (root / "package" / "inner.py").write_text("")
    (root / "before.py").write_text("READ = True\n")
    code = f"import before, {name}; assert {name.partition('.')[0]}.VALUE == 'new'"
    with Session(root, "deep", code) as session:
        assert session.said == {"parked": "deep"}
        # The same size and the same second: not even the date of a file may have been read.
        for file in ("awaited.py", "package/__init__.py"):
            (root / file).write_text("VALUE = 'new'\n")
        assert session.go() == {"going": True}
        assert session.close() == 0
    assert (root / "went").read_text() == "{'tests': 1}"


def test_a_deep_one_does_not_go_on_when_what_it_has_imported_changed(root: Path) -> None:
    (root / "awaited.py").write_text("")
    (root / "before.py").write_text("READ = True\n")
    with Session(root, "deep", "import before, awaited") as session:
        (root / "before.py").write_text("READ = None\n")
        assert "stale" in session.go()
    assert not (root / "went").exists()


def test_a_deep_one_that_reads_the_file_in_another_way_does_not_go_on_with_what_it_read(root: Path) -> None:
    (root / "awaited.py").write_text("VALUE = 'old'\n")
    code = "import importlib; importlib.import_module('awaited')"
    with Session(root, "deep", code) as session:
        (root / "awaited.py").write_text("VALUE = 'newer'\n")
        assert "stale" in session.go()
    assert not (root / "went").exists()
