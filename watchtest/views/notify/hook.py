"""`notify.hook`: runs the user's own command on this machine, with the notification as JSON on its stdin.

Its output is not shown, only the reason if it fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process, create_subprocess_exec, create_subprocess_shell
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from watchtest.core.text import one_line, timestamp
from watchtest.views.notify.notifications import DeliveryFailed, Notification

LIMIT_S = 10.0
TESTS_LISTED = 100
ERRORS_READ = 2000


def document(notification: Notification, workspace: Path, at: float) -> dict[str, Any]:
    """Return what a hook reads. Within a `schema_version`, fields are added but never changed."""
    return {
        "schema": "watchtest.notice",
        "schema_version": 1,
        "at": timestamp(at),
        "kind": notification.kind.value,
        "title": notification.title,
        "text": notification.text,
        "workspace": str(workspace),
        "lane": notification.lane.value,
        "verdict": notification.verdict.value,
        "run_id": notification.run or None,
        "tree": notification.tree or None,
        "tests": list(notification.tests[:TESTS_LISTED]),
        "tests_total": len(notification.tests),
        "red_total": notification.red,
    }


@dataclass(frozen=True, slots=True)
class Hook:
    """A shell command, or a list of arguments that runs without a shell."""

    command: str | tuple[str, ...]
    workspace: Path
    environ: Mapping[str, str]
    limit_s: float = LIMIT_S

    async def run(self, notification: Notification, at: float) -> None:
        """Run the command to its end, or raise DeliveryFailed. The command is killed if this is cancelled."""
        payload = json.dumps(document(notification, self.workspace, at)).encode() + b"\n"
        # A file instead of a pipe: a process that the command leaves behind may keep its stderr open forever.
        with tempfile.TemporaryFile() as errors:
            try:
                process = await self._start(errors.fileno())
            except (OSError, ValueError) as error:
                raise DeliveryFailed(f"cannot start it: {error}") from error
            try:
                await asyncio.wait_for(process.communicate(payload), self.limit_s)
            except TimeoutError:
                raise DeliveryFailed(f"timed out after {self.limit_s:g} s") from None
            finally:
                if process.returncode is None:
                    await _kill(process)
            if process.returncode:
                errors.seek(0)
                output = one_line(errors.read(ERRORS_READ).decode("utf-8", "replace"))
                raise DeliveryFailed(f"exit code {process.returncode}{': ' if output else ''}{output}")

    async def _start(self, errors: int) -> Process:
        options: dict[str, Any] = {
            "stdin": PIPE,
            "stdout": DEVNULL,
            "stderr": errors,
            "cwd": self.workspace,
            "env": dict(self.environ),
            "start_new_session": True,  # Ctrl-C reaches only the watcher, and the whole group can be killed
        }
        if isinstance(self.command, str):
            return await create_subprocess_shell(self.command, **options)
        return await create_subprocess_exec(*self.command, **options)


async def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()
