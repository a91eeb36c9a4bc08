"""Runs one external command with a time limit; a failure names the command and shows the end of its output."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping, Sequence

SHOWN_LINES = 20

_running: set[subprocess.Popen[str]] = set()


class EngineScriptError(Exception):
    """Reported without a traceback; the script then exits with 1."""


def run(argv: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None) -> str:
    """Run the command and return its output, both streams. Raises EngineScriptError if it fails, hangs or does not
    exist."""
    try:
        process = subprocess.Popen(
            argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env={**os.environ, **(environment or {})},
        )
    except OSError as error:
        raise EngineScriptError(f"cannot run `{shlex.join(argv)}`: {error}") from error
    _running.add(process)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired as expired:
        process.kill()
        output, _ = process.communicate(timeout=10)
        raise EngineScriptError(
            f"`{shlex.join(argv)}` did not end within {timeout_s:.0f} s; its last lines:\n{last_lines(output)}"
        ) from expired
    except BaseException:
        # We were asked to end while waiting, so end the command as well.
        process.kill()
        raise
    finally:
        _running.discard(process)
    if process.returncode != 0:
        raise EngineScriptError(
            f"`{shlex.join(argv)}` ended with {process.returncode}; its last lines:\n{last_lines(output)}"
        )
    return output


def kill_running() -> None:
    """Kill the commands of all threads, after one of them has failed or the script was asked to end."""
    for process in tuple(_running):
        process.kill()


def last_lines(text: str) -> str:
    lines = text.splitlines()[-SHOWN_LINES:]
    return "\n".join(f"    {line}" for line in lines) or "    (no output)"
