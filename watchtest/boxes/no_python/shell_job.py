"""A supervised command in a box without Python: carries out the policy of `agent.jobs.job_limits` by shell commands.

`shell_agent.sh run` starts it, ends everything that it started, and reports how it ended by a last line that begins
with our token. Without that line its end is unknown, whatever the engine says.
"""

from __future__ import annotations

import asyncio
import codecs
import secrets
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from watchtest.agent.jobs.job_limits import LINE_LIMIT, BoundedOutput, StopPolicy, death_reason, join_output
from watchtest.agent.rows import parse_row
from watchtest.boxes.protocols import JobResult, JobSpec, OnOutput, OnResults

if TYPE_CHECKING:
    from watchtest.boxes.docker.container_tools import StartedCommand

STDOUT = 1
TICK_S = 0.1
STREAM_END_LIMIT_S = 5.0
MAX_QUEUED_PIECES = 64
SIGNAL_CODES_FROM = 128
SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE"}
SIGNALS |= {9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM"}
"""The signals of the box, which is always Linux."""

StopStep = Callable[[str], Awaitable[bool]]
"""Carries out a step of a stop on everything that the job started; returns whether it is done."""


class JobOutput:
    """Bounded output of a job: its head is shown at once, of the rest only the tail is kept."""

    def __init__(self, on_output: OnOutput) -> None:
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = ""
        self._bounded = BoundedOutput()

    def add(self, piece: bytes) -> None:
        if head := self._bounded.add(piece):
            text = self._decoder.decode(head)
            self._head += text
            self._on_output(text)

    @property
    def text(self) -> str:
        return join_output(self._head, self._bounded.dropped, self._bounded.tail.decode("utf-8", "replace"))


@dataclass(frozen=True)
class LastLine:
    """How the command ended, as `shell_agent.sh run` reports it."""

    code: int
    has_leftovers: bool
    oom_kills: int
    full_disk: str


class ShellJob:
    """A job that was started; call `until_ended` and nothing else until it returns."""

    def __init__(
        self,
        job: JobSpec,
        token: str,
        command: StartedCommand,
        stop_step: StopStep,
        on_results: OnResults,
        output: JobOutput,
    ) -> None:
        limits = job.limits
        self._policy = StopPolicy(limits.run_s, limits.silence_s, limits.grace_s)
        self._token = token.encode("ascii")
        self._command = command
        self._stop_step = stop_step
        self._on_results = on_results
        self._output = output
        self._has_rows = bool(getattr(job.command, "has_rows", False))
        self._unfinished_row = b""
        self._held_back = b""
        """The end of stderr, which may be the beginning of the last line."""
        self._last_line: LastLine | None = None
        self._stream_ended = asyncio.Event()
        self._room = threading.BoundedSemaphore(MAX_QUEUED_PIECES)

    async def until_ended(self, stop: asyncio.Queue[bool] | None, lost: asyncio.Event) -> JobResult | None:
        """Return how it ended; None if that is unknown: the last line is missing, or the box was lost."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="watchtest-shell-read", daemon=True).start()
        while not self._stream_ended.is_set() and not lost.is_set():
            if self._last_line is not None:
                await _wait_for(self._stream_ended, STREAM_END_LIMIT_S)
                break
            await _wait_for(self._stream_ended, TICK_S)
            while stop is not None and not stop.empty():
                self._policy.stop(is_kill=stop.get_nowait())
            step = self._policy.due_step()
            if step is not None and self._last_line is None:
                await self._stop_step(step)
        self._take_row(self._unfinished_row)
        self._output.add(self._held_back)
        return self._result() if self._last_line is not None and not lost.is_set() else None

    def unknown_end(self, reason: str) -> JobResult:
        """Return the result of a job whose supervisor was killed: by us as a last resort, or by the job."""
        return self._job_result(None, self._policy.reason or reason)

    @property
    def has_leftovers(self) -> bool:
        """Whether a process could not be killed: it belongs to another user, or is stuck in the kernel."""
        return self._last_line is not None and self._last_line.has_leftovers

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read the output, in a thread of its own."""
        try:
            while pieces := self._command.read():
                self._room.acquire()  # so that endless output does not fill the memory
                loop.call_soon_threadsafe(self._receive, pieces)
        except (OSError, ValueError):
            pass  # the connection broke; without the last line the end is unknown
        try:
            loop.call_soon_threadsafe(self._stream_ended.set)
        except RuntimeError:
            return  # the loop has closed

    def _receive(self, pieces: list[tuple[int, bytes]]) -> None:
        self._room.release()
        self._policy.note_output()
        for stream, piece in pieces:
            if stream != STDOUT:
                self._take_errors(piece)
            elif self._has_rows:
                self._take_rows(piece)
            else:
                self._output.add(piece)

    def _take_rows(self, piece: bytes) -> None:
        *lines, self._unfinished_row = (self._unfinished_row + piece).split(b"\n")
        for line in lines:
            self._take_row(line + b"\n")
        if len(self._unfinished_row) > LINE_LIMIT:
            self._take_row(self._unfinished_row)
            self._unfinished_row = b""

    def _take_row(self, line: bytes) -> None:
        row = parse_row(line)
        if row is not None:
            self._on_results([row])
        else:
            self._output.add(line)

    def _take_errors(self, piece: bytes) -> None:
        text = self._held_back + piece
        before, found, after = text.partition(self._token + b" ")
        if found and after.endswith(b"\n"):
            self._last_line = _parse_last_line(after)
            self._held_back, text = b"", before
        else:
            # The end of the text may be the beginning of the last line.
            start = text.find(self._token) if found else _possible_start(text, self._token)
            self._held_back, text = text[start:], text[:start]
        self._output.add(text)

    # -- the end -----------------------------------------------------------------------------------

    def _result(self) -> JobResult:
        last = self._last_line
        assert last is not None
        number = last.code - SIGNAL_CODES_FROM
        if not 0 < number <= 64:
            return self._job_result(last.code, self._policy.reason)
        reason = death_reason(SIGNALS.get(number, f"signal {number}"), last.oom_kills > 0)
        return self._job_result(None, self._policy.reason or reason)

    def _job_result(self, exit_code: int | None, reason: str) -> JobResult:
        return JobResult(
            exit_code=exit_code,
            stopped=self._policy.stopped,
            reason=reason,
            output=self._output.text,
            stacks="",
            duration_s=self._policy.duration_s,
            full_disk=self._last_line.full_disk if self._last_line is not None else "",
        )


def new_token() -> str:
    return f"watchtest-ended-{secrets.token_hex(8)}"


def _parse_last_line(line: bytes) -> LastLine | None:
    code, left, ooms, full = (line.decode("utf-8", "replace").rstrip("\n").split(" ", 3) + [""] * 4)[:4]
    if not code.isdigit():
        return None
    return LastLine(int(code), left != "0", int(ooms) if ooms.isdigit() else 0, full)


def _possible_start(text: bytes, beginning: bytes) -> int:
    """Return where the text ends with a part of this beginning; its length if it does not."""
    for size in range(min(len(text), len(beginning)), 0, -1):
        if text.endswith(beginning[:size]):
            return len(text) - size
    return len(text)


async def _wait_for(event: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return
