"""uv and poetry really install their projects into the box's virtualenv, from the project files alone."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from engine.images import PYTHON_313
from support.wheels import write_wheel

from watchtest.boxes.inventory import remove_boxes

SAME_PLACE = """
import importlib.util, os, sys


def test_the_tool_itself_is_not_among_what_the_project_has():
    assert sys.prefix == os.environ["VIRTUAL_ENV"]
    assert [name for name in ("uv", "poetry", "cleo", "keyring") if importlib.util.find_spec(name)] == []
"""
UV = {
    "pyproject.toml": """
        [project]
        name = "shop"
        version = "1"
        requires-python = ">=3.11"
        dependencies = ["iniconfig>=2.1"]
        [dependency-groups]
        dev = ["pytest"]
        [build-system]
        requires = ["hatchling"]
        build-backend = "hatchling.build"
        [tool.uv]
        """,
    ".python-version": "3.9\n",  # the box has another version, which is used and neither replaced nor refused
    "src/shop/__init__.py": "PRICE = 3\n",
    "test_shop.py": SAME_PLACE
    + """

def test_the_project_and_what_it_needs_are_there():
    from importlib.metadata import version
    from shop import PRICE
    assert PRICE == 3
    assert version("iniconfig") >= "2.1", "the image has an older one"
""",
}
POETRY = {
    "pyproject.toml": """
        [tool.poetry]
        name = "shop"
        version = "1"
        description = ""
        authors = []
        packages = [{include = "shop", from = "src"}]
        [tool.poetry.dependencies]
        python = ">=3.11"
        till = {file = "till-1-py3-none-any.whl"}
        [build-system]
        requires = ["poetry-core"]
        build-backend = "poetry.core.masonry.api"
        """,
    "src/shop/__init__.py": "PRICE = 3\n",
    "test_shop.py": SAME_PLACE
    + """

def test_the_project_and_what_it_needs_are_there():
    from shop import PRICE
    from till import OPEN
    assert (PRICE, OPEN) == (3, True)
""",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "shop"
    folder.mkdir()
    yield folder
    remove_boxes(str(folder), os.environ)


@pytest.mark.timeout(300)
@pytest.mark.thorough
@pytest.mark.parametrize("files", [pytest.param(UV, id="uv"), pytest.param(POETRY, id="poetry")])
def test_it_is_set_up_and_green(workspace: Path, files: dict[str, str]) -> None:
    write_wheel(workspace)
    for path, text in files.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text("\n".join(line.removeprefix(" " * 8) for line in text.split("\n")))
    environ = {**os.environ, "WATCHTEST_BOX_IMAGE": PYTHON_313, "WATCHTEST_NOTIFY_DESKTOP": "false"}
    environ |= {f"WATCHTEST_{name}_DIR": str(workspace.parent / name) for name in ("CACHE", "STATE")}
    command = [sys.executable, "-m", "watchtest", "-C", str(workspace), "watch", "--once", "--plain"]
    for _ in range(2):  # the response time of the index is not under test
        done = subprocess.run(
            [*command, "--engine", "docker"], env=environ, capture_output=True, text=True, timeout=140, check=False
        )
        if "timed out" not in done.stdout:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed 2 tests " in done.stdout, done.stdout
