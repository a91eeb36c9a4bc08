"""One supervised command in a box without Python: its limits, its output and results, and the ladder that stops it.

`box.sh run` starts it, ends all that it started, and says how it ended by one last line with our token. Without that
line nothing is known about its end, whatever the engine says.
"""

from __future__ import annotations

import asyncio
import codecs
import json
import secrets
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from watchtest.boxes.no_python.shell_tools import STDOUT, StartedCommand
from watchtest.boxes.protocols import JobResult, JobSpec, OnOutput, OnResults

HEAD_LIMIT = 256 * 1024
TAIL_LIMIT = 64 * 1024
LINE_LIMIT = 4 * 1024 * 1024
TICK_S = 0.1
STREAM_END_LIMIT_S = 5.0
PIECES_UNDER_WAY = 64
SIGNALS_FROM = 128
KILLED = 9
SIGNALS = {1: "SIGHUP", 2: "SIGINT", 3: "SIGQUIT", 4: "SIGILL", 5: "SIGTRAP", 6: "SIGABRT", 7: "SIGBUS", 8: "SIGFPE"}
SIGNALS |= {9: "SIGKILL", 10: "SIGUSR1", 11: "SIGSEGV", 12: "SIGUSR2", 13: "SIGPIPE", 14: "SIGALRM", 15: "SIGTERM"}
"""Those of the box, which is always Linux."""

Sweep = Callable[[str], Awaitable[bool]]
"""Send INT, TERM or KILL to all that the job started; ALL kills its supervisor, too. Whether it is done."""


class Output:
    """Bounded: the head is shown at once, of the rest only the tail is kept, what lies between is counted."""

    def __init__(self, on_output: OnOutput) -> None:
        self._on_output = on_output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = ""
        self._shown = 0
        self._tail = b""
        self._dropped = 0

    def add(self, piece: bytes) -> None:
        room = max(0, HEAD_LIMIT - self._shown)
        head, rest = piece[:room], piece[room:]
        self._shown += len(head)
        if head:
            text = self._decoder.decode(head)
            self._head += text
            self._on_output(text)
        self._tail += rest
        surplus = len(self._tail) - TAIL_LIMIT
        if surplus > 0:
            self._tail = self._tail[surplus:]
            self._dropped += surplus

    @property
    def text(self) -> str:
        gap = f"\n[... {self._dropped} bytes of output left out ...]\n" if self._dropped else ""
        return self._head + gap + self._tail.decode("utf-8", "replace")


@dataclass(frozen=True)
class LastLine:
    """How the command ended, in the words of `box.sh run`."""

    code: int
    is_something_left: bool
    oom_kills: int
    full_disk: str


class Lines:
    """A stream in lines, each handed on as it is complete."""

    def __init__(self, take: Callable[[bytes], None]) -> None:
        self._take = take
        self._rest = b""

    def feed(self, piece: bytes) -> None:
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._take(line + b"\n")
        if len(self._rest) > LINE_LIMIT:
            self.end()

    def end(self) -> None:
        rest, self._rest = self._rest, b""
        if rest:
            self._take(rest)


