"""`watchtest resume`: end a pause.

Allow runs again and test what has changed meanwhile.

    watchtest resume
"""

from __future__ import annotations

from watchtest.commands import Subparsers, add_command, add_lane
from watchtest.commands.pause import set_paused


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "resume", lambda arguments: set_paused(arguments, "resume"), __doc__)
    add_lane(parser, "all lanes")
