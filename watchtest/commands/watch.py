"""`watchtest watch`: the watcher in the foreground. One a workspace: the lock is freed by the system when it dies."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os

from watchtest import __version__
from watchtest.client.settings import add_engine, add_trigger, engine_flag, trigger_flags

log = logging.getLogger(__name__)


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("watch", help="rerun tests at each save (the default command)")
    parser.add_argument("--once", action="store_true", help="one run, then exit with its verdict")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--plain", action="store_true", help="one line an event instead of the dashboard")
    form.add_argument("--json-lines", action="store_true", help="one JSON object an event, for machines")
    form.add_argument("--json-lines-schema", action="store_true", help="the JSON Schema of such an object")
    form.add_argument("--silent", action="store_true", help="show nothing, for services: the log has what happens")
    add_engine(parser)
    add_trigger(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.json_lines_schema:
        import json

        from watchtest.views.lines.json_lines_schema import event_schema

        print(json.dumps(event_schema(), indent=2))
        return 0
    from watchtest.app import DisplayOptions, run_watcher
    from watchtest.client.settings import project_of
    from watchtest.logs.writer import NAME, logging_to
    from watchtest.workspace.folder import FOLDER
    from watchtest.workspace.lock import WatcherLock

    flags = {**trigger_flags(arguments), **engine_flag(arguments)}
    project = project_of(arguments, flags)
    folder = project.workspace / FOLDER
    if arguments.silent:
        # Whoever started it may be anywhere; a path in the settings means one thing at every start.
        os.chdir(project.workspace)
    show = DisplayOptions(arguments.once, arguments.plain, arguments.json_lines, arguments.silent)
    with WatcherLock(folder) as lock, logging_to(folder / NAME, lock.is_ours):
        log.info("watching %s: watchtest %s, process %d", project.workspace, __version__, os.getpid())
        code = asyncio.run(run_watcher(project, show, lock.keep, lambda: project_of(arguments, flags).config))
        log.info("the watcher has ended, with exit code %d", code)
        return code