class ShellJob:
    """A job that was started. `until_ended` is all that has to be called."""

    def __init__(
        self, job: JobSpec, token: str, started: StartedCommand, sweep: Sweep, on_results: OnResults, output: Output
    ):
        self._limits = job.limits
        self._token = token.encode("ascii")
        self._started = started
        self._sweep = sweep
        self._on_results = on_results
        self._output = output
        self._has_rows = getattr(job.command, "has_rows", False)
        self._began = self._last_sign = time.monotonic()
        self._stdout = Lines(self._take_row) if self._has_rows else None
        self._held = b""
        """The end of stderr that may be the beginning of the last line."""
        self._last_line: LastLine | None = None
        self._stream_ended = asyncio.Event()
        self._room = threading.BoundedSemaphore(PIECES_UNDER_WAY)
        self._stopped: str | None = None
        self._reason = ""
        self._ladder: list[str] = []
        self._next_rung = 0.0

    async def until_ended(self, stop: asyncio.Queue[bool] | None, lost: asyncio.Event) -> JobResult | None:
        """How it ended; None if that is not known: the stream ended without the last line, or the box was lost."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), name="watchtest-plain-read", daemon=True).start()
        while not self._stream_ended.is_set() and not lost.is_set():
            if self._last_line is not None:
                await _within(self._stream_ended, STREAM_END_LIMIT_S)
                break
            await _within(self._stream_ended, TICK_S)
            self._hear_wishes(stop)
            self._mind_limits()
            if self._ladder and time.monotonic() >= self._next_rung and self._last_line is None:
                self._next_rung = time.monotonic() + self._limits.grace_s
                await self._sweep(self._ladder.pop(0))
        if self._stdout is not None:
            self._stdout.end()
        if self._held:
            self._output.add(self._held)
        return self._end() if self._last_line is not None and not lost.is_set() else None

    def unknown_end(self, reason: str) -> JobResult:
        """Of a job whose supervisor was killed: by us, after all else was in vain, or by the job."""
        return self._job_end(None, self._reason or reason)

    @property
    def is_something_left(self) -> bool:
        """What could not be ended by a signal: somebody else's, or stuck in the kernel."""
        return self._last_line is not None and self._last_line.is_something_left

    # -- reading -----------------------------------------------------------------------------------

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        """In a thread of its own."""
        try:
            while pieces := self._started.read():
                self._room.acquire()  # so that endless output does not pile up here
                loop.call_soon_threadsafe(self._receive, pieces)
        except (OSError, ValueError):
            pass  # the connection broke: without the last line the end is not known
        try:
            loop.call_soon_threadsafe(self._stream_ended.set)
        except RuntimeError:
            return  # the loop has closed: nobody waits any more

    def _receive(self, pieces: list[tuple[int, bytes]]) -> None:
        self._room.release()
        self._last_sign = time.monotonic()
        for stream, piece in pieces:
            if stream != STDOUT:
                self._take_errors(piece)
            elif self._stdout is not None:
                self._stdout.feed(piece)
            else:
                self._output.add(piece)

    def _take_row(self, line: bytes) -> None:
        if line.startswith(b"{"):
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                self._on_results([row])
                return
        self._output.add(line)

    def _take_errors(self, piece: bytes) -> None:
        text = self._held + piece
        before, found, after = text.partition(self._token + b" ")
        if found and after.endswith(b"\n"):
            self._last_line = _last_line(after)
            self._held, text = b"", before
        else:
            # Up to the length of such a line may still become one.
            start = text.find(self._token) if found else _possible_start(text, self._token)
            self._held, text = text[start:], text[:start]
        if text:
            self._output.add(text)

    # -- limits and stopping -----------------------------------------------------------------------

    def _hear_wishes(self, stop: asyncio.Queue[bool] | None) -> None:
        while stop is not None and not stop.empty():
            is_kill = stop.get_nowait()
            if is_kill:
                self._stopped = "killed"
                self._climb(["KILL", "ALL"])
            elif self._stopped is None:
                self._stopped = "cancelled"
                self._climb(["INT", "TERM", "KILL", "ALL"])

    def _mind_limits(self) -> None:
        now = time.monotonic()
        if self._stopped is None and now - self._began > self._limits.run_s:
            self._expire(f"the run took longer than {self._limits.run_s:g} s")
        elif self._stopped is None and now - self._last_sign > self._limits.silence_s:
            self._expire(f"nothing was heard of the run for {self._limits.silence_s:g} s")

    def _expire(self, reason: str) -> None:
        self._stopped, self._reason = "timed_out", reason
        self._climb(["INT", "TERM", "KILL", "ALL"])

    def _climb(self, ladder: list[str]) -> None:
        self._ladder = ladder
        self._next_rung = time.monotonic()

    # -- the end -----------------------------------------------------------------------------------

    def _end(self) -> JobResult:
        last = self._last_line
        assert last is not None
        number = last.code - SIGNALS_FROM
        if not 0 < number <= 64:
            return self._job_end(last.code, self._reason)
        reason = f"the process was ended by {SIGNALS.get(number, f'signal {number}')}"
        if number == KILLED and last.oom_kills > 0:
            reason = "out of memory: the kernel killed the run"
        return self._job_end(None, self._reason or reason)

    def _job_end(self, exit_code: int | None, reason: str) -> JobResult:
        return JobResult(
            exit_code=exit_code,
            stopped=self._stopped,
            reason=reason,
            output=self._output.text,
            stacks="",
            duration_s=time.monotonic() - self._began,
            full_disk=self._last_line.full_disk if self._last_line is not None else "",
        )


def new_token() -> str:
    return f"watchtest-ended-{secrets.token_hex(8)}"


def _last_line(words: bytes) -> LastLine | None:
    code, left, ooms, full = (words.decode("utf-8", "replace").rstrip("\n").split(" ", 3) + [""] * 4)[:4]
    if not code.isdigit():
        return None
    return LastLine(int(code), left != "0", int(ooms) if ooms.isdigit() else 0, full)


def _possible_start(text: bytes, beginning: bytes) -> int:
    """Where the end of a text may be the start of this beginning; its length if nowhere."""
    for size in range(min(len(text), len(beginning)), 0, -1):
        if text.endswith(beginning[:size]):
            return len(text) - size
    return len(text)


async def _within(event: asyncio.Event, limit_s: float) -> None:
    try:
        async with asyncio.timeout(limit_s):
            await event.wait()
    except TimeoutError:
        return
