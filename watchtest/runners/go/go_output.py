"""What Go prints, read for places: lines that tests log, panics with their stacks, and the compiler's complaints."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from watchtest.core.model import Failure, Location
from watchtest.runners.untrusted import first_line, inside, number, place

SILENT = "failed"
TIMED_OUT = "timed out"
LOGGED = re.compile(r"(?:^|\s{4})([^\s:/\\]+\.go):(\d{1,9}): ?(.*)$")
FRAME = re.compile(r"^\t(.+\.go):(\d{1,9})(?: \+0x[0-9a-f]+)?\s*$", re.MULTILINE)
PANIC = re.compile(r"^(?:panic|fatal error|SIGQUIT|SIGSEGV|unexpected fault address)\b:? ?(.*)$", re.MULTILINE)
TIMEOUT = re.compile(r"^test timed out after ")
COMPLAINT = re.compile(r"^(?:vet: )?([^\s:][^:\n]*\.go):(\d{1,9})(?::(\d{1,9}))?: (.+)$", re.MULTILINE)
RESULT = re.compile(r"^(FAIL|ok|exit status \d+)\b.*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Line:
    """A line of output; newer versions of Go say which were logged as errors."""

    text: str
    is_error: bool


def failure(lines: Sequence[Line], folder: str) -> Failure:
    """By what the test logged: the first error where Go tells which is one, else the last line that has a place."""
    said = "".join(line.text for line in lines)
    entries = list(_entries(lines))
    errors = [entry for entry in entries if entry.is_error]
    chosen = errors[0] if errors else entries[-1] if entries else None
    if chosen is None:
        return Failure(kind=SILENT, message=said.strip(), text=said)
    where = Location(f"{folder}/{chosen.file}".removeprefix("./"), chosen.line)
    message = "\n".join(entry.message for entry in errors) if errors else chosen.message
    return Failure(kind="error", message=message, where=where, crash=where, text=said)


@dataclass(frozen=True, slots=True)
class _Entry:
    file: str
    line: int
    message: str
    is_error: bool


def _entries(lines: Sequence[Line]) -> Iterator[_Entry]:
    """What was logged, each with the lines that go on with it, which are indented deeper."""
    entry: _Entry | None = None
    for line in lines:
        stripped = line.text.rstrip("\n")
        found = LOGGED.search(stripped)
        at = number(found[2]) if found else None
        if found and at:
            if entry:
                yield entry
            entry = _Entry(found[1], at, found[3].strip(), line.is_error)
        elif entry and (stripped.startswith(" " * 8) or not stripped.strip()):
            entry = replace(entry, message=f"{entry.message}\n{stripped.strip()}".strip())
        elif entry:
            yield entry
            entry = None
    if entry:
        yield entry


def panic(said: str, root: str, folder: str) -> Failure | None:
    """A panic or the end of Go's own patience, with the deepest frame of the workspace; None if there is neither."""
    found = PANIC.search(said)
    if found is None or "\ngoroutine " not in said[found.start() :]:
        return None
    stack = said[found.start() :]
    message = first_line(found[1]) or first_line(stack)
    message = re.sub(r" \[recovered(, repanicked)?\]$", "", message)
    own = [at for frame in FRAME.finditer(stack) if (at := place(frame[1], frame[2], root, ""))]
    tests = [at for at in own if at.file.endswith("_test.go")]
    in_package = [at for at in tests if (at.file.rpartition("/")[0] or ".") == folder]
    where = next(iter(in_package or tests or own), None)
    if TIMEOUT.match(message) or stack.startswith("SIGQUIT"):
        return Failure(kind=TIMED_OUT, message=message, where=where, crash=where, text=stack)
    return Failure(kind="panic", message=message, where=where, crash=next(iter(own), None), text=stack)


def build_failure(said: str, root: str, folder: str) -> Failure:
    """The first complaint that has a place; all of them as text."""
    for found in COMPLAINT.finditer(said):
        file, line = inside(found[1], root, folder), number(found[2])
        if file and line:
            at = Location(file, line)
            message = found[4] + _more(said, found.end())
            return Failure("build failed", message, at, number(found[3]), crash=at, text=said)
    complaint = first_line("\n".join(line for line in said.splitlines() if not line.startswith("# ")))
    return Failure(kind="build failed", message=complaint or "it could not be built", text=said)


def _more(said: str, end: int) -> str:
    """Lines that go on with a complaint are indented."""
    found = re.match(r"(?:\n[\t ].*)+", said[end:])
    return found[0].rstrip() if found else ""


def block_of(output: str, package: str) -> str:
    """What the compiler said of a package, from `# package` to the next such line."""
    found = re.search(rf"^# {re.escape(package)}(?:[_.]test)?(?: \[.*\])?$", output, re.MULTILINE)
    if found is None:
        return ""
    rest = re.search(r"^(# |FAIL\s|ok\s)", output[found.end() :], re.MULTILINE)
    return output[found.start() : found.end() + rest.start() if rest else len(output)]


def without_result(said: str) -> str:
    return RESULT.sub("", said).strip()
