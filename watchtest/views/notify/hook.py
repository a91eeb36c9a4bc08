"""`notify.hook`: the user's own command, on this machine, with a notice as JSON on its stdin.

Never in the way: one at a time, each with a limit. What it prints is not shown; why it failed is.
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
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from watchtest.core.text import one_line
from watchtest.views.notify.notifications import DeliveryFailed, Notification

LIMIT_S = 10.0
TESTS_LISTED = 100
ERRORS_READ = 2000


def document(notice: Notification, workspace: Path, at: float) -> dict[str, Any]:
    """What a hook reads. Fields are added, never changed, while `schema_version` stays the same."""
    moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    return {
        "schema": "watchtest.notice",
        "schema_version": 1,
        "at": moment,
        "kind": notice.kind.value,
        "title": notice.title,
        "text": notice.text,
        "workspace": str(workspace),
        "lane": notice.lane.value,
        "verdict": notice.verdict.value,
        "run_id": notice.run or None,
        "tree": notice.tree or None,
        "tests": list(notice.tests[:TESTS_LISTED]),
        "tests_total": len(notice.tests),
        "red_total": notice.red,
    }


@dataclass(frozen=True, slots=True)
class Hook:
    """A shell command, or words without a shell."""

    command: str | tuple[str, ...]
    workspace: Path
    environ: Mapping[str, str]
    limit_s: float = LIMIT_S

    async def run(self, notice: Notification, at: float) -> None:
        """To its end, or DeliveryFailed. Whatever ends this, ends the command, too."""
        told = json.dumps(document(notice, self.workspace, at)).encode() + b"\n"
        # A file and no pipe: what the command leaves running may hold its stderr for ever.
        with tempfile.TemporaryFile() as errors:
            try:
                process = await self._start(errors.fileno())
            except (OSError, ValueError) as error:
                raise DeliveryFailed(f"it cannot be started: {error}") from error
            try:
                await asyncio.wait_for(process.communicate(told), self.limit_s)
            except TimeoutError:
                raise DeliveryFailed(f"not done within {self.limit_s:g} s") from None
            finally:
                if process.returncode is None:
                    await _kill(process)
            if process.returncode:
                errors.seek(0)
                said = one_line(errors.read(ERRORS_READ).decode("utf-8", "replace"))
                raise DeliveryFailed(f"exit code {process.returncode}{': ' if said else ''}{said}")

    async def _start(self, errors: int) -> Process:
        given: dict[str, Any] = {
            "stdin": PIPE,
            "stdout": DEVNULL,
            "stderr": errors,
            "cwd": self.workspace,
            "env": dict(self.environ),
            "start_new_session": True,  # Ctrl-C is for the watcher, and all that it started can be ended at once
        }
        if isinstance(self.command, str):
            return await create_subprocess_shell(self.command, **given)
        return await create_subprocess_exec(*self.command, **given)


async def _kill(process: Process) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()
    await process.wait()
