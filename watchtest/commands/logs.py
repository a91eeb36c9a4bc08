"""`watchtest logs [NAME]`: what a service, or a command left running, has said. Without a name: what there is.

`--watcher`: what the watcher itself has said; needs neither an engine nor a box.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from watchtest.client.settings import add_engine, engine_flag
from watchtest.commands.exec import say
from watchtest.core.text import clean

LIST = 'cd "$1" 2>/dev/null && for file in *.log; do test -e "$file" && echo "${file%.log}"; done; true'
SHOW = 'test -e "$1" || exit 44; exec tail -n "$2" $3 "$1"'
NOT_THERE = 44
JOIN_LIMIT_S = 5.0


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("logs", help="output of a service, or of a command left running")
    parser.add_argument("name", nargs="?", metavar="NAME", help="of the service or command; without: list them")
    parser.add_argument("--watcher", action="store_true", help="the log of the watcher itself")
    parser.add_argument("--json", action="store_true", help="with --watcher: the records as they are, one a line")
    parser.add_argument("-n", "--lines", type=_count, default=100, metavar="N", help="so many of the last lines")
    parser.add_argument("-f", "--follow", action="store_true", help="go on as it grows")
    add_engine(parser)
    parser.set_defaults(run=run, parser=parser)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def run(arguments: argparse.Namespace) -> int:
    if arguments.watcher and arguments.name is not None:
        arguments.parser.error("argument --watcher: not allowed with a NAME")
    if arguments.json and not arguments.watcher:
        arguments.parser.error("argument --json: needs --watcher; the output of services has no form")
    return _of_watcher(arguments) if arguments.watcher else _of_service(arguments)


def _of_watcher(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from watchtest.core.text import encodable
    from watchtest.logs.reader import format_record, last_lines
    from watchtest.logs.writer import NAME
    from watchtest.workspace.folder import FOLDER, find_workspace

    file = find_workspace(arguments.workspace or Path.cwd()) / FOLDER / NAME

    def show(line: str) -> None:
        text = clean(line) if arguments.json else format_record(line)
        print(encodable(text, sys.stdout.encoding), flush=arguments.follow)

    lines, follower = last_lines(file, arguments.lines)
    for line in lines:
        show(line)
    if arguments.follow:
        for line in follower.follow():
            show(line)
    return 0


def _of_service(arguments: argparse.Namespace) -> int:
    from watchtest.client.box_visit import visited_provider
    from watchtest.client.settings import project_of
    from watchtest.errors import UsageError

    project = project_of(arguments, engine_flag(arguments))
    provider = visited_provider(project, say)
    folder = f"{provider.home}/logs"
    try:
        if arguments.name is None:
            with _cleaned():
                return provider.execute(["/bin/sh", "-c", LIST, "sh", folder], {}, ())
        if "/" in arguments.name:
            raise UsageError(f"logs: {arguments.name}: not a name", hint="`watchtest logs` lists them")
        file = f"{folder}/{arguments.name}.log"
        follow = "-F" if arguments.follow else ""
        with _cleaned():
            code = provider.execute(["/bin/sh", "-c", SHOW, "sh", file, str(arguments.lines), follow], {}, ())
    finally:
        provider.close()
    if code == NOT_THERE:
        raise UsageError(
            f"logs: nothing was ever said by {arguments.name!r}", hint="`watchtest logs` lists what there is"
        )
    return code


@contextmanager
def _cleaned() -> Iterator[None]:
    """Whatever is written to our stdout meanwhile, by us or by a process of ours, comes out without control sequences.

    A service may print anything; a terminal obeys what it is format_record.
    """
    sys.stdout.flush()
    real = os.dup(1)
    source, sink = os.pipe()
    os.dup2(sink, 1)
    os.close(sink)
    passing = threading.Thread(target=_pass_cleaned, args=(source, real))
    passing.start()
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)  # the last to hold the pipe: its reader sees the end
        passing.join(JOIN_LIMIT_S)
        os.close(real)


def _pass_cleaned(source: int, real: int) -> None:
    with open(source, encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            text = clean(line.rstrip("\n")) + ("\n" if line.endswith("\n") else "")
            try:
                os.write(real, text.encode("utf-8", "replace"))
            except OSError:
                return  # whoever read our output has seen enough
