"""The names of logs that keep the output of background commands."""

from __future__ import annotations

import pytest

from watchtest.commands.exec import log_name


@pytest.mark.parametrize(
    ("argv", "name"),
    [
        (["/usr/bin/python3.13", "-m", "x"], "python3.13"),
        (["./run me"], "run-me"),
        (["…"], "command"),
        ([".."], "command"),
    ],
)
def test_output_is_kept_under_the_name_of_the_program(argv: list[str], name: str) -> None:
    assert log_name(argv) == name
