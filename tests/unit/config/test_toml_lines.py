"""The lines on which the keys of a TOML file stand."""

from __future__ import annotations

from watchtest.config.toml_lines import lines_of_keys


def test_a_key_is_placed_by_statement_and_not_by_what_a_line_looks_like() -> None:
    text = 'note = """\n[box]\nengine = 1\n"""\nbox.image = "i"\n[box]\nsetup = [\n  "python = 3",\n]\npython = "p"\n'
    assert lines_of_keys(text) == {
        ("note",): 1,
        ("box",): 5,
        ("box", "image"): 5,
        ("box", "setup"): 7,
        ("box", "python"): 10,
    }


def test_in_pyproject_only_our_own_table_is_placed() -> None:
    text = '[tool.other]\nbox = 1\n[tool.watchtest.box]\nengine = "local"\n[project]\nbox.image = 1\n'
    assert lines_of_keys(text, ("tool", "watchtest")) == {("box",): 3, ("box", "engine"): 4}


def test_a_long_list_of_another_tool_does_not_hide_the_places_of_ours() -> None:
    foreign = "[project]\ndependencies = [\n" + '  "a",\n' * 500 + "]\n"
    text = f'[tool.watchtest.box]\nengine = "local"\n{foreign}[tool.watchtest.runner]\ntimeout_s = 3\n'
    places = lines_of_keys(text, ("tool", "watchtest"))
    assert places["box", "engine"] == 2
    assert places["runner", "timeout_s"] == 507
