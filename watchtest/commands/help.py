"""`watchtest help`: read the reference, or list its topics.

Show a topic of the reference; on a terminal, through a pager. Without a topic, list them all. The name of a command
shows its options.

    watchtest help                  # list the topics
    watchtest help lanes            # read about lanes
    watchtest help history flaky    # show the options of a command
"""

from __future__ import annotations

import argparse
import io
import os
import re
import sys
from difflib import get_close_matches
from importlib.resources import files

from watchtest.commands import COMMANDS
from watchtest.core.text import uncleaned
from watchtest.errors import UsageError

LINK = re.compile(r"\[([^\]]+)\]\(([a-z-]+)\.md(?:#[\w-]*)?\)")
"""A link from one topic to another."""
OTHER_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:)[^)]*\)")
"""A link to a file of the source tree, which an installed package does not have."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("words", nargs="*", metavar="TOPIC", help="a topic, or a command (default: list the topics)")


def run(arguments: argparse.Namespace) -> int:
    words: list[str] = arguments.words
    found = topics()
    if not words:
        _print_list(found)
        return 0
    if len(words) == 1 and words[0] in found:
        _show(found[words[0]], words[0] if words[0] in COMMANDS else "")
        return 0
    if words[0] in COMMANDS:
        return int(arguments.main([*words, "--help"]))
    name = " ".join(words)
    close = get_close_matches(name.lower(), [*found, *COMMANDS], n=1)
    hint = f"did you mean `watchtest help {close[0]}`? " if close else ""
    raise UsageError(f"help: no topic or command {name!r}", hint=f"{hint}`watchtest help` lists the topics")


def topics() -> dict[str, str]:
    """Return the text of every topic by its name: the Markdown files in `watchtest/help`, in alphabetical order."""
    folder = files("watchtest") / "help"
    found = (file for file in folder.iterdir() if file.name.endswith(".md"))
    return {file.name.removesuffix(".md"): file.read_text("utf-8") for file in sorted(found, key=lambda f: f.name)}


def summary(text: str) -> str:
    """Return the first paragraph below the title, on one line and without markup."""
    paragraph = text.partition("\n\n")[2].partition("\n\n")[0]
    return LINK.sub(r"\1", " ".join(paragraph.split())).replace("`", "").replace("*", "")


def _print_list(found: dict[str, str]) -> None:
    width = max(map(len, found))
    for name, text in found.items():
        print(f"{name:<{width}}  {summary(text)}")
    print("\n`watchtest help TOPIC` shows one of them, `watchtest help COMMAND` the options of a command.")


def _show(text: str, command: str) -> None:
    from rich.console import Console
    from rich.markdown import Markdown

    text = OTHER_LINK.sub(r"\1", LINK.sub(r"\1 (`watchtest help \2`)", text))
    if command:
        text += f"\n\n`watchtest {command} --help` lists the options of the command.\n"
    stream = uncleaned(sys.stdout)
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")
    console = Console(file=stream, highlight=False)
    markdown = Markdown(text, hyperlinks=False)
    if not console.is_terminal:
        console.print(markdown)
        return
    os.environ.setdefault("LESS", "FRX")  # without R, less shows colours as escape codes
    with console.pager(styles=True):
        console.print(markdown)
