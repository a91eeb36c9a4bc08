"""The rows that test processes report, one JSON object per line: their kinds, their fields, and their writer.

The plugins inside the tests' own Python write them; agent and host read them. A test may write to the same pipe, so a
reader checks the type of every field.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
from hashlib import blake2b
from hmac import compare_digest
from os import getpid, write
from typing import Any, Dict, Final, List, Literal, Mapping, Optional, Tuple, TypedDict

from .running_test import RunningTest

SCOPE_SETS = ("files", "folders", "probes", "imports", "missing", "uses", "opaque")
"""The fields of a ScopeRow that are sets of words."""
REPOSITORY = ".git"
"""Stands, among the files that were read, for the commits and tags that git knows."""
IDS_PER_ROW = 500
BUFFER_LIMIT = 32 * 1024
KEY_SIZE, SIGNATURE_SIZE = 16, 16
TEST_ID_LIMIT = 2000
"""The longest id of a test, in characters: what the status file and the events hold in one piece."""
STACKS_SIGNAL = signal.SIGRTMIN + 5 if hasattr(signal, "SIGRTMIN") else signal.SIGUSR2
ENCODE = json.JSONEncoder(separators=(",", ":")).encode

UntrustedRow = Dict[str, Any]
"""A row as it was read: any field may be missing or of another type."""


class RowKind:
    """The values of `k`, by which a row is recognised."""

    COLLECTED: Final = "collected"
    COLLECTION_END: Final = "collection_end"
    COLLECTION_ERROR: Final = "collection_error"
    START: Final = "start"
    TEST: Final = "test"
    FINISH: Final = "finish"
    INTERNAL_ERROR: Final = "internal_error"
    COLD: Final = "cold"
    VITAL: Final = "vital_files"
    RESTART: Final = "restart"
    MODULES: Final = "modules"
    CODES: Final = "codes"
    SCOPE: Final = "scope"
    PROJECT_MODULES: Final = "modules_of_project"


class Crash(TypedDict):
    file: str
    line: int


class FailureRow(TypedDict, total=False):
    """Why a test failed. `file` and `line` are shown; `crash` is the deepest location in the project."""

    kind: str
    message: str
    text: str
    output: str
    file: str
    line: int
    column: Optional[int]
    source_line: str
    function: str
    crash: Crash


class BareRow(TypedDict):
    """COLLECTION_END; or RESTART, written by the agent: all rows are void, the run starts again in a fresh process."""

    k: Literal["collection_end", "restart"]


class CollectedRow(TypedDict):
    """Tests that are about to run; COLLECTION_END follows the last one."""

    k: Literal["collected"]
    tests: List[str]


class CollectionErrorRow(TypedDict):
    """A file, or whatever else stands in for `test`, that cannot be collected."""

    k: Literal["collection_error"]
    test: str
    failure: FailureRow


class StartRow(TypedDict):
    k: Literal["start"]
    test: str


class _TestFields(TypedDict):
    k: Literal["test"]
    test: str
    outcome: str
    duration_s: float


class TestRow(_TestFields, total=False):
    """The result of a test. `reruns`: how many failed attempts a plugin repeated."""

    failure: FailureRow
    reruns: int


class FinishRow(TypedDict):
    """The session is over. `withdrawn`: why it ended before all announced tests ran."""

    k: Literal["finish"]
    exit_code: int
    withdrawn: str


class InternalErrorRow(TypedDict):
    k: Literal["internal_error"]
    text: str


class ColdRow(TypedDict):
    """A warm run must be repeated in a fresh process, without preloading the modules in `avoid`. Read by the agent."""

    k: Literal["cold"]
    why: str
    avoid: List[str]


class VitalFilesRow(TypedDict):
    """Describes the files that no test may change; see `vital_files`. Read by the agent."""

    k: Literal["vital_files"]
    files: Mapping[str, Any]


class ModulesRow(TypedDict):
    """Third-party modules that the run imported, each with whether pytest rewrote it. Read by the agent."""

    k: Literal["modules"]
    names: List[Tuple[str, bool]]


CodesRow = TypedDict("CodesRow", {"k": Literal["codes"], "from": int, "codes": List[Tuple[str, int, str]]})
"""File, first line and name of functions. They are numbered consecutively, beginning with `from`."""


class _ScopeFields(TypedDict):
    k: Literal["scope"]
    scope: str


class ScopeRow(_ScopeFields, total=False):
    """What was touched while a scope was active; see `record.scopes`. `codes` are numbers from CodesRows."""

    codes: List[int]
    files: List[str]
    folders: List[str]
    probes: List[str]
    imports: List[str]
    missing: List[str]
    uses: List[str]
    opaque: List[str]


class ProjectModulesRow(TypedDict):
    """The files of the project's modules, and the top-level names of all imported modules."""

    k: Literal["modules_of_project"]
    modules: Dict[str, str]
    tops: List[str]


