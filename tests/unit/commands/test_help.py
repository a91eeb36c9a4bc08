"""`watchtest help`: the links, commands, options and settings in the README and the topics exist."""

from __future__ import annotations

import argparse
import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from support import TESTS

from watchtest import cli
from watchtest.commands import COMMANDS
from watchtest.commands import help as command
from watchtest.config.keys import keys

ROOT = TESTS.parent
README = ROOT / "README.md"
FOLDER = ROOT / "watchtest" / "help"
TOPICS = sorted(file.stem for file in FOLDER.glob("*.md"))
DOCUMENTS = [README, *sorted(FOLDER.glob("*.md"))]
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"`([^`]+)`")
COMMAND = re.compile(r"(?<![\w/.-])watchtest (?P<words>[^|&;<>`\n]+)")
PLACES = re.compile(r"/(?:opt/wt|work|root)/|pypi|pythonhosted", re.IGNORECASE)
"""Paths of a developer's machine and hosts of a package index."""


def documents() -> pytest.MarkDecorator:
    return pytest.mark.parametrize("document", DOCUMENTS, ids=lambda file: file.name)


# -- the command -----------------------------------------------------------------------------------


def test_without_a_topic_it_lists_all_of_them_on_a_line_each(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    listed = dict(line.split(maxsplit=1) for line in lines[: lines.index("")])
    assert sorted(listed) == TOPICS
    assert all(len(line) <= 80 for line in lines[: lines.index("")])
    assert listed["lanes"] == "What starts a run, which code it tests, and the gate for git."


@pytest.mark.parametrize("topic", TOPICS)
def test_every_topic_renders_as_plain_text_without_a_terminal(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", topic]) == 0
    shown = capsys.readouterr().out
    title = (FOLDER / f"{topic}.md").read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")
    assert shown.split("\n")[0].strip() == title
    assert "\x1b" not in shown
    assert "](" not in shown
    assert not re.search(r"^#+ |^\| ", shown, re.MULTILINE)


def test_on_a_terminal_it_goes_through_the_pager(tmp_path: Path) -> None:
    paged = tmp_path / "paged"
    environ = {**os.environ, "TERM": "xterm-256color", "PAGER": f"cat >{paged}", "COLUMNS": "100"}
    environ.pop("NO_COLOR", None)
    ours, theirs = pty.openpty()
    try:
        words = [sys.executable, "-m", "watchtest", "help", "lanes"]
        done = subprocess.run(words, env=environ, stdin=theirs, stdout=theirs, stderr=theirs, timeout=30, check=False)
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 0
    text = paged.read_text(encoding="utf-8")
    assert "Lanes" in text
    assert "\x1b[1" in text


@pytest.mark.parametrize(("word", "meant"), [("lane", "lanes"), ("Selection", "selection"), ("gat", "gate")])
def test_an_unknown_topic_is_an_error_that_suggests_one(
    word: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["help", word]) == 2
    said = capsys.readouterr().err
    assert f"no topic or command {word!r}" in said
    assert f"did you mean `watchtest help {meant}`?" in said


def test_a_word_like_no_topic_gets_no_suggestion(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "xyzzy"]) == 2
    said = capsys.readouterr().err
    assert "did you mean" not in said
    assert "`watchtest help` lists the topics" in said


@pytest.mark.parametrize("words", [["gate"], ["history", "flaky"]])
def test_the_name_of_a_command_shows_its_options(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["help", *words])
    assert ended.value.code == 0
    assert f"watchtest {' '.join(words)} [-h]" in capsys.readouterr().out


def test_a_topic_named_like_a_command_points_to_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["help", "history"]) == 0
    assert "watchtest history --help lists the options of the command." in capsys.readouterr().out


def test_the_list_of_topics_does_not_import_rich() -> None:
    program = "import sys; from watchtest import cli; cli.main(['help']); print('rich' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.splitlines()[-1] == "False"


def test_a_link_to_another_topic_becomes_the_command_that_shows_it(capsys: pytest.CaptureFixture[str]) -> None:
    cli.main(["help", "engines"])
    assert "(watchtest help box)" in " ".join(capsys.readouterr().out.split())


# -- what the documents say ------------------------------------------------------------------------


@cache
def parsers() -> dict[str, argparse.ArgumentParser]:
    """Return every command and subcommand by its words; the program itself has the empty name."""
    found: dict[str, argparse.ArgumentParser] = {}

    def walk(parser: argparse.ArgumentParser, name: str) -> None:
        found[name] = parser
        for word, below in _subparsers(parser).items():
            walk(below, f"{name} {word}".strip())

    walk(cli._parser(None), "")
    return found


def _subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(actions[0].choices) if actions else {}


def code_of(text: str) -> Iterator[str]:
    """Return every line of a code block and every code span."""
    for block in FENCED.findall(text):
        yield from block.splitlines()[1:-1]
    yield from (" ".join(span.split()) for span in SPAN.findall(FENCED.sub("", text)))


