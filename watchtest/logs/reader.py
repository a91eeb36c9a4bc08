"""Show the watcher's log to the user: its last records and new ones, also while its files are rotated."""

from __future__ import annotations

import json
import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from watchtest.core.text import clean
from watchtest.errors import WorkspaceError
from watchtest.logs.writer import CONTEXT, OLD_FILES

POLL_S = 0.2


def last_lines(file: Path, count: int) -> tuple[list[str], LogFollower]:
    """Return the last lines of the log, including its rotated files, and a follower that continues from there."""
    follower = LogFollower(file)
    lines: deque[str] = deque(maxlen=count)
    for number in range(OLD_FILES, 0, -1):
        try:
            with file.with_name(f"{file.name}.{number}").open(encoding="utf-8", errors="replace", newline="\n") as old:
                lines.extend(line.rstrip("\n") for line in old)
        except FileNotFoundError:
            continue
    lines.extend(follower.new_lines())
    if not follower.has_seen_any and not lines:
        raise WorkspaceError(
            f"{file}: no log; this workspace has not been watched yet", hint="start the watcher with: watchtest start"
        )
    return list(lines), follower


class LogFollower:
    """Reads new lines of a log; continues in the next file when the current one was rotated or removed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._descriptor: int | None = None
        self._rest = b""
        self.has_seen_any = False

    def new_lines(self) -> list[str]:
        lines: list[str] = []
        while True:
            if self._descriptor is None:
                try:
                    self._descriptor = os.open(self._file, os.O_RDONLY)
                except FileNotFoundError:
                    return lines
                except OSError as error:
                    raise WorkspaceError(f"{self._file}: cannot be read ({error.strerror})") from error
                self.has_seen_any = True
            is_replaced = self._is_replaced()  # before the read, which then gets everything written until now
            lines += self._read()
            if not is_replaced:
                return lines
            os.close(self._descriptor)
            self._descriptor = None
            if self._rest:  # its writer was killed in the middle of a line
                lines.append(self._rest.decode("utf-8", "replace"))
                self._rest = b""

    def follow(self, sleep: Callable[[float], None] = time.sleep) -> Iterator[str]:
        while True:
            yield from self.new_lines()
            sleep(POLL_S)

    def _read(self) -> list[str]:
        assert self._descriptor is not None
        while chunk := os.read(self._descriptor, 1 << 16):
            self._rest += chunk
        *whole, self._rest = self._rest.split(b"\n")
        return [line.decode("utf-8", "replace") for line in whole]

    def _is_replaced(self) -> bool:
        assert self._descriptor is not None
        try:
            there = self._file.stat()
        except OSError:
            return False  # removed, and not replaced yet
        ours = os.fstat(self._descriptor)
        return (there.st_dev, there.st_ino) != (ours.st_dev, ours.st_ino)


def format_record(line: str) -> str:
    """Format a record for a terminal: `2026-11-17 06:41:45 warning [save 3f2a.1] message`, then its traceback."""
    try:
        record: dict[str, Any] = json.loads(line)
        at = datetime.fromisoformat(record["at"]).astimezone()
        head = f"{at:%Y-%m-%d %H:%M:%S} {record['level']}{_context(record)} {record['message']}"
        error = record.get("error")
        below = f"{head}\n{error['traceback'].rstrip()}" if error else head
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return clean(line)  # from an older watchtest, or cut off by a crash
    return clean(below).replace("\n", "\n    ")


def _context(record: dict[str, Any]) -> str:
    words = [str(record[key]) for key in CONTEXT[:2] if record.get(key)]
    return f" [{' '.join(words)}]" if words else ""
