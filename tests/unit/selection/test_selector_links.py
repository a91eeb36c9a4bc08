"""Tests that plain pytest collects through symlinks: after a change, each of them runs under each of its ids."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.selection_lab import Lab, missed

from watchtest.core.model import Only

NAMES_ITS_PATH = "def test_it(request):\n    assert not request.node.nodeid.startswith({start!r})\n"
PASSES = "def test_it():\n    pass\n"


def plain_pytest(root: Path) -> set[str]:
    """Return what pytest collects by itself."""
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    return {line for line in done.stdout.splitlines() if "::" in line}


def write(root: Path, path: str, content: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)


@pytest.fixture
def lab(tmp_path: Path) -> Lab:
    root = tmp_path / "project"
    write(root, "pytest.ini", "[pytest]\npythonpath = .\naddopts = -p no:cacheprovider\n")
    write(root, "real/test_old.py", PASSES)
    write(root, "real/conftest.py", "import pytest\n\n@pytest.fixture\ndef number():\n    return 1\n")
    write(root, "real/inner/test_deep.py", "def test_deep(number):\n    assert number\n")
    write(root, "real/test_empty.py", "import helper\n")
    write(root, "helper.py", "def one():\n    return 1\n")
    write(root, "elsewhere/test_far.py", PASSES)
    return Lab(root, tmp_path / "home")


def link_to_a_folder(root: Path) -> None:
    (root / "alias").symlink_to("real")


def chain(root: Path) -> None:
    (root / "alias").symlink_to("second")
    (root / "second").symlink_to("elsewhere/../third/.")
    (root / "third").symlink_to("real")


def link_from_below(root: Path) -> None:
    (root / "elsewhere" / "alias").symlink_to("../real")


def link_into_a_linked_folder(root: Path) -> None:
    (root / "elsewhere" / "alias").symlink_to("../real")
    (root / "deep").symlink_to("elsewhere/alias/inner")


def circle(root: Path) -> None:
    (root / "real" / "inner" / "loop").symlink_to("..")


def a_link_that_is_not_followed(root: Path) -> None:
    (root / "alias").symlink_to("real")
    with (root / "pytest.ini").open("a") as file:
        file.write("norecursedirs = alias\n")


LAYOUTS = [link_to_a_folder, chain, link_from_below, link_into_a_linked_folder, circle, a_link_that_is_not_followed]


def new_file(root: Path) -> None:
    write(root, "real/test_new.py", PASSES)


def new_deep_file(root: Path) -> None:
    write(root, "real/inner/deeper/test_newer.py", PASSES)


def changed_test(root: Path) -> None:
    write(root, "real/inner/test_deep.py", "def test_deep(number):\n    assert number == 2\n")


def new_test(root: Path) -> None:
    write(
        root, "real/inner/test_deep.py", "def test_deep(number):\n    assert number\n\ndef test_two():\n    assert 0\n"
    )


def first_test_of_a_file(root: Path) -> None:
    write(root, "real/test_empty.py", "import helper\n" + PASSES)


def conftest(root: Path) -> None:
    write(root, "real/conftest.py", "import pytest\n\n@pytest.fixture\ndef number():\n    return 0\n")


def shell_of_the_conftest(root: Path) -> None:
    write(
        root,
        "real/conftest.py",
        "import pytest\n\nA = 1\n\n@pytest.fixture(params=[1, 2])\ndef number():\n    return 1\n",
    )


def new_conftest(root: Path) -> None:
    write(root, "real/inner/conftest.py", "import pytest\n\n@pytest.fixture\ndef number():\n    return 0\n")


def deleted_file(root: Path) -> None:
    (root / "real/inner/test_deep.py").unlink()


def deleted_folder(root: Path) -> None:
    (root / "real/inner/test_deep.py").rename(root / "real/test_moved.py")


CHANGES = [
    *(new_file, new_deep_file, changed_test, new_test, first_test_of_a_file, conftest, shell_of_the_conftest),
    *(new_conftest, deleted_file, deleted_folder),
]


@pytest.mark.thorough
@pytest.mark.parametrize("change", CHANGES, ids=lambda each: each.__name__)
@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda each: each.__name__)
def test_after_a_change_every_id_that_pytest_finds_runs(
    lab: Lab, layout: Callable[[Path], None], change: Callable[[Path], None]
) -> None:
    layout(lab.root)
    before = lab.record()
    change(lab.root)
    selection = lab.select()
    after = lab.run()
    assert layout is circle or set(after.outcomes) == plain_pytest(lab.root), "behind 40 links, pytest fails by itself"
    assert missed(selection, before.outcomes, after.outcomes) == []


def test_a_new_file_that_fails_only_behind_a_link_is_run_there(lab: Lab) -> None:
    link_to_a_folder(lab.root)
    lab.record()
    write(lab.root, "real/test_new.py", NAMES_ITS_PATH.format(start="alias/"))
    selection = lab.select()
    assert isinstance(selection, Only)
    ran = lab.run(selection.tests, collects_all=selection.collects_all)
    assert ran.outcomes["alias/test_new.py::test_it"] == "failed"
    assert ran.outcomes["real/test_new.py::test_it"] == "passed"


@pytest.mark.thorough
def test_a_file_link_and_a_package_with_two_names_are_followed(lab: Lab) -> None:
    write(lab.root, "package/__init__.py", "")
    write(lab.root, "package/code.py", "def one():\n    return 1\n")
    (lab.root / "nickname").symlink_to("package")
    (lab.root / "test_linked.py").symlink_to("elsewhere/test_far.py")
    write(lab.root, "test_names.py", "def test_it():\n    from nickname.code import one\n    assert one() == 1\n")
    write(
        lab.root,
        "test_tries.py",
        "import importlib.util\n\ndef test_it():\n    assert not importlib.util.find_spec('nickname.extra')\n",
    )
    changes = (
        ("package/code.py", "def one():\n    return 2\n"),
        ("package/code.py", "X = 1\n\ndef one():\n    return 3 - 2\n"),
        ("package/extra.py", "X = 1\n"),
        ("elsewhere/test_far.py", "def test_it():\n    assert 0\n"),
        ("elsewhere/test_far.py", "def test_it():\n    pass\n\ndef test_more():\n    pass\n"),
    )
    for path, content in changes:
        before = lab.record()
        write(lab.root, path, content)
        selection = lab.select()
        assert missed(selection, before.outcomes, lab.run().outcomes) == [], (path, content)


@pytest.mark.thorough
def test_a_change_next_to_linked_folders_selects_no_more_than_without_them(lab: Lab) -> None:
    link_to_a_folder(lab.root)
    a_test = "from helper import one\n\ndef test_one():\n    assert one()\n"
    write(lab.root, "test_one.py", a_test)
    lab.record()
    write(lab.root, "helper.py", "def one():\n    return 2\n")
    selection = lab.select()
    assert isinstance(selection, Only)
    assert selection.first == ("test_one.py::test_one",)


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(5))
def test_random_links_hide_no_new_test(tmp_path: Path, seed: int) -> None:
    """One project holds many small trees with random links, so that one pytest answers for all of them."""
    chance = random.Random(seed)
    lab = Lab(tmp_path / "project", tmp_path / "home")
    write(lab.root, "pytest.ini", "[pytest]\naddopts = -p no:cacheprovider --import-mode=importlib\n")
    for number in range(10):
        top = f"t{number}"
        folders = [top, *(f"{top}/{name}" for name in ("a", "b", "a/c"))]
        for index, folder in enumerate(folders):
            write(lab.root, f"{folder}/test_{index}.py", PASSES)
        for index in range(chance.randint(1, 3)):
            # A link leads to a later folder only: circles multiply the tests by forty, and have a test of their own.
            place = chance.randrange(len(folders) - 1)
            where, target = folders[place], chance.choice([*folders[place + 1 :], f"{top}/a/c/test_3.py", f"{top}/x"])
            name = f"test_link_{index}.py" if target.endswith(".py") else f"link{index}"
            (lab.root / where / name).symlink_to(os.path.relpath(lab.root / target, lab.root / where))
    before = lab.record()
    assert set(before.outcomes) == plain_pytest(lab.root)
    for number in range(10):
        folder = f"t{number}/{chance.choice(['.', 'a', 'b', 'a/c'])}"
        write(lab.root, f"{folder}/test_new.py", PASSES)
        write(
            lab.root, f"t{number}/a/c/test_3.py", chance.choice([PASSES + "\ndef test_more():\n    pass\n", "A = 1\n"])
        )
    selection = lab.select()
    found = plain_pytest(lab.root)
    assert any("/test_new.py" in test for test in found)
    assert missed(selection, before.outcomes, dict.fromkeys(found, "passed")) == []