def problem(words: list[str]) -> str:
    """Return what is wrong with the words after `watchtest`; empty if nothing is."""
    name, rest = "", list(words)
    while rest and (below := _subparsers(parsers()[name])):
        if rest[0].startswith("-") or not rest[0][0].isalpha():
            break
        verbs = rest[0].split("|")
        if unknown := [verb for verb in verbs if verb not in below]:
            return "" if rest[0].isupper() else f"no command {name} {unknown[0]}"
        name, rest = f"{name} {verbs[0]}".strip(), rest[1:]
    known = parsers()[name or cli.DEFAULT]._option_string_actions | parsers()[""]._option_string_actions
    for word in rest:
        if word == "--":
            break
        option = word.strip("[]().,:…").partition("=")[0]
        if option.startswith("-") and option not in known:
            return f"{name}: no option {option}"
    return ""


def test_the_check_of_commands_finds_what_is_wrong() -> None:
    assert problem(["history", "list", "--json"]) == ""
    assert problem(["exec", "--", "pip", "--nonsense"]) == ""
    assert problem(["--plain"]) == ""
    assert problem(["histroy"])
    assert problem(["history", "lisst"])
    assert problem(["gate", "--stagged"])


@pytest.mark.parametrize("name", sorted(name for name in parsers() if name))
def test_every_command_has_a_description_and_an_example(name: str) -> None:
    parser = parsers()[name]
    assert (parser.description or "").endswith(".")
    title, _, examples = (parser.epilog or "").partition("\n")
    assert title in ("example:", "examples:")
    for line in examples.splitlines():
        words = line.split("#")[0].split(" && ")[-1].split(" | ")[0].split(" > ")[0].split()
        assert words[0] == "curl" or (words[0] == "watchtest" and problem(words[1:]) == "")
    without_help = [action.dest for action in parser._actions if not action.help and action.choices is None]
    assert without_help == []


def test_the_help_of_the_program_explains_box_lane_and_gate(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["--help"])
    shown = capsys.readouterr().out
    assert all(f"\n  {word} " in shown for word in ("box ", "lane", "gate"))
    assert all(len(line) <= 80 for line in shown.partition("\nwords:")[2].splitlines())


@documents()
def test_every_command_and_option_that_is_named_exists(document: Path) -> None:
    wrong = {}
    for code in code_of(document.read_text(encoding="utf-8").replace("\\|", "|")):
        # A list of choices such as show|validate is kept; any other | ends a command.
        joined = re.sub(r"(?<=[a-z])\|(?=[a-z])", "\0", code)
        for found in COMMAND.finditer(joined):
            words = found["words"].replace("\0", "|").split("#")[0].split()
            if words and (said := problem(words)):
                wrong[code] = said
    assert wrong == {}


@documents()
def test_every_relative_link_points_to_a_file(document: Path) -> None:
    text = FENCED.sub("", document.read_text(encoding="utf-8"))
    links = [link for link in re.findall(r"\]\(([^)\s]+)\)", text) if not link.startswith(("http:", "https:"))]
    missing = [link for link in links if not (document.parent / link.partition("#")[0]).exists()]
    assert missing == []


@pytest.mark.parametrize("document", [*DOCUMENTS, FOLDER / "dashboard.svg"], ids=lambda file: file.name)
def test_no_document_names_a_package_index_or_a_path_of_a_machine(document: Path) -> None:
    assert PLACES.findall(document.read_text(encoding="utf-8")) == []


def test_the_readme_has_every_command_in_its_table() -> None:
    text = README.read_text(encoding="utf-8")
    section = text.partition("\n## Commands\n")[2].partition("\n## ")[0]
    rows = [row.split(" | ")[0] for row in section.splitlines() if row.startswith("| `")]
    named = {re.split(r"[ |\\]", span.removeprefix("watchtest "))[0] for row in rows for span in SPAN.findall(row)}
    assert named == set(COMMANDS)


def test_the_readme_is_short_and_links_to_every_topic() -> None:
    text = README.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 200
    assert sorted(re.findall(r"\(watchtest/help/([a-z-]+)\.md\)", text)) == TOPICS


def test_the_topic_of_settings_has_every_setting() -> None:
    text = (FOLDER / "config.md").read_text(encoding="utf-8")
    assert {key for key in keys() if f"| `{key}` |" not in text} == set()


def test_the_topic_of_development_has_every_package() -> None:
    text = (FOLDER / "development.md").read_text(encoding="utf-8")
    packages = {folder.name for folder in (ROOT / "watchtest").iterdir() if folder.is_dir() and folder.name[0] != "_"}
    assert {name for name in packages if f"| `{name}/` |" not in text} == set()


def test_the_picture_loads_nothing_from_elsewhere() -> None:
    picture = (FOLDER / "dashboard.svg").read_text(encoding="utf-8")
    assert set(re.findall(r"https?:[^\"')\s]+", picture)) == {"http://www.w3.org/2000/svg"}
    assert "@font-face" not in picture
    assert "FAILED" in picture


def test_each_topic_begins_with_a_title_and_a_summary() -> None:
    for name, text in command.topics().items():
        assert re.match(r"# [A-Z]\w+", text), name
        assert command.summary(text).endswith("."), name
