"""Plain pytest as the judge: one warm process that forks for each tree and runs `pytest` there, without watchtest."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from chaos.trees import Trees

LIMIT_S = 60.0
VERDICTS = {0: "passed", 1: "failed", 2: "error", 3: "error", 4: "error", 5: "no_tests"}

# Reads a folder per line; answers with pytest's exit code, the red tests and the files that could not be collected.
SERVER = r"""
import json, os, sys
import _pytest, pytest, _pytest.assertion.rewrite

class Report:
    def __init__(self):
        self.red, self.uncollected = set(), set()
    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.red.add(report.nodeid)
    def pytest_collectreport(self, report):
        if report.failed:
            self.uncollected.add(report.nodeid)

def judge(folder, answer):
    os.chdir(folder)
    sys.path.insert(0, os.getcwd())
    report = Report()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    code = pytest.main(["-q", "--tb=no", "-p", "no:cacheprovider"], plugins=[report])
    document = {
        "exit": int(code), "red": sorted(report.red), "uncollected": sorted(report.uncollected)
    }
    os.write(answer, json.dumps(document).encode())

for line in sys.stdin:
    read, write = os.pipe()
    child = os.fork()
    if not child:
        os.close(read)
        try:
            os.setsid()
            judge(json.loads(line), write)
        finally:
            os._exit(0)
    os.close(write)
    with open(read, "rb") as stream:
        text = stream.read().decode()
    os.waitpid(child, 0)
    print(text, flush=True)
"""


@dataclass(frozen=True, slots=True)
class Judgement:
    """What plain pytest says about a tree."""

    verdict: str
    red: frozenset[str]
    """The ids of failed tests, and of files and folders that cannot be collected."""
    is_collected: bool


class Judge:
    """Judges each tree once. The runs happen in copies made by git."""

    def __init__(self, python: str, trees: Trees, around: Path) -> None:
        self._trees = trees
        self._folder = around / "judged"
        self._known: dict[tuple[str, frozenset[str]], Judgement] = {}
        environ = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "UTC", "PYTHONDONTWRITEBYTECODE": "1"}
        environ["LEFT_BEHIND_S"] = "0"
        self._process = subprocess.Popen(
            [python, "-I", "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, cwd="/", text=True
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.communicate()
        shutil.rmtree(self._folder, ignore_errors=True)

    def judge(self, tree: str, empty_folders: frozenset[str] = frozenset()) -> Judgement:
        key = tree, empty_folders
        if key not in self._known:
            self._trees.export(tree, self._folder)
            for path in empty_folders:
                (self._folder / path).mkdir(parents=True, exist_ok=True)
            self._known[key] = self._ask()
        return self._known[key]

    def _ask(self) -> Judgement:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(str(self._folder)) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        red = frozenset(answer["red"]) | frozenset(answer["uncollected"])
        return Judgement(VERDICTS[answer["exit"]], red, not answer["uncollected"] and answer["exit"] in (0, 1, 5))


def python_with_pytest(around: Path) -> Path:
    """Make a virtualenv that has only pytest, copied from this interpreter: no package index is needed."""
    home = around / "python"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home)], check=True, timeout=60)
    (packages,) = home.glob("lib/python3*/site-packages")
    for name in ("pytest", "pluggy", "iniconfig", "packaging", "pygments"):
        distribution = importlib.metadata.distribution(name)
        for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
            source = Path(str(distribution.locate_file(top)))
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, packages / top)
    return home / "bin" / "python"
