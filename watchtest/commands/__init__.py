"""The commands, one module each: `add_to(subparsers)` declares the options, `run(arguments)` returns the exit code."""

from __future__ import annotations

import argparse
import sys

from watchtest.client.status_file import LANES
from watchtest.core.text import clean

TYPE_CHECKING = False  # typing would make `watchtest status` slower
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

COMMANDS = (
    "watch",
    "start",
    "stop",
    "restart",
    "attach",
    "status",
    "run",
    "cancel",
    "pause",
    "resume",
    "policy",
    "output",
    "edit",
    "gate",
    "history",
    "why",
    "exec",
    "shell",
    "logs",
    "snapshot",
    "reset",
    "sync",
    "doctor",
    "ps",
    "prune",
    "init",
    "config",
    "api",
    "demo",
    "help",
)
"""Every command, in the order of the help."""

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What `add_subparsers` returns; argparse keeps its type private."""


class CommandHelp(argparse.HelpFormatter):
    """Wraps text of one line (a description) and leaves text of several lines (examples) as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return super()._fill_text(text, width, indent) if "\n" not in text else text


def add_command(
    subparsers: Subparsers, name: str, run: Callable[[argparse.Namespace], int] | None, doc: str | None
) -> argparse.ArgumentParser:
    """Add a command, or a verb of a command, and return its parser. `run` is None for a command that has verbs.

    Its help is the docstring of its module or function: the first line, after the colon, is the line in the list of
    commands; the paragraphs in the middle are the description, and the last one holds the examples.
    """
    summary, *description, examples = doc.split("\n\n") if doc else ("", "")
    lines = [line.strip() for line in examples.strip().splitlines()]
    parser = subparsers.add_parser(
        name,
        help=summary.partition("`: ")[2].rstrip("."),
        description=" ".join(" ".join(description).split()),
        epilog="\n  ".join(("example:" if len(lines) == 1 else "examples:", *lines)),
        formatter_class=CommandHelp,
    )
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_lane(parser: argparse.ArgumentParser, default: str = "the highest lane that is on") -> None:
    text = f"use this lane: a trigger with the code it tests and its own box (default: {default})"
    parser.add_argument("--lane", choices=LANES, help=text)


def add_wait(parser: argparse.ArgumentParser, text: str) -> None:
    parser.add_argument("--wait", action="store_true", help=text)
    text = "with --wait: give up after S seconds (exit code 124)"
    parser.add_argument("--timeout", type=float, metavar="S", help=text)


def check_wait(arguments: argparse.Namespace) -> None:
    """Exit with a usage error for a --timeout without --wait."""
    if arguments.timeout is not None and not arguments.wait:
        arguments.parser.error("argument --timeout: needs --wait")


def say(text: str) -> None:
    """Print a message to stderr. Some of them quote text from inside the box."""
    print(f"watchtest: {clean(text)}", file=sys.stderr, flush=True)
