"""`watchtest logs`: show the output of a service, a detached command or the watcher.

Without a name, list the logs in the box. With --watcher, show the watcher's own log, which needs no engine.

    watchtest logs kv -f
    watchtest logs --watcher -n 50
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

from watchtest.commands import add_engine, load_project, say
from watchtest.core.text import clean

LIST = 'cd "$1" 2>/dev/null && for file in *.log; do test -e "$file" && echo "${file%.log}"; done; true'
SHOW = 'test -e "$1" || exit 44; exec tail -n "$2" $3 "$1"'
NO_SUCH_LOG = 44
JOIN_LIMIT_S = 5.0


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", nargs="?", metavar="NAME", help="service or detached command (default: list them)")
    parser.add_argument("--watcher", action="store_true", help="show the log of the watcher")
    text = "with --watcher: print the records as they are, one per line"
    parser.add_argument("--json", action="store_true", help=text)
    text = "number of lines to show (default: 100)"
    parser.add_argument("-n", "--lines", type=_count, default=100, metavar="N", help=text)
    parser.add_argument("-f", "--follow", action="store_true", help="keep printing as the log grows")
    add_engine(parser, opens_box=False)


def _count(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def run(arguments: argparse.Namespace) -> int:
    if arguments.watcher and arguments.name is not None:
        arguments.parser.error("argument --watcher: not allowed with a NAME")
    if arguments.json and not arguments.watcher:
        arguments.parser.error("argument --json: needs --watcher; the output of a service has no records")
    return _show_watcher_log(arguments) if arguments.watcher else _show_box_log(arguments)


def _show_watcher_log(arguments: argparse.Namespace) -> int:
    from watchtest.core.text import encodable
    from watchtest.watcher_log import NAME, format_record, last_lines
    from watchtest.workspace.folder import FOLDER, find_workspace

    file = find_workspace(arguments.workspace) / FOLDER / NAME

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


def _show_box_log(arguments: argparse.Namespace) -> int:
    from watchtest.client.box_access import provider_for_reading
    from watchtest.errors import UsageError

    project = load_project(arguments)
    if "/" in (arguments.name or ""):
        raise UsageError(f"logs: {arguments.name}: not a name", hint="`watchtest logs` lists them")
    with closing(provider_for_reading(project, say)) as provider, _cleaned_stdout():
        folder = f"{provider.home}/logs"
        if arguments.name is None:
            return provider.execute(["/bin/sh", "-c", LIST, "sh", folder], {}, ())
        file, follow = f"{folder}/{arguments.name}.log", "-F" if arguments.follow else ""
        code = provider.execute(["/bin/sh", "-c", SHOW, "sh", file, str(arguments.lines), follow], {}, ())
    if code == NO_SUCH_LOG:
        raise UsageError(f"logs: there is no log of {arguments.name!r}", hint="`watchtest logs` lists them")
    return code


@contextmanager
def _cleaned_stdout() -> Iterator[None]:
    """Remove control sequences from everything that this process and its children write to stdout.

    A service may print anything, and a terminal would obey it.
    """
    sys.stdout.flush()
    real = os.dup(1)
    source, sink = os.pipe()
    os.dup2(sink, 1)
    os.close(sink)
    filtering = threading.Thread(target=_copy_cleaned, args=(source, real))
    filtering.start()
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(real, 1)  # closes the pipe, so that the thread sees its end
        filtering.join(JOIN_LIMIT_S)
        os.close(real)


def _copy_cleaned(source: int, real: int) -> None:
    with open(source, encoding="utf-8", errors="replace", newline="\n") as lines:
        for line in lines:
            text = clean(line.rstrip("\n")) + ("\n" if line.endswith("\n") else "")
            try:
                os.write(real, text.encode("utf-8", "replace"))
            except OSError:
                return  # the reader of our output has closed it
