"""The log of a watcher: JSON lines in files that are rotated. Only the holder of the workspace's lock writes them.

    at        the time, in UTC
    level     info, warning, error or critical
    logger    the module that logs
    message   the text, without control sequences
    lane, run, task   what the record is about, if that is known
    error     {type, message, traceback} of an exception

`watchtest logs --watcher` shows the log to people. Exceptions that nothing catches in threads and destructors are
logged, too.
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import os
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import datetime
from io import TextIOWrapper
from itertools import pairwise
from os.path import samestat
from pathlib import Path
from typing import Any

from watchtest.core.text import clean, count, timestamp
from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import OwnFolder

NAME = "watchtest.log"
LOG_BYTES = 1024 * 1024
OLD_FILES = 3
WAITING_LIMIT = 200
"""How many records are kept while the lock file is missing, until it is clear who owns the folder."""
CONTEXT = ("lane", "run", "task")
POLL_S = 0.2

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Scope:
    """The run that a task works on. What it starts may outlive the run, such as the task that listens to the box."""

    lane: str
    run: str
    is_over: bool = False


_scope: ContextVar[_Scope | None] = ContextVar("watchtest_log_scope", default=None)


def create_logged_task(work: Coroutine[Any, Any, None], lane: str, run: str, *, name: str) -> asyncio.Task[None]:
    """Create a task whose records name its lane and, until it ends, its run; so do those of tasks and threads in it."""
    scope = _Scope(lane, run)
    before = _scope.set(scope)
    try:
        task = asyncio.create_task(work, name=name)
    finally:
        _scope.reset(before)

    def end(_task: asyncio.Task[None]) -> None:
        scope.is_over = True

    task.add_done_callback(end)
    return task


@contextmanager
def logging_to(file: Path, is_ours: Callable[[], bool]) -> Iterator[None]:
    """Write everything that is logged meanwhile to `file`, as long as `is_ours` says that we hold the lock."""
    handler = LogFile(file, is_ours)
    handler.addFilter(_add_context)
    handler.setFormatter(_JsonFormatter())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with _uncaught_exceptions_logged():
            yield
    except BaseException:
        log.exception("the watcher ended with an error")
        raise
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()


class LogFile(logging.handlers.RotatingFileHandler):
    """Continues in a new file when its own was removed (`git clean -xdf`); never writes to that of another watcher.

    Records that cannot be written are counted, and the count is written as soon as that is possible again.
    """

    def __init__(self, file: Path, is_ours: Callable[[], bool]) -> None:
        super().__init__(
            file, maxBytes=LOG_BYTES, backupCount=OLD_FILES, encoding="utf-8", errors="replace", delay=True
        )
        self._folder, self._name = OwnFolder(file.parent), file.name
        self._is_ours = is_ours
        self._waiting: deque[logging.LogRecord] = deque(maxlen=WAITING_LIMIT)
        self._lost = 0
        self._lost_by = ""

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(record)
        self._write_waiting()

    def close(self) -> None:
        self._write_waiting()
        super().close()

    def _write_waiting(self) -> None:
        if not self._is_ours():
            return
        try:
            if self.stream is not None and not self._folder.is_open_at(self.stream.fileno(), self._name):
                self.stream.close()
                self.stream = None
            if self.stream is None:
                self._folder.make()
                self.stream = self._open()
        except (OSError, WorkspaceError) as error:
            self._lost += len(self._waiting)
            self._lost_by = str(error)
            self._waiting.clear()
            return
        if self._lost:
            text, counted = "%s could not be written: %s", (count(self._lost, "record"), self._lost_by)
            self._waiting.appendleft(log.makeRecord(log.name, logging.WARNING, __file__, 0, text, counted, None))
            self._lost = 0
        while self._waiting:
            super().emit(self._waiting.popleft())

    def _open(self) -> TextIOWrapper:
        return os.fdopen(self._folder.append(self._name), "a", encoding=self.encoding, errors=self.errors)

    def doRollover(self) -> None:
        """Do what the base class does, but never by a path, which may lead through a link."""
        if self.stream is not None:
            self.stream.close()
            self.stream = None
        names = [self._name, *(f"{self._name}.{number}" for number in range(1, OLD_FILES + 1))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                self._folder.rename(newer, older)
        self.stream = self._open()

    def handleError(self, record: logging.LogRecord) -> None:
        """Count the record: a full disk must neither end the watcher nor print over its screen."""
        self._lost += 1
        self._lost_by = str(sys.exc_info()[1])


def _add_context(record: logging.LogRecord) -> bool:
    scope = _scope.get()
    if scope is not None:
        record.__dict__.setdefault("lane", scope.lane)
        if not scope.is_over:
            record.__dict__.setdefault("run", scope.run)
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return True
    if task is not None and not task.get_name().startswith("Task-"):  # asyncio's default names mean nothing
        record.__dict__.setdefault("task", task.get_name())
    return True


class _JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON. Text from the box is cleaned: it will be shown on a terminal one day."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, Any] = {
            "at": timestamp(record.created),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": clean(record.getMessage()),
        }
        for key in CONTEXT:
            if value := getattr(record, key, ""):
                document[key] = clean(str(value))
        if record.exc_info and (error := record.exc_info[1]) is not None:
            trace = clean("".join(traceback.format_exception(error)))
            document["error"] = {"type": type(error).__name__, "message": clean(str(error)), "traceback": trace}
        return json.dumps(document, ensure_ascii=False)


@contextmanager
def _uncaught_exceptions_logged() -> Iterator[None]:
    """Log what threads and destructors raise, and warnings. All of it would be printed over the screen otherwise."""

    def in_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            name = args.thread.name if args.thread is not None else "?"
            log.error("the thread %s failed", name, exc_info=args.exc_value)

    def unraisable(args: sys.UnraisableHookArgs) -> None:
        log.error("%s: %r", args.err_msg or "uncaught exception", args.object, exc_info=args.exc_value)

    before = threading.excepthook, sys.unraisablehook
    threading.excepthook, sys.unraisablehook = in_thread, unraisable
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        threading.excepthook, sys.unraisablehook = before


def last_lines(file: Path, limit: int) -> tuple[list[str], LogFollower]:
    """Return the last lines of the log and of its rotated files, and a follower that continues from there."""
    folder, follower = OwnFolder(file.parent), LogFollower(file)
    lines: deque[str] = deque(maxlen=limit)
    for number in range(OLD_FILES, 0, -1):
        try:
            old = folder.open(f"{file.name}.{number}", os.O_RDONLY)
        except OSError:
            continue
        with os.fdopen(old, encoding="utf-8", errors="replace", newline="\n") as stream:
            lines.extend(line.rstrip("\n") for line in stream)
    lines.extend(follower.new_lines())
    if not follower.has_read and not lines:
        text = f"{file}: no log; this workspace has not been watched yet"
        raise WorkspaceError(text, hint="start the watcher with: watchtest start")
    return list(lines), follower


class LogFollower:
    """Reads new lines, only complete ones, and continues in the next file when its own was rotated or removed."""

    def __init__(self, file: Path) -> None:
        self._folder, self._name = OwnFolder(file.parent), file.name
        self._descriptor: int | None = None
        self._rest = b""
        self.has_read = False

    def new_lines(self) -> list[str]:
        lines: list[str] = []
        while True:
            if self._descriptor is None:
                try:
                    self._descriptor = self._folder.open(self._name, os.O_RDONLY)
                except FileNotFoundError:
                    return lines
                except OSError as error:
                    text = f"{self._folder.path}: {self._name} cannot be read ({error.strerror})"
                    raise WorkspaceError(text) from error
                self.has_read = True
            # Check before reading, so that nothing written until the file was replaced is missed.
            at_its_place = self._folder.stat(self._name)
            is_replaced = at_its_place is not None and not samestat(at_its_place, os.fstat(self._descriptor))
            while chunk := os.read(self._descriptor, 1 << 16):
                self._rest += chunk
            *complete, self._rest = self._rest.split(b"\n")
            lines += [line.decode("utf-8", "replace") for line in complete]
            if not is_replaced:
                return lines
            os.close(self._descriptor)
            self._descriptor = None
            if self._rest:  # its writer was killed in the middle of a line
                lines.append(self._rest.decode("utf-8", "replace"))
                self._rest = b""

    def follow(self) -> Iterator[str]:
        while True:
            yield from self.new_lines()
            time.sleep(POLL_S)


def format_record(line: str) -> str:
    """Return a record for a terminal: `2026-11-17 06:41:45 warning [save 3f2a.1] message`, then its traceback."""
    try:
        record: dict[str, Any] = json.loads(line)
        at = datetime.fromisoformat(record["at"]).astimezone()
        context = " ".join(str(record[key]) for key in ("lane", "run") if record.get(key))
        text = f"{at:%Y-%m-%d %H:%M:%S} {record['level']}{context and f' [{context}]'} {record['message']}"
        if error := record.get("error"):
            text += f"\n{error['traceback'].rstrip()}"
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return clean(line)  # written by an older watchtest, or cut off by a crash
    return clean(text).replace("\n", "\n    ")
