"""Reads what `cargo test` reports: the compiler's messages, libtest's events and the text of documentation tests.

It also finds locations in what the tests print: panics in the old and new format, and backtraces.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field
from typing import Any

from watchtest.core.model import Execution, Failure, Location, Outcome, Result
from watchtest.runners.cargo.cargo_crates import BUILD_SCRIPT, LIBRARIES
from watchtest.runners.command_report import TEST_LIMIT, ToolReader
from watchtest.runners.runner import Invocation, InvocationEnd
from watchtest.runners.untrusted import COLUMNS, inside, location, name, number, seconds, tables, text

OUTCOMES = {"ok": Outcome.PASSED, "failed": Outcome.FAILED, "ignored": Outcome.SKIPPED}
WHOLE = "main"
"""The name of the only test of a binary without libtest."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a test binary was built from."""

    id: str
    file: str


@dataclass(slots=True)
class _Binary:
    """A test binary that has started."""

    target: Target
    count: int | None = None
    ended: int = 0
    running: dict[str, None] = field(default_factory=dict)
    has_suite_end: bool = False


class CargoReader(ToolReader):
    """Reads the rows of one `cargo test --tests`."""

    def __init__(self, tool: str, invocation: Invocation, root: str) -> None:
        super().__init__(tool, invocation, root)
        self._targets: dict[str, Target] = {}
        self._compiler_errors: dict[str, list[dict[str, Any]]] = {}
        self._binary: _Binary | None = None
        self._broken = ""
        self._is_built = False

    def _take_row(self, row: dict[str, Any]) -> None:
        if "reason" in row:
            self._take_build_row(row)
        elif row.get("watchtest") == "begin":
            binary = name(row.get("binary"))
            unknown = Target(f"{self._folder}/{binary}/lib".lstrip("/"), "")
            self._binary = _Binary(self._targets.get(binary, unknown))
        elif self._binary is not None and row.get("watchtest") == "end":
            code = row.get("code")
            self._end(self._binary, code if isinstance(code, int) else None)
            self._binary = None
        elif self._binary is not None:
            self._take_test_row(self._binary, row)

    # -- the build -------------------------------------------------------------------------------------

    def _take_build_row(self, row: dict[str, Any]) -> None:
        match row:
            case {"reason": "compiler-artifact", "executable": str(path)} if len(self._targets) < TEST_LIMIT:
                self._targets[path.rpartition("/")[2]] = self._target(row)
            case {"reason": "compiler-message", "message": {"level": "error"} as message}:
                errors = self._compiler_errors.setdefault(self._target(row).id, [])
                errors += [message] if len(errors) < 100 else []
            case {"reason": "build-finished", "success": success}:
                self._is_built = success is True

    def _target(self, row: dict[str, Any]) -> Target:
        raw = row.get("target")
        target: dict[str, Any] = raw if isinstance(raw, dict) else {}
        kinds = target.get("kind")
        kind = kinds[0] if isinstance(kinds, list) and kinds and isinstance(kinds[0], str) else "lib"
        other = "build" if kind == BUILD_SCRIPT else f"{kind}/{name(target.get('name'))}"
        crate = _crate(name(row.get("package_id")))
        file = inside(text(target.get("src_path")), self._root, "")
        prefix = f"{self._folder}/" if self._folder else ""
        return Target(f"{prefix}{crate}/{'lib' if kind in LIBRARIES else other}", file or "")

    def _add_compiler_errors(self, target: str, errors: list[dict[str, Any]]) -> None:
        first = errors[0]
        primary = [span for span in tables(first.get("spans")) if span.get("is_primary")]
        where, column, source = None, None, None
        for span in primary[:1]:
            where = location(text(span.get("file_name")), span.get("line_start"), self._root, self._folder)
            column = number(span.get("column_start"), COLUMNS)
            source = "".join(text(line.get("text")) for line in tables(span.get("text"))[:1])
        code = first.get("code")
        kind = text(code.get("code")) if isinstance(code, dict) else ""
        self._collected.error(
            target,
            Failure(
                kind=f"compile error {kind}".strip(),
                message=text(first.get("message")),
                where=where,
                column=column,
                source_line=source or None,
                crash=where,
                text=text("\n".join(text(error.get("rendered")) for error in errors)),
            ),
        )

    # -- the tests -------------------------------------------------------------------------------------

    def _take_test_row(self, binary: _Binary, row: dict[str, Any]) -> None:
        kind, event, test = row.get("type"), row.get("event"), name(row.get("name"))
        if kind == "suite" and event == "started":
            binary.count = number(row.get("test_count")) or 0
        elif kind == "suite":
            binary.has_suite_end = True
        elif kind == "test" and test and event == "started":
            binary.running[test] = None
            self._collected.promise(f"{binary.target.id}::{test}")
        elif kind == "test" and test in binary.running and isinstance(event, str) and event in OUTCOMES:
            del binary.running[test]
            binary.ended += 1
            outcome = OUTCOMES[event]
            failure = self._failure(binary, test, row) if outcome.is_red else None
            self._collected.add(Result(f"{binary.target.id}::{test}", outcome, seconds(row.get("exec_time")), failure))

    def _failure(self, binary: _Binary, test: str, row: dict[str, Any]) -> Failure:
        output, message = text(row.get("stdout")), text(row.get("message"))
        return failure(test, output, message, self._root, self._folder, binary.target.file)

    def _end(self, binary: _Binary, code: int | None) -> None:
        target = binary.target.id
        if binary.count is None:
            # A custom harness reports no tests, so the whole binary counts as one.
            test = f"{target}::{WHOLE}"
            self._collected.promise(test)
            failure = Failure("exit code", f"{target} exited with {code}") if code else None
            self._collected.add(Result(test, Outcome.FAILED if failure else Outcome.PASSED, 0.0, failure))
        elif binary.running or not binary.has_suite_end or binary.ended < binary.count:
            self._crashed(binary, how_it_ended(code))

    def _crashed(self, binary: _Binary, how: str) -> None:
        during = list(binary.running)
        names = ", ".join(during[:5]) + (f" and {len(during) - 5} more" if len(during) > 5 else "")
        ended = f"the tests of {binary.target.id} ended early ({how})"
        self._broken = self._broken or (f"{ended} while {names} ran" if during else ended)
        failure = Failure(kind="crashed", message=f"the test process ended while it ran ({how})")
        for test in during:
            self._collected.add(Result(f"{binary.target.id}::{test}", Outcome.ERROR, 0.0, failure))

    # -- the end ---------------------------------------------------------------------------------------

    def execution(self, end: InvocationEnd) -> Execution:
        if not self._is_built:
            for target, errors in self._compiler_errors.items():
                self._add_compiler_errors(target, errors)
        binary, current = self._binary, ""
        if binary is not None:  # cargo itself ended early
            current = f"{binary.target.id}::{next(iter(binary.running))}" if binary.running else ""
            self._broken = self._broken or f"cargo ended while {binary.target.id} was running"
        reason = self._broken
        if not self._is_built and not self._collected.errors and end.exit_code:
            reason = _first_error(text(end.output))
            reason = reason or f"cargo exited with {end.exit_code} before anything was built"
        is_whole = self._is_built and not self._broken
        return self._collected.execution(
            end, self._tool, reason=reason, is_whole=is_whole, current=current, withdrawn=self._broken
        )


