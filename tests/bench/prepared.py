"""Prepares a real project in a folder, which may be kept for the next time, and the command-line options for that."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from by_testmon import OFF, Testmon
from projects import PROJECTS, Real, unpack
from support.selection_lab import Lab

ALSO = ("pytest-testmon",)
GOES_ON = ("--continue-on-collection-errors",)


@dataclass(frozen=True)
class Prepared:
    name: str
    real: Real
    root: Path
    home: Path
    python: str

    @property
    def args(self) -> tuple[str, ...]:
        return (*GOES_ON, *self.real.args, *self.real.paths)

    def lab(self, **more: object) -> Lab:
        return Lab(self.root, self.home / "lab", self.python, ("-q", *OFF, *self.args), **more)  # type: ignore[arg-type]

    def testmon(self, limit_s: float) -> Testmon:
        left_out = [word for test in self.real.not_for_testmon for word in ("--deselect", test)]
        return Testmon(self.root, self.home / "testmon", self.python, (*self.args, *left_out), limit_s)


def add_options(parser: argparse.ArgumentParser, default: str) -> None:
    parser.add_argument("--project", default=default, help=f"one of {', '.join(PROJECTS)}; several with commas")
    parser.add_argument("--python", default=sys.executable, help="the Python that the project is to run on")
    parser.add_argument("--keep", type=Path, help="a folder to keep projects and their virtualenvs in")


def names(parser: argparse.ArgumentParser, value: str) -> list[str]:
    found = value.split(",")
    unknown = [name for name in found if name not in PROJECTS]
    if unknown:
        parser.error(f"no such project: {', '.join(unknown)}; there are {', '.join(PROJECTS)}")
    return found


@contextmanager
def prepared(name: str, python: str, keep: Path | None) -> Iterator[Prepared]:
    """Unpack and install the project, or reuse what an earlier session kept."""
    with tempfile.TemporaryDirectory(prefix="watchtest-bench-") as folder:
        home = Path(keep / name if keep is not None else folder).resolve()
        venv = home / "venv"
        if (home / "ready").exists():
            (root,) = (home / "source").iterdir()
        else:
            project = unpack(name, home)
            root = project.root
            project.host_python(venv, root, python, ALSO)
            (home / "ready").touch()
        yield Prepared(name, PROJECTS[name], root, home, str(venv / "bin" / "python"))
