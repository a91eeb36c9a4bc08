"""Write the watcher's log: one JSON object per line, rotated. Only the holder of the workspace's lock writes it.

    at        time in UTC
    level     info, warning, error or critical
    logger    the module that logs
    message   the text, without control sequences
    lane, run, task   the context, if it is known
    error     {type, message, traceback} of an exception

Uncaught exceptions of threads, tasks and destructors are logged, too. `watchtest logs --watcher` shows the log. Records
get their lane and run from the task in which they are logged.
"""

from __future__ import annotations

import asyncio
import json
import logging
import logging.handlers
import os
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchtest.core.text import clean, timestamp
from watchtest.workspace.folder import make_folder


@dataclass(slots=True)
class _Scope:
    """The lane and run of a task. Tasks that it started may outlive the run; they then no longer belong to it."""

    lane: str
    run: str
    is_over: bool = False


_scope: ContextVar[_Scope | None] = ContextVar("watchtest_log_scope", default=None)


def create_logged_task(work: Coroutine[Any, Any, None], lane: str, run: str, *, name: str) -> asyncio.Task[None]:
    """Create a task whose log records carry the lane and, until its end, the run; so do tasks that it starts."""
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


def log_context() -> Mapping[str, str]:
    """Return the lane and run for a record that is logged here and now."""
    scope = _scope.get()
    if scope is None:
        return {}
    return {"lane": scope.lane} | ({} if scope.is_over else {"run": scope.run})


NAME = "watchtest.log"
LOG_BYTES = 1024 * 1024
OLD_FILES = 3
WAITING_LIMIT = 200
"""How many records wait while the lock file is missing, until it is clear who owns the folder."""
CONTEXT = ("lane", "run", "task")

log = logging.getLogger(__name__)


@contextmanager
def logging_to(file: Path, is_ours: Callable[[], bool]) -> Iterator[None]:
    """Write everything that is logged while entered to `file`, as long as `is_ours` says that we hold the lock."""
    handler = LogFile(file, is_ours)
    handler.addFilter(_with_context)
    handler.setFormatter(_Lines())
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        with _uncaught_errors_logged():
            yield
    except BaseException:
        log.exception("the watcher ended with an error")
        raise
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
        handler.close()


class LogFile(logging.handlers.RotatingFileHandler):
    """Continues in a new file if its own was removed (`git clean -xdf`); never writes to another watcher's file.

    Records that cannot be written are counted, and the count is logged once writing works again.
    """

    def __init__(self, file: Path, is_ours: Callable[[], bool]) -> None:
        super().__init__(
            file, maxBytes=LOG_BYTES, backupCount=OLD_FILES, encoding="utf-8", errors="replace", delay=True
        )
        self._folder = file.parent
        self._is_ours = is_ours
        self._waiting: deque[logging.LogRecord] = deque(maxlen=WAITING_LIMIT)
        self._lost = 0
        self._lost_by = ""

    def emit(self, record: logging.LogRecord) -> None:
        self._waiting.append(record)
        if self._is_ours():
            self._write_waiting()

    def close(self) -> None:
        if self._is_ours():
            self._write_waiting()
        super().close()

    def _write_waiting(self) -> None:
        try:
            self._reopen_if_replaced()
        except OSError as error:
            self._lost += len(self._waiting)
            self._lost_by = str(error)
            self._waiting.clear()
            return
        if self._lost:
            self._waiting.appendleft(self._loss_record())
            self._lost = 0
        while self._waiting:
            super().emit(self._waiting.popleft())

    def _reopen_if_replaced(self) -> None:
        if self.stream is None:
            make_folder(self._folder)
            self.stream = self._open()
            return
        try:
            there = Path(self.baseFilename).stat()
        except FileNotFoundError:
            there = None
        ours = os.fstat(self.stream.fileno())
        if there is None or (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino):
            self.stream.close()
            self.stream = None
            self._reopen_if_replaced()

    def _loss_record(self) -> logging.LogRecord:
        text = f"{self._lost} record{'s' * (self._lost != 1)} could not be written: %s"
        return log.makeRecord(log.name, logging.WARNING, __file__, 0, text, (self._lost_by,), None)

    def handleError(self, record: logging.LogRecord) -> None:
        """Count the record: a full disk must neither end the watcher nor write on its screen."""
        self._lost += 1
        self._lost_by = str(sys.exc_info()[1])


def _with_context(record: logging.LogRecord) -> bool:
    for key, value in log_context().items():
        if not hasattr(record, key):
            setattr(record, key, value)
    if not hasattr(record, "task") and (name := _task_name()):
        record.task = name
    return True


def _task_name() -> str:
    try:
        task = asyncio.current_task()
    except RuntimeError:  # a thread without a loop
        return ""
    name = task.get_name() if task is not None else ""
    return "" if name.startswith("Task-") else name  # asyncio's default names mean nothing


class _Lines(logging.Formatter):
    """Formats a record as one line of JSON, cleaned: it may contain text from the box and be shown on a terminal."""

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
        if record.exc_info and record.exc_info[1] is not None:
            document["error"] = _error(record.exc_info[1])
        return json.dumps(document, ensure_ascii=False)


def _error(error: BaseException) -> dict[str, str]:
    return {
        "type": type(error).__name__,
        "message": clean(str(error)),
        "traceback": clean("".join(traceback.format_exception(error))),
    }


@contextmanager
def _uncaught_errors_logged() -> Iterator[None]:
    """Log warnings and uncaught errors of threads and destructors, which would otherwise appear on the screen."""

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