Row = Mapping[str, Any]
"""Any of the rows above."""


def short_id(test: str) -> str:
    """Return the id of a test; the same short one each time for an id that is too long, as parameters can make it."""
    if len(test) <= TEST_ID_LIMIT:
        return test
    import hashlib  # which the tests' own process should not have for nothing

    digest = hashlib.sha256(test.encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return f"{test[: TEST_ID_LIMIT - 17]}…{digest}"


def parse_row(line: bytes) -> Optional[UntrustedRow]:
    """Return the row in this line, or None if it is not a JSON object."""
    try:
        row = json.loads(line.decode("utf-8"))
    except (ValueError, RecursionError):
        return None
    return row if isinstance(row, dict) else None


def parse_rows(lines: bytes) -> List[UntrustedRow]:
    """Return the rows in these lines, without other lines: a test may have written those to our pipe."""
    return [row for row in map(parse_row, lines.splitlines()) if row is not None]


def encode_row(row: Row) -> bytes:
    return ENCODE(row).encode("ascii") + b"\n"


class RowSignatures:
    """Signs and verifies the rows of one writer in their order: rows of others, and repeated ones, are noticed.

    Code in the process of the writer can find the key. This stops what is merely written to our pipe.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._count = 0

    def signed(self, row: bytes) -> bytes:
        """Return the next row with its signature in front."""
        signature = self._signature(row.rstrip(b"\n"))
        self._count += 1
        return signature + row

    def verified(self, line: bytes) -> bytes:
        """Return the row in this line; b"" if it is not the next one of our writer."""
        signature, row = line[:SIGNATURE_SIZE], line[SIGNATURE_SIZE:]
        if not compare_digest(signature, self._signature(row)):
            return b""
        self._count += 1
        return row

    def _signature(self, row: bytes) -> bytes:
        signed = self._count.to_bytes(8, "big") + row
        return blake2b(signed, key=self._key, digest_size=SIGNATURE_SIZE // 2).hexdigest().encode("ascii")


class RowWriter:
    """Writes rows to the agent's pipe. A fork of the test process writes nothing."""

    def __init__(self, fd: int, running_test: str = "", key: bytes = b"") -> None:
        """`running_test` is the file that keeps the name of the running test; `key` signs the rows."""
        self._fd = fd
        self._signatures = RowSignatures(key) if key else None
        self._pid = getpid()
        self._buffer = bytearray()
        self._running_file = running_test
        self._running: Optional[RunningTest] = None

    def start(self, test: str) -> None:
        """Report that a test begins. Its name outlives whatever the test does before the row has been read."""
        if self._running is None:
            self._running = RunningTest(self._running_file)  # only now: a prestarted run must not touch any file
        self._running.note(test)
        self.send(StartRow(k=RowKind.START, test=test))

    def end(self, row: TestRow) -> None:
        """Report the result of a test."""
        self.send(row)
        if self._running is not None:
            self._running.note_end(self._fd)

    def send(self, row: Row) -> None:
        """Write the row, and all buffered ones before it, at once."""
        self.buffer(row)
        self.flush()

    def buffer(self, row: Row) -> None:
        """Write the row together with the next one that is sent."""
        line = encode_row(row)
        self._buffer += line if self._signatures is None else self._signatures.signed(line)
        if len(self._buffer) > BUFFER_LIMIT:
            self.flush()

    def flush(self) -> None:
        data = memoryview(bytes(self._buffer))
        self._buffer.clear()
        while data and getpid() == self._pid:
            data = data[write(self._fd, data) :]

    def announce(self, tests: List[str]) -> None:
        """Report every test that is about to run."""
        for start in range(0, len(tests), IDS_PER_ROW):
            self.send(CollectedRow(k=RowKind.COLLECTED, tests=tests[start : start + IDS_PER_ROW]))
        self.send(BareRow(k=RowKind.COLLECTION_END))


RESULTS, STACKS, KEY = "WATCHTEST_RESULTS_FD", "WATCHTEST_STACKS_FD", "WATCHTEST_KEY_FD"
"""The variables in which the agent names its pipes to a fresh process."""


def inherited_writer(running_test: str) -> RowWriter:
    """Return the writer for the pipe that the agent named, with the key that it has put into another one."""
    key = b""
    if KEY in os.environ:
        with os.fdopen(inherited_fd(KEY), "rb") as stream:
            key = stream.read()
    return RowWriter(inherited_fd(RESULTS), running_test, key)


def inherited_fd(name: str) -> int:
    """Return the pipe that the agent named in this variable. The processes that tests start inherit neither."""
    fd = int(os.environ.pop(name))
    os.set_inheritable(fd, False)
    return fd


def dump_stacks_on_signal(fd: int) -> None:
    """Write the stacks of all threads to this file when the agent asks for them."""
    faulthandler.register(STACKS_SIGNAL, file=fd, all_threads=True)
