"""The commands, one module each: `add_options(parser)` declares the options, `run(arguments)` returns the exit code.

A command without options has no `add_options`. A command with verbs adds them there; each verb has a `run` of its own.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import sys

from watchtest.client.status_file import LANES
from watchtest.core.text import clean, names
from watchtest.errors import UsageError, WorkspaceError
from watchtest.workspace.folder import FOLDER, OwnFolder, find_workspace

TYPE_CHECKING = False  # typing would make `watchtest status` slower
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path
    from typing import TypeAlias

    from watchtest.config import LoadedConfig, Project

# fmt: off
COMMANDS = (
    "watch", "start", "stop", "restart", "attach", "status", "run", "cancel", "pause", "resume", "policy", "output",
    "edit", "gate", "history", "why", "exec", "shell", "logs", "snapshot", "reset", "sync", "doctor", "ps", "prune",
    "init", "config", "trust", "api", "demo", "help",
)
# fmt: on
"""Every command, in the order of the help."""

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"
"""What `add_subparsers` returns; argparse keeps its type private."""


class CommandHelp(argparse.HelpFormatter):
    """Wraps text of one line (a description) and leaves text of several lines (examples) as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return super()._fill_text(text, width, indent) if "\n" not in text else text


def add_module(subparsers: Subparsers, name: str, module_name: str = "") -> None:
    """Import the module of a command, or of a verb, and add it. A verb also needs the name of its module."""
    module = importlib.import_module(f"watchtest.commands.{module_name or name}")
    parser = add_command(subparsers, name, getattr(module, "run", None), module.__doc__)
    if hasattr(module, "add_options"):
        module.add_options(parser)


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


def add_engine(parser: argparse.ArgumentParser, *, opens_box: bool = True) -> None:
    """Add --engine, and --trust for a command that may create a box or run something in it."""
    from typing import get_args

    from watchtest.core.model import EngineName

    parser.add_argument("--engine", choices=get_args(EngineName), help="engine to use, instead of box.engine")
    if opens_box:
        text = "allow what the project's settings ask of this machine, for this command only (see `watchtest trust`)"
        parser.add_argument("--trust", action="store_true", help=text)


def add_trigger(parser: argparse.ArgumentParser) -> None:
    text = "set the policy of a trigger, for example save=all, instead of [triggers]; may be repeated"
    parser.add_argument("--trigger", action="append", default=[], metavar="T=POLICY", help=text)


def load_settings(arguments: argparse.Namespace, more: Mapping[str, object] | None = None) -> tuple[Path, LoadedConfig]:
    """Return the workspace and its settings. --engine, --trigger and `more` override what the files say."""
    from watchtest.config import load
    from watchtest.workspace.user_dirs import config_dir

    folder = find_workspace(arguments.workspace)
    flags = {**(more or {}), **dict(map(_trigger_setting, getattr(arguments, "trigger", ())))}
    if getattr(arguments, "engine", None):
        flags["box.engine"] = arguments.engine
    explicit, environ = arguments.config, os.environ
    return folder, load(folder, explicit=explicit, environ=environ, user_folder=config_dir(), flags=flags)


def load_project(arguments: argparse.Namespace, more: Mapping[str, object] | None = None) -> Project:
    """Return the workspace with its settings, the environment and the user's folders, for a command that writes."""
    from watchtest.config import Project
    from watchtest.workspace.user_dirs import user_dirs

    folder, loaded = load_settings(arguments, more)
    check_own_folder(folder)
    is_trusted = getattr(arguments, "trust", False)
    return Project(folder, loaded.config, os.environ, user_dirs(), loaded.requests, is_trusted)


def check_own_folder(workspace: Path) -> None:
    """Raise WorkspaceError if the `.watchtest` folder is not ours alone: a link, or a part of the repository."""
    from watchtest.sources.git import Git, GitError

    OwnFolder(workspace / FOLDER).check()
    try:
        tracked = Git(workspace, os.environ).tracked(FOLDER)
    except GitError:
        return  # without git, nothing is tracked; other problems are reported where git is needed
    if tracked:
        text = f"{workspace / FOLDER} is watchtest's own folder, but git tracks files in it: {names(tracked)}"
        hint = f"git rm -r --cached {FOLDER}, and commit; settings that a team shares belong in watchtest.toml"
        raise WorkspaceError(text, hint=hint)


def _trigger_setting(option: str) -> tuple[str, str]:
    name, equals, policy = option.partition("=")
    if not equals or name not in LANES:
        hint = f"write one of {', '.join(LANES)}, =, and a policy"
        raise UsageError(f"--trigger {option}: not a trigger", hint=hint)
    return f"triggers.{name}", policy


def print_json(document: object) -> None:
    print(json.dumps(document, indent=2))


def say(text: str) -> None:
    """Print a message to stderr. Some of them quote text from inside the box."""
    print(f"watchtest: {clean(text)}", file=sys.stderr, flush=True)
