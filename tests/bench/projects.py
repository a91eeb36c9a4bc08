"""Real projects from the package index, as source distributions, with tests that were not written for watchtest."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

DOWNLOAD_LIMIT_S = 300.0


@dataclass(frozen=True)
class Real:
    """`needs` lists what its tests import besides pytest and the project; `test` and `module` are for measuring one
    test."""

    requirement: str
    kind: str
    module: str
    test: str
    needs: tuple[str, ...] = ()
    paths: tuple[str, ...] = ("tests",)
    args: tuple[str, ...] = ()
    not_for_testmon: tuple[str, ...] = ()
    """Tests that make it crash."""


PROJECTS = {
    "more-itertools": Real(
        "more-itertools", "small and pure", "more_itertools/recipes.py", "tests/test_recipes.py::TakeTests"
    ),
    "asgiref": Real(
        "asgiref", "async tests", "asgiref/local.py", "tests/test_local.py::test_local_task", ("pytest-asyncio",)
    ),
    "werkzeug": Real(
        "werkzeug",
        "heavy fixtures: servers in processes, clients, temporary trees",
        "src/werkzeug/urls.py",
        "tests/test_urls.py::test_iri_support",
        ("pytest-timeout", "ephemeral-port-reserve", "watchdog", "cryptography"),
        # The reloader tests wait forever for file events that a container's file system does not deliver.
        args=("-k", "not reloader"),
    ),
    "uncertainties": Real(
        "uncertainties",
        "numpy",
        "uncertainties/formatting.py",
        "tests/test_formatting.py::test_PDG_precision",
        ("numpy", "scipy", "hypothesis"),
    ),
    "flask": Real(
        "flask",
        "Flask",
        "src/flask/json/tag.py",
        "tests/test_json_tag.py::test_duplicate_tag",
        ("asgiref", "pytest~=8.3"),
    ),
    "click": Real(
        "click",
        "a command-line library",
        "src/click/formatting.py",
        "tests/test_formatting.py::test_basic_functionality",
    ),
    "jinja2": Real(
        "jinja2",
        "templates as data files",
        "src/jinja2/filters.py",
        "tests/test_filters.py",
        ("trio",),
        # testmon mistakes a template, whose name has no suffix, for a module.
        not_for_testmon=("tests/test_loader.py::TestLoaders::test_filesystem_loader_overlapping_names",),
    ),
    "itsdangerous": Real(
        "itsdangerous",
        "inherited test classes",
        "src/itsdangerous/timed.py",
        "tests/test_itsdangerous/test_timed.py",
        ("freezegun",),
    ),
    "markdown-it-py": Real(
        "markdown-it-py",
        "tests made from data files",
        "markdown_it/utils.py",
        "tests/test_api/test_main.py",
        ("linkify-it-py", "pytest-regressions"),
    ),
    "markupsafe": Real(
        "markupsafe", "C beside Python", "src/markupsafe/_native.py", "tests/test_markupsafe.py::test_adding"
    ),
    "tinydb": Real("tinydb", "parametrized fixtures", "tinydb/queries.py", "tests/test_queries.py", ("pyyaml",)),
    "boltons": Real("boltons", "many small modules", "boltons/strutils.py", "tests/test_strutils.py"),
    "humanize": Real(
        "humanize", "parametrized functions", "src/humanize/number.py", "tests/test_number.py", ("freezegun",)
    ),
    "attrs": Real(
        "attrs", "generated classes", "src/attr/_make.py", "tests/test_make.py", ("hypothesis", "cloudpickle")
    ),
}


@dataclass(frozen=True)
class Unpacked:
    real: Real
    root: Path
    box_python: str = "/opt/watchtest/venv/bin/python"

    @property
    def test(self) -> str:
        return self.real.test

    @property
    def module(self) -> str:
        return self.real.module

    @property
    def packages(self) -> list[str]:
        return ["pytest", *self.real.needs]

    @property
    def setup(self) -> str:
        """Return the command that prepares it for its tests."""
        return f"pip install -q -e . {' '.join(self.packages)}"

    def host_python(self, venv: Path, root: Path, python: str = sys.executable, also: tuple[str, ...] = ()) -> str:
        """Create a virtualenv with the same packages and the project installed from that folder."""
        subprocess.run([python, "-m", "venv", str(venv)], check=True, timeout=120)
        python = str(venv / "bin" / "python")
        install = [python, "-m", "pip", "install", "-q", "-e", str(root), *self.packages, *also]
        subprocess.run(install, check=True, timeout=DOWNLOAD_LIMIT_S)
        return python


def unpack(name: str, into: Path) -> Unpacked:
    """Download and unpack the newest source distribution."""
    real = PROJECTS[name]
    archives = into / "archives"
    download = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", str(archives)]
    subprocess.run([*download, real.requirement], check=True, timeout=DOWNLOAD_LIMIT_S)
    (archive,) = archives.glob("*.tar.gz")
    with tarfile.open(archive) as stream:
        stream.extractall(into / "source", filter="data")
    (root,) = (into / "source").iterdir()
    return Unpacked(real, root)
