"""`watchtest resume`: end a pause and test what has changed meanwhile."""

from __future__ import annotations

from watchtest.commands import Subparsers, add_command, add_lane
from watchtest.commands.pause import set_paused


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(
        subparsers,
        "resume",
        lambda arguments: set_paused(arguments, "resume"),
        help="end a pause",
        description="Allow runs again and test what has changed meanwhile.",
        examples=("watchtest resume",),
    )
    add_lane(parser, "all lanes")
