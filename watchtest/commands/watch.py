"""`watchtest watch`: the watcher in the foreground. One a workspace: the lock is freed by the system when it dies."""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import logging.handlers
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watchtest.errors import UsageError, WorkspaceError

LOG_BYTES = 1024 * 1024
LOG_FILES = 3
ENGINES = ("auto", "docker", "local")
TRIGGERS = ("save",)


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("watch", help="rerun tests at each save (the default command)")
    parser.add_argument("--once", action="store_true", help="one run, then exit with its verdict")
    parser.add_argument("--plain", action="store_true", help="one line an event instead of the dashboard")
    parser.add_argument("--engine", choices=ENGINES, help="where tests run, instead of box.engine")
    parser.add_argument(
        "--trigger", action="append", default=[], metavar="T=POLICY", help="e.g. save=all, instead of [triggers]"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.app import Show, run_watcher
    from watchtest.commands.outside import setting_of

    flags: dict[str, object] = dict(_trigger(wish) for wish in arguments.trigger)
    if arguments.engine:
        flags["box.engine"] = arguments.engine
    setting = setting_of(arguments, flags)
    with only_watcher(setting.workspace):
        return asyncio.run(run_watcher(setting, Show(once=arguments.once, plain=arguments.plain)))


def _trigger(wish: str) -> tuple[str, object]:
    name, equals, policy = wish.partition("=")
    if not equals or name not in TRIGGERS:
        raise UsageError(
            f"--trigger {wish}: not a trigger", hint=f"write one of {', '.join(TRIGGERS)}, =, and a policy"
        )
    return f"triggers.{name}", policy


@contextmanager
def only_watcher(workspace: Path) -> Iterator[None]:
    """The workspace's lock and log, for as long as the watcher runs."""
    from filelock import FileLock, Timeout

    from watchtest.workspace import FOLDER

    folder = workspace / FOLDER
    try:
        folder.mkdir(exist_ok=True)
        lock = FileLock(folder / "lock")
        lock.acquire(timeout=0)
    except Timeout as error:
        raise WorkspaceError(
            f"{workspace} is watched already{_by_whom(folder)}", hint="stop that watcher first, or use it"
        ) from error
    except OSError as error:
        raise WorkspaceError(
            f"{folder} cannot be written: {error.strerror}", hint="watchtest keeps its status there; make it writable"
        ) from error
    try:
        with _logging(folder / "watchtest.log"):
            yield
    finally:
        lock.release()


def _by_whom(folder: Path) -> str:
    try:
        writer = json.loads((folder / "status.json").read_text(encoding="utf-8"))["writer"]
        return f" by process {writer['pid']}"
    except (OSError, ValueError, KeyError, TypeError):
        return ""  # it has not written its status yet


@contextmanager
def _logging(file: Path) -> Iterator[None]:
    handler = logging.handlers.RotatingFileHandler(file, maxBytes=LOG_BYTES, backupCount=LOG_FILES, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
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
