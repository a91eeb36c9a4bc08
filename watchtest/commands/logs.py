"""`watchtest logs [NAME]`: what a service, or a command left running, has said. Without a name: what there is."""

from __future__ import annotations

import argparse

from watchtest.commands.exec import say
from watchtest.commands.options import add_engine, engine_flag

LIST = 'cd "$1" 2>/dev/null && for file in *.log; do test -e "$file" && echo "${file%.log}"; done; true'
SHOW = 'test -e "$1" || exit 44; exec tail -n "$2" $3 "$1"'
NOT_THERE = 44


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("logs", help="output of a service, or of a command left running")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the service or command; without: list them")
    parser.add_argument("-n", "--lines", type=_count, default=100, metavar="N", help="so many of the last lines")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as it grows")
    add_engine(parser)
    parser.set_defaults(run=run)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def run(arguments: argparse.Namespace) -> int:
    from watchtest.commands.outside import setting_of
    from watchtest.core.model import Lane
    from watchtest.errors import UsageError
    from watchtest.parts import choose_place

    setting = setting_of(arguments, engine_flag(arguments))
    place = choose_place(setting, Lane.SAVE, say)
    folder = f"{place.home}/logs"
    try:
        if arguments.name is None:
            return place.execute(["/bin/sh", "-c", LIST, "sh", folder], {}, ())
        if "/" in arguments.name:
            raise UsageError(f"logs: {arguments.name}: not a name", hint="`watchtest logs` lists them")
        file = f"{folder}/{arguments.name}.log"
        follow = "-F" if arguments.follow else ""
        code = place.execute(["/bin/sh", "-c", SHOW, "sh", file, str(arguments.lines), follow], {}, ())
    finally:
        place.close()
    if code == NOT_THERE:
        raise UsageError(
            f"logs: nothing was ever said by {arguments.name!r}", hint="`watchtest logs` lists what there is"
        )
    return code
