"""Manual changes in the box are remembered until they are gone or kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from watchtest.errors import WorkspaceError
from watchtest.workspace import manual_changes


def test_commands_are_told_once_in_their_order(tmp_path: Path) -> None:
    for argv in (["pip", "install", "a b"], ["sh", "-c", "one\ntwo"], ["pip", "install", "a b"]):
        manual_changes.record_command(tmp_path, argv)
    assert manual_changes.changes(tmp_path) == ("sh -c 'one two'", "pip install 'a b'")
    assert manual_changes.take_changes(tmp_path) == ("sh -c 'one two'", "pip install 'a b'")
    assert manual_changes.changes(tmp_path) == manual_changes.take_changes(tmp_path) == ()


@pytest.mark.parametrize("argv", [["/bin/ls", "-l"], ["pip", "list"], ["/opt/watchtest/venv/bin/pip", "show", "six"]])
def test_a_look_is_not_worth_a_line(tmp_path: Path, argv: list[str]) -> None:
    manual_changes.record_command(tmp_path, argv)
    assert manual_changes.changes(tmp_path) == ()


@pytest.mark.parametrize("argv", [["find", ".", "-delete"], ["env", "A=1", "sh"], ["pip", "install"]])
def test_a_command_that_can_do_more_than_look_is(tmp_path: Path, argv: list[str]) -> None:
    manual_changes.record_command(tmp_path, argv)
    assert len(manual_changes.changes(tmp_path)) == 1


def test_the_list_does_not_grow_without_end(tmp_path: Path) -> None:
    for number in range(manual_changes.CHANGES_LIMIT + 5):
        manual_changes.record_command(tmp_path, ["touch", str(number)])
    taken = manual_changes.take_changes(tmp_path)
    assert len(taken) == manual_changes.CHANGES_LIMIT
    assert taken[-1] == f"touch {manual_changes.CHANGES_LIMIT + 4}"


def test_a_change_that_cannot_be_recorded_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="by-hand"):
        manual_changes.record_command(tmp_path / "gone", ["touch", "x"])
