"""`watchtest exec -- CMD…`: a command in the box, on this terminal. What it changes there, stays there."""

from __future__ import annotations

import argparse

from watchtest.errors import UsageError


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("exec", help="run a command in the box")
    parser.add_argument("argv", nargs=argparse.REMAINDER, metavar="-- CMD…")
    parser.add_argument("--engine", choices=("auto", "docker", "local"), help="instead of box.engine")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    import sys

    from watchtest.commands.outside import setting_of
    from watchtest.core.model import Lane
    from watchtest.parts import build_environment, choose_place

    argv = arguments.argv[1:] if arguments.argv[:1] == ["--"] else arguments.argv
    if not argv:
        raise UsageError("exec: no command given", hint="write it after two dashes: watchtest exec -- ls -l")
    setting = setting_of(arguments, {"box.engine": arguments.engine} if arguments.engine else {})
    place = choose_place(setting, Lane.SAVE, lambda text: print(f"watchtest: {text}", file=sys.stderr))
    environment = build_environment(setting, place)
    try:
        return place.execute(argv, environment.variables, environment.path_first)
    finally:
        place.close()
