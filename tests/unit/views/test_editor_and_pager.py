"""The commands of editors and pagers."""

from __future__ import annotations

import pytest

from watchtest.views.editor_and_pager import editor, pager


def everything(name: str) -> str | None:
    return f"/usr/bin/{name}"


def nothing(_name: str) -> str | None:
    return None


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("vim", ["vim", "+7", "a b.py"]),
        ("/usr/bin/nvim -n", ["/usr/bin/nvim", "-n", "+7", "a b.py"]),
        ("code --wait", ["code", "--wait", "--goto", "a b.py:7"]),
        ("hx", ["hx", "a b.py:7"]),
        ("pycharm", ["pycharm", "--line", "7", "a b.py"]),
        ("ed", ["ed", "a b.py"]),
        ("'", ["'", "a b.py"]),
    ],
)
def test_an_editor_is_told_the_line_in_its_own_way(command: str, words: list[str]) -> None:
    assert editor({"EDITOR": command}, everything, "a b.py", 7) == words
    assert editor({"EDITOR": "x", "VISUAL": command}, everything, "a b.py", 7) == words


def test_without_a_setting_the_installed_programs_are_used() -> None:
    assert editor({}, everything, "a.py", 7) == ["editor", "+7", "a.py"]
    assert editor({}, nothing, "a.py", 7) == []
    assert pager({}, everything) == ["less", "-+F"]
    assert pager({"PAGER": "most -s"}, everything) == ["most", "-s"]
    assert pager({}, nothing) == []
