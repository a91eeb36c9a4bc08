"""Options that several commands share, so that they are spelled in one place."""

from __future__ import annotations

import argparse
from typing import get_args

from watchtest.core.model import EngineName

ENGINES: tuple[str, ...] = get_args(EngineName)


def add_engine(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--engine", choices=ENGINES, help="where tests run, instead of box.engine")


def engine_flag(arguments: argparse.Namespace) -> dict[str, object]:
    """As a setting that outranks all others, if it was given."""
    return {"box.engine": arguments.engine} if arguments.engine else {}
