"""A real terminal: a separate tmux server with one window, keys to press and screens to read."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

LIMIT_S = 30.0
COMES_LIMIT_S = 30.0
POLL_S = 0.05
MASKS = (
    (re.compile(r"\b\d+(\.\d+)?[smhd] ago"), "AGE"),
    (re.compile(r"\b[0-9a-f]{8}\b(?= on |\*| )"), "TREE"),
    (re.compile(r"\b(docker|podman|local) [0-9a-f]{12}\b"), r"\1 BOX"),
    (re.compile(r"about \d+(\.\d+)?s left"), "about TIME left"),
    (re.compile(r"[━─]+"), "━"),
    (re.compile(r"(?<= )\d+(\.\d+)?s$"), "TIME"),
    (re.compile(r"in \d+(\.\d+)?s"), "in TIME"),
    (re.compile(r" +"), " "),
)
"""What differs between sessions, because the clock of a real watcher cannot be fixed."""


class Terminal:
    """Runs a command in a terminal of this size until the block ends."""

    def __init__(
        self, command: Sequence[str], folder: Path, environ: Mapping[str, str], width: int = 80, height: int = 24
    ) -> None:
        self._socket = f"watchtest-{uuid.uuid4().hex[:12]}"
        self._command = f"{shlex.join(command)}; echo left with code $?; sleep 600"
        self._folder = folder
        self._environ = {**environ, "TERM": "xterm-256color"}
        self._size = (width, height)

    def __enter__(self) -> Self:
        width, height = map(str, self._size)
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", width, "-y", height, self._command)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        command = ["tmux", "-L", self._socket, *words]
        said = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environ,
            capture_output=True,
            encoding="utf-8",
            timeout=LIMIT_S,
            check=True,
        )
        return said.stdout

    def press(self, *keys: str) -> None:
        """Press keys by their tmux names: q, Down, Escape, C-c."""
        for key in keys:
            self._tmux("send-keys", key)

    def resize(self, width: int, height: int) -> None:
        self._tmux("resize-window", "-x", str(width), "-y", str(height))
        self._size = (width, height)

    @property
    def screen(self) -> list[str]:
        return [row.rstrip() for row in self._tmux("capture-pane", "-p").split("\n")]

    def shows(self, *texts: str, limit_s: float = LIMIT_S) -> list[str]:
        """Return the first screen that contains all of these texts."""
        deadline = time.monotonic() + limit_s
        while True:
            rows = self.screen
            whole = "\n".join(rows)
            if all(text in whole for text in texts):
                return rows
            assert time.monotonic() < deadline, f"{texts} did not come within {limit_s:g} s:\n{whole}"
            time.sleep(POLL_S)

    def comes_to(self, expected: list[str]) -> list[str]:
        """Return the screen once it is as expected, or as it is when the time limit passes."""
        deadline = time.monotonic() + COMES_LIMIT_S
        while (rows := masked(self.screen)) != expected and time.monotonic() < deadline:
            time.sleep(POLL_S)
        return rows

    def steady(self) -> list[str]:
        """Return the screen once two readings in a row agree, apart from clocks."""
        deadline = time.monotonic() + LIMIT_S
        last = masked(self.screen)
        while True:
            time.sleep(0.3)
            now = masked(self.screen)
            if now == last:
                return now
            assert time.monotonic() < deadline, "the screen keeps changing:\n" + "\n".join(now)
            last = now


def masked(rows: Sequence[str]) -> list[str]:
    """Return the screen without times and without empty rows at the end."""
    said = []
    for row in rows:
        for pattern, instead in MASKS:
            row = pattern.sub(instead, row)
        said.append(row.rstrip())
    while said and not said[-1]:
        said.pop()
    return said
