"""Options that several commands share, so that they are spelled in one place."""

from __future__ import annotations

import argparse
from typing import get_args

from watchtest.core.model import EngineName
from watchtest.errors import UsageError

ENGINES: tuple[str, ...] = get_args(EngineName)


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=ENGINES, help="where tests run, instead of box.engine")


TRIGGERS = ("save", "stage", "commit")


def add_trigger(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trigger", action="append", default=[], metavar="T=POLICY", help="e.g. save=all, instead of [triggers]"
    )


def trigger_flags(arguments: argparse.Namespace) -> dict[str, object]:
    """As settings that outrank all others, those that were given."""
    return dict(_trigger(wish) for wish in arguments.trigger)


def _trigger(wish: str) -> tuple[str, object]:
    name, equals, policy = wish.partition("=")
    if not equals or name not in TRIGGERS:
        raise UsageError(
            f"--trigger {wish}: not a trigger", hint=f"write one of {', '.join(TRIGGERS)}, =, and a policy"
        )
    return f"triggers.{name}", policy


def engine_flag(arguments: argparse.Namespace) -> dict[str, object]:
    """As a setting that outranks all others, if it was given."""
    return {"box.engine": arguments.engine} if arguments.engine else {}
