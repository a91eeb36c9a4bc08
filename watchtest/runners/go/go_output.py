"""Finds failures and their locations in what Go prints: logged lines, panics with their stacks, compiler errors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from watchtest.core.model import Failure, Location
from watchtest.runners.untrusted import first_line, location, number

SILENT = "failed"
TIMED_OUT = "timed out"
LOGGED = re.compile(r"(?:^|\s{4})([^\s:/\\]+\.go):(\d{1,9}): ?(.*)$")
FRAME = re.compile(r"^\t(.+\.go):(\d{1,9})(?: \+0x[0-9a-f]+)?\s*$", re.MULTILINE)
PANIC = re.compile(r"^(?:panic|fatal error|SIGQUIT|SIGSEGV|unexpected fault address)\b:? ?(.*)$", re.MULTILINE)
TIMEOUT = re.compile(r"^test timed out after ")
COMPILER_ERROR = re.compile(r"^(?:vet: )?([^\s:][^:\n]*\.go):(\d{1,9})(?::(\d{1,9}))?: (.+)$", re.MULTILINE)
RESULT = re.compile(r"^(FAIL|ok|exit status \d+)\b.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class OutputLine:
    """A line of output. Newer versions of Go mark those that were logged as errors."""

    text: str
    is_error: bool


def failure(lines: Sequence[OutputLine], folder: str) -> Failure:
    """Describe a failed test by the first error it logged or, if Go marks none, by the last line with a location."""
    output = "".join(line.text for line in lines)
    entries = list(_log_entries(lines))
    errors = [entry for entry in entries if entry.is_error]
    chosen = errors[0] if errors else entries[-1] if entries else None
    if chosen is None:
        return Failure(kind=SILENT, message=output.strip(), text=output)
    where = Location(f"{folder}/{chosen.file}".removeprefix("./"), chosen.line)
    message = "\n".join(entry.message for entry in errors) if errors else chosen.message
    return Failure(kind="error", message=message, where=where, crash=where, text=output)


@dataclass(frozen=True, slots=True)
class _LogEntry:
    file: str
    line: int
    message: str
    is_error: bool


def _log_entries(lines: Sequence[OutputLine]) -> Iterator[_LogEntry]:
    """Yield what was logged, each entry with its continuation lines, which are indented deeper."""
    entry: _LogEntry | None = None
    for line in lines:
        stripped = line.text.rstrip("\n")
        found = LOGGED.search(stripped)
        at = number(found[2]) if found else None
        if found and at:
            if entry:
                yield entry
            entry = _LogEntry(found[1], at, found[3].strip(), line.is_error)
        elif entry and (stripped.startswith(" " * 8) or not stripped.strip()):
            entry = replace(entry, message=f"{entry.message}\n{stripped.strip()}".strip())
        elif entry:
            yield entry
            entry = None
    if entry:
        yield entry


def panic(output: str, root: str, folder: str) -> Failure | None:
    """Return a panic or a timeout of Go itself, located at the deepest frame in the workspace, or None."""
    found = PANIC.search(output)
    if found is None or "\ngoroutine " not in output[found.start() :]:
        return None
    stack = output[found.start() :]
    message = first_line(found[1]) or first_line(stack)
    message = re.sub(r" \[recovered(, repanicked)?\]$", "", message)
    own = [at for frame in FRAME.finditer(stack) if (at := location(frame[1], frame[2], root, ""))]
    tests = [at for at in own if at.file.endswith("_test.go")]
    in_package = [at for at in tests if (at.file.rpartition("/")[0] or ".") == folder]
    where = next(iter(in_package or tests or own), None)
    if TIMEOUT.match(message) or stack.startswith("SIGQUIT"):
        return Failure(kind=TIMED_OUT, message=message, where=where, crash=where, text=stack)
    return Failure(kind="panic", message=message, where=where, crash=next(iter(own), None), text=stack)


def build_failure(output: str, root: str, folder: str) -> Failure:
    """Describe a failed build by the first error that has a location; the text contains all of them."""
    for found in COMPILER_ERROR.finditer(output):
        at = location(found[1], found[2], root, folder)
        if at is not None:
            more = re.match(r"(?:\n[\t ].*)+", output[found.end() :])  # continuation lines are indented
            message = found[4] + (more[0].rstrip() if more else "")
            return Failure("build failed", message, at, number(found[3]), crash=at, text=output)
    error = first_line("\n".join(line for line in output.splitlines() if not line.startswith("# ")))
    return Failure(kind="build failed", message=error or "it could not be built", text=output)


def block_of(output: str, package: str) -> str:
    """Return the compiler's output for a package, from `# package` to the next such line."""
    found = re.search(rf"^# {re.escape(package)}(?:[_.]test)?(?: \[.*\])?$", output, re.MULTILINE)
    if found is None:
        return ""
    rest = re.search(r"^(# |FAIL\s|ok\s)", output[found.end() :], re.MULTILINE)
    return output[found.start() : found.end() + rest.start() if rest else len(output)]


def without_result(output: str) -> str:
    return RESULT.sub("", output).strip()
