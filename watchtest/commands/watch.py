"""`watchtest watch`: run tests on every save, with a dashboard (the default command).

Watch the workspace and rerun the tests that each change can affect, in the box: a container that mirrors your code and
stays between runs. Without a terminal, one line per event is printed instead of the dashboard.

    watchtest watch --plain
    watchtest watch --once --trigger save=all
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os

from watchtest import __version__
from watchtest.commands import add_engine, add_trigger, load_project, print_json

log = logging.getLogger(__name__)


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--once", action="store_true", help="run once, then exit with the verdict")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--plain", action="store_true", help="print one line per event instead of the dashboard")
    form.add_argument("--json-lines", action="store_true", help="print one JSON object per event, for programs")
    text = "print the JSON Schema of these objects and exit"
    form.add_argument("--json-lines-schema", action="store_true", help=text)
    form.add_argument("--silent", action="store_true", help="print nothing; for services, which have the log")
    add_engine(parser)
    add_trigger(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.json_lines_schema:
        from watchtest.views.schemas import event_schema

        print_json(event_schema())
        return 0
    from watchtest.app import DisplayOptions, run_watcher
    from watchtest.watcher_log import NAME, logging_to
    from watchtest.workspace.folder import FOLDER
    from watchtest.workspace.lock import WatcherLock

    project = load_project(arguments)
    folder = project.workspace / FOLDER
    if arguments.silent:
        # A relative path in the settings must not depend on the folder the watcher was started in.
        os.chdir(project.workspace)
    show = DisplayOptions(arguments.once, arguments.plain, arguments.json_lines, arguments.silent)
    with WatcherLock(folder) as lock, logging_to(folder / NAME, lock.is_ours):
        log.info("watching %s: watchtest %s, process %d", project.workspace, __version__, os.getpid())
        code = asyncio.run(run_watcher(project, show, lock.keep, lambda: load_project(arguments).config))
        log.info("the watcher ended with exit code %d", code)
        return code
