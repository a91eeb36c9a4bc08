"""Nasty edits: each changes the outcome of at least one test, and every such test is in the selection.

All edits share one recording; each is made to its own copy and followed by a cold run of everything. Recording works in
two ways, before Python 3.12 and since: WATCHTEST_LAB_PYTHON names a second Python with pytest to cover both.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.nasty_edits import EDITS, UNSOUND, Edit, add, change, edit
from support.selection_lab import Lab, covers, missed

from watchtest.core.model import Only

SAMPLE = Path(__file__).parents[1] / "samples" / "nasty"
PYTHONS = {"ours": sys.executable}
if "WATCHTEST_LAB_PYTHON" in os.environ:
    PYTHONS["another"] = os.environ["WATCHTEST_LAB_PYTHON"]

NOTHING = (
    edit("a comment", change("shop/prices.py", "# The inverse.", "# The inverse, nearly.\n    # It is.")),
    edit("blank lines", change("shop/kinds.py", "class Registered", "\n\n\nclass Registered")),
    edit("a comment at the top", change("shop/shapes.py", "import asyncio", "# Before all.\nimport asyncio")),
    edit(
        "brackets and line breaks",
        change("shop/prices.py", "gross * 100 // 120", "(\n        gross * 100\n        // 120\n    )"),
    ),
    edit("a text for people", add("README.md", "Read me.")),
)
"""These change nothing, and select nothing but tests that might see anything."""


@pytest.fixture(scope="module", params=PYTHONS)
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
        patch.delenv("PYTEST_ADDOPTS", raising=False)
        folder = tmp_path_factory.mktemp("nasty")
        shutil.copytree(SAMPLE, folder / "project", symlinks=True)
        lab = Lab(folder / "project", folder / "home", python=PYTHONS[request.param])
        ran = lab.record()
        assert set(ran.outcomes.values()) == {"passed"}, ran.output
        yield lab


@pytest.fixture
def lab(recorded: Lab, tmp_path: Path) -> Lab:
    """A fresh copy of the project with the same recording."""
    shutil.copytree(SAMPLE, tmp_path / "project", symlinks=True)
    fresh = Lab(tmp_path / "project", tmp_path / "home", python=recorded.python)
    fresh.base, fresh.known, fresh.selector = recorded.base, recorded.known, recorded.selector
    return fresh


def apply(one: Edit, lab: Lab) -> None:
    for step in one.steps:
        step(lab.root)


IN_THE_DEFAULT_RUN = {
    "the body of a function",
    "a constant",
    "a decorator that goes",
    "a special method",
    "a module that goes",
    "a module that becomes a package",
    "a new conftest.py",
    "what a fixture calls",
    "a fixture of a folder",
    "data that is read at import",
    "a data file",
    "a file in a listed folder",
    "a program that a test starts",
    "a file that does not parse",
    "a new test in an old file",
    "a setting of pytest",
}


@pytest.mark.parametrize(
    "one",
    [
        pytest.param(one, marks=() if one.words in IN_THE_DEFAULT_RUN else pytest.mark.thorough)
        for one in [*EDITS, *UNSOUND]
    ],
    ids=lambda one: one.words,
)
def test_no_test_is_left_out_whose_outcome_changes_with(one: Edit, lab: Lab) -> None:
    apply(one, lab)
    selection = lab.select()
    ran = lab.run()
    assert ran.outcomes != lab.known, "this edit changes nothing"
    assert missed(selection, lab.known, ran.outcomes) == sorted(one.left_out), (one.reason, selection.because)
    if isinstance(selection, Only):
        assert all(covers(selection, test) for test in selection.first)
    else:
        assert lab.selector.impacts, "all tests were selected without a reason"


@pytest.mark.parametrize("one", NOTHING, ids=lambda one: one.words)
def test_nothing_is_selected_for(one: Edit, lab: Lab) -> None:
    apply(one, lab)
    selection = lab.select()
    assert isinstance(selection, Only)
    opaque = frozenset(lab.selector.test_map.names(lab.selector.test_map.opaque()))
    assert frozenset(selection.tests) <= opaque
    assert selection.first == ()


@pytest.mark.parametrize(
    ("step", "first"),
    [
        (change("shop/prices.py", "* 100 // 120", "* 100 // 110"), ["test_net", "test_net_of_nothing"]),
        (change("shop/shapes.py", "value + amount", "value - amount"), ["test_a_function_in_a_function"]),
        (change("data/template.txt", "hello", "goodbye"), ["test_a_template"]),
    ],
    ids=["a function", "a function in a function", "a data file"],
)
def test_few_tests_are_selected_for(step: Edit, first: list[str], lab: Lab) -> None:
    apply(edit("", step), lab)
    selection = lab.select()
    assert isinstance(selection, Only)
    opaque = frozenset(lab.selector.test_map.names(lab.selector.test_map.opaque()))
    assert [test.rpartition("::")[2] for test in selection.first] == first
    assert frozenset(selection.tests) - opaque == frozenset(selection.first)
    assert len(opaque) < 12
