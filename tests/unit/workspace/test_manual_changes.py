"""Manual changes in the box are remembered until they are gone or kept."""

from __future__ import annotations

from pathlib import Path

from watchtest.workspace import manual_changes


def test_commands_are_told_once_in_their_order(tmp_path: Path) -> None:
    manual_changes.record_change(tmp_path, ["pip", "install", "a b"])
    manual_changes.record_change(tmp_path, ["sh", "-c", "one\ntwo"])
    assert manual_changes.take_changes(tmp_path) == ("pip install 'a b'", "sh -c 'one two'")
    assert manual_changes.take_changes(tmp_path) == ()


def test_a_look_is_not_worth_a_line(tmp_path: Path) -> None:
    manual_changes.record_change(tmp_path, ["/bin/ls", "-l"])
    assert manual_changes.take_changes(tmp_path) == ()


def test_the_list_does_not_grow_without_end(tmp_path: Path) -> None:
    for number in range(manual_changes.CHANGES_LIMIT + 5):
        manual_changes.record_change(tmp_path, ["touch", str(number)])
    taken = manual_changes.take_changes(tmp_path)
    assert len(taken) == manual_changes.CHANGES_LIMIT
    assert taken[-1] == f"touch {manual_changes.CHANGES_LIMIT + 4}"


def test_a_folder_that_cannot_be_written_does_not_fail_the_command(tmp_path: Path) -> None:
    manual_changes.record_change(tmp_path / "gone", ["touch", "x"])
    assert manual_changes.take_changes(tmp_path / "gone") == ()
