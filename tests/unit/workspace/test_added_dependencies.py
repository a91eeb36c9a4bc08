"""Additions are remembered; a damaged file or one that cannot be written costs nothing but the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from watchtest.workspace.added_dependencies import NAMES_LIMIT, AddedDependencies


def test_names_are_kept_in_their_order_and_forgotten_on_request(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "added.json"
    AddedDependencies(file).add(["b", "a"])
    AddedDependencies(file).add(["c", "a"])
    assert AddedDependencies(file).names() == ("b", "a", "c")
    AddedDependencies(file).forget()
    AddedDependencies(file).forget()
    assert AddedDependencies(file).names() == ()


@pytest.mark.parametrize("content", ["", "{", "3", '{"a": 1}', '[3, null, "-x", "a b", "../a", "A"]'])
def test_a_damaged_file_counts_as_empty(tmp_path: Path, content: str) -> None:
    (tmp_path / "added.json").write_text(content)
    assert AddedDependencies(tmp_path / "added.json").names() == ()


def test_a_file_that_cannot_be_written_leads_to_no_endless_repetition(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    added = AddedDependencies(tmp_path / "file" / "added.json")
    added.add(["a"])
    assert added.names() == ("a",)


def test_there_is_a_limit(tmp_path: Path) -> None:
    added = AddedDependencies(tmp_path / "added.json")
    added.add(f"a{number}" for number in range(NAMES_LIMIT * 2))
    assert len(added.names()) == NAMES_LIMIT
