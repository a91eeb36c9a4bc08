"""`watchtest watch`: the watcher in the foreground. One a workspace: the lock is freed by the system when it dies."""

from __future__ import annotations

import argparse
import asyncio
import logging
import logging.handlers
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watchtest.commands.options import add_engine, engine_flag
from watchtest.errors import UsageError
from watchtest.views.text import clean

LOG_BYTES = 1024 * 1024
LOG_FILES = 3
TRIGGERS = ("save", "stage", "commit")


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("watch", help="rerun tests at each save (the default command)")
    parser.add_argument("--once", action="store_true", help="one run, then exit with its verdict")
    parser.add_argument("--plain", action="store_true", help="one line an event instead of the dashboard")
    add_engine(parser)
    parser.add_argument(
        "--trigger", action="append", default=[], metavar="T=POLICY", help="e.g. save=all, instead of [triggers]"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.app import Show, run_watcher
    from watchtest.commands.outside import setting_of
    from watchtest.lock import WatcherLock
    from watchtest.workspace import FOLDER

    flags: dict[str, object] = dict(_trigger(wish) for wish in arguments.trigger)
    setting = setting_of(arguments, {**flags, **engine_flag(arguments)})
    folder = setting.workspace / FOLDER
    with WatcherLock(folder) as lock, _logging(folder / "watchtest.log"):
        return asyncio.run(run_watcher(setting, Show(once=arguments.once, plain=arguments.plain), lock.keep))


def _trigger(wish: str) -> tuple[str, object]:
    name, equals, policy = wish.partition("=")
    if not equals or name not in TRIGGERS:
        raise UsageError(
            f"--trigger {wish}: not a trigger", hint=f"write one of {', '.join(TRIGGERS)}, =, and a policy"
        )
    return f"triggers.{name}", policy


class _CleanFormatter(logging.Formatter):
    """Whatever came out of the box is shown on somebody's terminal one day."""

    def format(self, record: logging.LogRecord) -> str:
        return clean(super().format(record))


@contextmanager
def _logging(file: Path) -> Iterator[None]:
    handler = logging.handlers.RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
    handler.setFormatter(_CleanFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield
    except BaseException:
        logging.getLogger(__name__).exception("the watcher ended")
        raise
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()