def _first_error(output: str) -> str:
    return next((line.strip() for line in output.splitlines() if line.startswith("error")), "")


def _crate(package_id: str) -> str:
    """Parse `path+file:///a/b#name@1.0`, `path+file:///a/name#1.0` or the old `name 1.0 (path+file:///a/b)`."""
    before, hash_, after = package_id.partition("#")
    if not hash_:
        return re.split(r"\s", package_id)[0]
    return after.partition("@")[0] if "@" in after else before.rstrip("/").rpartition("/")[2]


PANIC = re.compile(
    r"^thread '(?P<thread>[^\n]*?)' (?:\(\d+\) )?panicked at "
    r"(?:'(?P<old>.*?)', (?P<old_at>[^\n]+?:\d+:\d+)$|(?P<at>[^\n]+?:\d+:\d+):\n(?P<new>.*?)"
    r"(?=^stack backtrace:|^note: |^thread '|\Z))",
    re.MULTILINE | re.DOTALL,
)
FRAME = re.compile(r"^\s+at (\S.*?):(\d{1,9})(?::\d{1,9})?\s*$", re.MULTILINE)
AT = re.compile(r"\bat (\S+\.rs):(\d{1,9}):(\d{1,9})")
FROM_A_THREAD = "Any {"
"""The message of a panic in another thread after `unwrap`."""


def failure(test: str, output: str, message: str, root: str, folder: str, file: str) -> Failure:
    """Describe a failed test by its own panic, or by the panic of another thread that it passed on."""
    panics = list(PANIC.finditer(output))
    own = [found for found in panics if found["thread"] == test] or panics
    if not own:
        return _without_panic(output, message, root, folder)
    chosen = own[-1]
    if FROM_A_THREAD in _message(chosen) and panics.index(chosen) > 0:
        chosen = panics[panics.index(chosen) - 1]
    path, line, column = (chosen["at"] or chosen["old_at"]).rsplit(":", 2)
    crash = location(path, line, root, folder)
    rest = output[chosen.end() :]
    following = PANIC.search(rest)
    frames = [
        at
        for frame in FRAME.finditer(rest[: following.start()] if following else rest)
        if (at := location(frame[1], frame[2], root, folder))
    ]
    crash = crash or next(iter(frames), None)
    where = next((at for at in frames if at.file == file), crash)
    is_there = where is not None and where == location(path, line, root, folder)
    return Failure(
        kind="panic",
        message=_message(chosen) or message,
        where=where,
        column=number(column, COLUMNS) if is_there else None,
        crash=crash,
        text=output,
    )


