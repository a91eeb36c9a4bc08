"""Why tests ran: one test by its id, or all tests of a function or class."""

from __future__ import annotations

from pathlib import Path

from support.selection_lab import Lab

from watchtest.selection.explanation import explain

MODULE = """\
def double(n):
    return 2 * n


def half(n):
    return n // 2
"""
TESTS = """\
import pytest

import mod


@pytest.mark.parametrize("n", [1, 2])
def test_double(n):
    assert mod.double(n) == 2 * n


class TestHalf:
    def test_half(self):
        assert mod.half(4) == 2

    def test_both(self):
        assert mod.half(mod.double(4)) == 4
"""


def test_a_function_or_a_class_stands_for_all_its_tests(tmp_path: Path) -> None:
    root = tmp_path / "project"
    root.mkdir()
    (root / "pytest.ini").write_text("[pytest]\n")
    (root / "mod.py").write_text(MODULE)
    (root / "test_mod.py").write_text(TESTS)
    lab = Lab(root, tmp_path / "home", args=("-q",))
    lab.record()
    (root / "mod.py").write_text(MODULE.replace("n // 2", "n / 2"))
    lab.select()

    several = explain(lab.selector, "test_mod.py::test_double")
    assert several is not None
    assert (several["tests"], several["selected"], several["wave"]) == (2, False, None)
    assert several["functions"] == {"mod.py": ["double"], "test_mod.py": ["test_double"]}

    of_class = explain(lab.selector, "test_mod.py::TestHalf")
    assert of_class is not None
    assert (of_class["tests"], of_class["wave"], of_class["because"]) == (2, 1, ["mod.py: half changed"])
    assert of_class["functions"]["mod.py"] == ["double", "half"]

    one = explain(lab.selector, "test_mod.py::test_double[1]")
    assert one is not None
    assert one["tests"] == 1
    assert explain(lab.selector, "test_mod.py::test_doub") is None
