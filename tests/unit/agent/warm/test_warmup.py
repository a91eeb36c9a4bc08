"""Which processes runs can be forked from, and what the forks find out about the project. Uses real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support import TESTS

# Warms up, forgets the project as a fork does, runs a project's code, and reports the result.
SCRIPT = """
import json, os, sys
settings = json.loads(sys.argv[1])
from watchtest.agent.warm import warmup
try:
    held = warmup.warm_up(settings)
except warmup.UnfitProcess as unfit:
    said = {'unfit': str(unfit), 'avoid': sorted(unfit.avoid)}
else:
    os.chdir(settings['root'])
    held.freshen(os.getcwd())
    exec(sys.argv[2])
    doubt = held.find_mismatch(set())
    said = {'doubt': doubt and doubt.why, 'avoid': doubt and doubt.avoid, 'change': held.first_change()}
    said['modules'] = [name for name, _ in settings['modules'] if name in held.modules]
with open(settings['answer'], 'w') as stream:
    json.dump(said, stream)
"""


class Warming:
    def __init__(self, folder: Path) -> None:
        self.libraries = folder / "libraries"
        self.root = folder / "project"
        self._answer = folder / "answer"
        for made in (self.libraries, self.root):
            made.mkdir()

    def install(self, **modules: str) -> None:
        for name, code in modules.items():
            (self.libraries / f"{name}.py").write_text(code)

    def said(self, *modules: str, avoid: tuple[str, ...] = (), project: str = "") -> dict[str, Any]:
        settings = {
            "modules": [[name, False] for name in modules],
            "avoid": avoid,
            "root": str(self.root),
            "answer": str(self._answer),
        }
        repository = str(TESTS.parent)
        env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": f"{self.libraries}:{repository}", "HOME": str(self.libraries)}
        command = [sys.executable, "-c", SCRIPT, json.dumps(settings), project]
        subprocess.run(command, env=env, check=True, timeout=60, capture_output=True, cwd=self.libraries)
        answer: dict[str, Any] = json.loads(self._answer.read_text())
        return answer


@pytest.fixture
def warming(tmp_path: Path) -> Warming:
    return Warming(tmp_path)


def test_ordinary_modules_are_held(warming: Warming) -> None:
    warming.install(one="import two", two="X = 1")
    said = warming.said("one", "two", "decimal")
    assert said == {"doubt": None, "avoid": None, "change": "", "modules": ["one", "two", "decimal"]}


def test_what_has_to_be_avoided_is(warming: Warming) -> None:
    warming.install(one="", two="raise RuntimeError")
    assert warming.said("one", "two", avoid=("two",))["modules"] == ["one"]


UNFIT = {
    "warns": "import warnings\nwarnings.warn('old')",
    "cannot be imported": "raise RuntimeError",
    "leaves": "raise SystemExit(3)",
    "changes the warning filters": "import warnings\nwarnings.simplefilter('ignore')",
    "open files": "F = open(__file__)",
    "child processes": "import subprocess\nP = subprocess.Popen(['sleep', '5'])",
    "environment variables": "import os\nos.environ['A'] = 'b'",
    "sys.path": "import sys\nsys.path.append('/a')",
    "current folder": "import os\nos.chdir('/')",
    "made-by-it": "open('made-by-it', 'w').close()",
    "49219": "import socket\nS = socket.create_server(('127.0.0.1', 49219))",
    "/tmp": "import tempfile\nF = tempfile.mkdtemp()",
    "threads": "import threading, time\nthreading.Thread(target=time.sleep, args=(5,), daemon=True).start()",
}


@pytest.mark.parametrize("how", UNFIT)
def test_a_module_that_leaves_more_than_definitions_is_named(warming: Warming, how: str) -> None:
    warming.install(bad=UNFIT[how], good="import bad" if how != "leaves" else "")
    said = warming.said("bad", "good")
    assert "bad" in said["avoid"], said
    assert how == "leaves" or how in said["unfit"], said


@pytest.mark.parametrize(
    "code",
    [
        "import socket\nwith socket.create_server(('127.0.0.1', 0)): pass",
        "import subprocess\nsubprocess.run(['true'])",
        "import tempfile\nwith tempfile.TemporaryDirectory(): pass",
        "import threading\nT = threading.Thread(target=print); T.start(); T.join()",
        "import warnings\nwarnings.filterwarnings('ignore', message='only this')",
        "import atexit\natexit.register(print)",
    ],
)
def test_what_is_over_when_the_import_is_does_not_matter(warming: Warming, code: str) -> None:
    warming.install(passing=code)
    assert warming.said("passing")["modules"] == ["passing"]


def test_a_module_of_the_project_is_never_held(warming: Warming) -> None:
    (warming.root / "own.py").write_text("")
    warming.install(finder=f"import sys\nsys.path.insert(0, {str(warming.root)!r})\nimport own\ndel sys.path[0]")
    said = warming.said("finder")
    assert said["avoid"] == ["finder"]
    assert "own of the project" in said["unfit"]


def test_a_change_of_what_is_held_is_seen(warming: Warming) -> None:
    warming.install(one="X = 1")
    file = str(warming.libraries / "one.py")
    said = warming.said("one", project=f"open({file!r}, 'a').write('X = 2')")
    assert said["change"] == file


def test_a_package_that_comes_is_seen(warming: Warming) -> None:
    folder = str(warming.libraries / "late")
    assert warming.said(project=f"os.mkdir({folder!r})")["change"] == str(warming.libraries)


def test_a_variable_that_the_project_sets_is_doubtful_if_a_module_has_read_it(warming: Warming) -> None:
    warming.install(one="import two", two="import os\nX = os.getenv('A_MODE')", three="")
    said = warming.said("one", "two", "three", project="os.environ['A_MODE'] = 'b'")
    assert "sets A_MODE" in said["doubt"]
    assert said["avoid"] == ["one", "two"]
    assert warming.said("one", "two", project="os.environ['B_MODE'] = 'b'")["doubt"] is None
    assert warming.said("three", project="os.environ['A_MODE'] = 'b'")["doubt"] is None


def test_a_variable_that_is_read_when_a_function_is_called_is_not_doubtful(warming: Warming) -> None:
    warming.install(one="import os\ndef mode(): return os.environ['A_MODE']")
    assert warming.said("one", project="os.environ['A_MODE'] = 'b'; import one; one.mode()")["doubt"] is None


def test_a_module_of_the_project_with_the_name_of_one_that_is_held_is_doubtful(warming: Warming) -> None:
    warming.install(one="")
    (warming.root / "one.py").write_text("")
    said = warming.said("one")
    assert "named one" in said["doubt"]
    assert said["avoid"] == ["one"]


def test_a_function_of_python_that_the_project_replaces_is_doubtful(warming: Warming) -> None:
    said = warming.said(project="import socket; socket.socket = object")
    assert "socket.socket" in said["doubt"]


def test_an_exit_handler_that_raises_does_not_change_how_a_run_ends() -> None:
    """As in a fresh process. Up to Python 3.9 the function that runs the handlers raises, and a box may have such a
    Python."""
    script = """
import sys, types
from watchtest.agent.warm import zygote
def raises(): raise ZeroDivisionError
sys.modules['atexit'] = types.SimpleNamespace(_run_exitfuncs=raises)
zygote._finalize()
print('through')
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (0, "through\n"), done.stderr