def _message(panic: re.Match[str]) -> str:
    return str(panic["new"] if panic["new"] is not None else panic["old"]).strip()


def _without_panic(output: str, message: str, root: str, folder: str) -> Failure:
    """Describe a test that returned an error, or did not panic although it should."""
    found = AT.search(message)
    where: Location | None = location(found[1], found[2], root, folder) if found else None
    return Failure(kind="failed", message=message or output.strip(), where=where, crash=where, text=output)


def how_it_ended(code: int | None) -> str:
    """Describe an exit code; a shell reports a signal as 128 plus its number."""
    if code is not None and 128 < code < 128 + signal.NSIG:
        try:
            return signal.Signals(code - 128).name
        except ValueError:
            pass
    return f"exit code {code}"


# -- documentation tests ---------------------------------------------------------------------------

DOC_CRATE = re.compile(r"^\s+Doc-tests (\S+)$")
DOC_TEST = re.compile(r"^test (.+ \(line (\d{1,9})\)(?: - [a-z ]+)?) \.\.\. (ok|FAILED|ignored)(?:, .*)?$")
DOC_COUNT = re.compile(r"^running (\d+) tests?$")
DOC_RESULT = re.compile(r"^test result: ")
DOC_BLOCK = re.compile(r"^---- (.+) stdout ----$")
NO_LIBRARY = re.compile(r"^error: no library targets found in ", re.MULTILINE)
NOISE = re.compile(r"^(Test executable failed.*|stderr:|stdout:|thread '.*|\s*)$")


class DoctestReader(ToolReader):
    """Reads the output of one `cargo test --doc`, in which crates differ only by their order.

    It is plain text: on a stable toolchain rustdoc writes no JSON.
    """

    def execution(self, end: InvocationEnd) -> Execution:
        output = text(end.output)
        if NO_LIBRARY.search(output):
            end = InvocationEnd(0, output=end.output, duration_s=end.duration_s)
        missing = self._read(output)
        reason = ""
        if missing:
            reason = f"{missing} documentation test{'s were' if missing > 1 else ' was'} not reported"
        elif end.exit_code and not self._collected.has_red:
            reason = _first_error(output)
        return self._collected.execution(end, self._tool, reason=reason, is_whole=missing == 0)

    def _read(self, output: str) -> int:
        """Collect the results. Returns how many tests were announced but not reported."""
        crate, announced, reported = "doc", 0, 0
        blocks = _blocks(output)
        prefix = f"{self._folder}/" if self._folder else ""
        for line in output.splitlines():
            if found := DOC_CRATE.match(line):
                crate = name(found[1])
            elif found := DOC_COUNT.match(line):
                announced += int(found[1]) if len(found[1]) < 9 else 0
            elif found := DOC_TEST.match(line):
                reported += 1
                id_ = f"{prefix}{crate}/doc::{name(found[1])}"
                self._collected.promise(id_)
                outcome = OUTCOMES[found[3].lower()]
                failure = self._failure(found, blocks.get(found[1], "")) if outcome.is_red else None
                self._collected.add(Result(id_, outcome, 0.0, failure))
        return max(0, announced - reported)

    def _failure(self, test: re.Match[str], block: str) -> Failure:
        """Locate the failure at the code block: lines in the message refer to a program that rustdoc generated."""
        where = location(test[1].partition(" - ")[0], test[2], self._root, self._folder)
        message = "\n".join(line for line in block.splitlines() if not NOISE.match(line))
        message = message.partition("\nstack backtrace:")[0].partition("\nnote: ")[0]
        return Failure("doctest", message.strip() or "the documentation test failed", where, crash=where, text=block)


def _blocks(output: str) -> dict[str, str]:
    """Return the captured output of each failed test."""
    blocks: dict[str, list[str]] = {}
    current: list[str] = []
    for line in output.splitlines():
        if found := DOC_BLOCK.match(line):
            current = blocks.setdefault(found[1], [])
        elif line == "failures:" or DOC_RESULT.match(line):
            current = []
        else:
            current.append(line)
    return {test: "\n".join(lines) for test, lines in blocks.items()}
