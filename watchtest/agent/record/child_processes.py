"""Records what forked children of a test process touch, and which other programs a test starts.

What a program does cannot be observed, so the dependencies of its test are unknown. All forked children append
to one unlinked file at once, because they may end in any way; the parent reads what is new when a scope ends. A child
that outlives its scope counts for the next one, too.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
from os import PathLike, fsdecode, fstat, pread, write
from os.path import basename
from typing import Any, Callable, List, Optional, Set, Tuple

from ..rows import REPOSITORY, SCOPE_SETS
from .opened_files import moved_out_of_reach
from .scopes import CODE, Scopes

SPAWN_FUNCTIONS = {
    os.path.join("multiprocessing", "util.py"): "spawnv_passfds",
    os.path.join("multiprocessing", "forkserver.py"): "connect_to_new_process",
    os.path.join("loky", "process_executor.py"): "submit",
}
"""By file: the function that starts a process, or runs code in one, that we cannot observe."""
PROCESS_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.system", "os.exec", "os.spawn", "os.startfile", "pty.spawn")
"""The audit events of a program that is started; the first argument is the program."""
HARMLESS_PROGRAMS = frozenset({"ldconfig", "gcc", "cc", "ld", "uname", "lsb_release", "git", "hg", "stty", "tput"})
"""Programs that libraries start outside of tests to query the machine or a version."""
READ_SIZE = 16 * 1024 * 1024
ENCODE, DECODE = json.JSONEncoder().encode, json.JSONDecoder().decode


def note_program(scopes: Scopes, event: str, arguments: Tuple[Any, ...]) -> None:
    """Note a program that is started, unless it is harmless. git reads at least the commits and tags."""
    program = arguments[0]
    if basename(str(program)) in HARMLESS_PROGRAMS and not scopes.top.is_test:
        if basename(str(program)) == "git" and "version" not in str(arguments[1:2]):
            scopes.touch("files", REPOSITORY)
        return
    name = fsdecode(program) if isinstance(program, (str, bytes, PathLike)) else event
    scopes.touch("opaque", "starts " + name[:200])


class ForkedChildren:
    """`listen_in_child` makes the function listener report to `scopes` in a child as well."""

    def __init__(self, scopes: Scopes, listen_in_child: Callable[[], None]) -> None:
        self._scopes = scopes
        self._listen_in_child = listen_in_child
        self._file: Optional[int] = None
        self._identity: Tuple[int, int] = (0, 0)
        self._read = 0

    def start(self) -> None:
        os.register_at_fork(before=self._before, after_in_child=self._in_child)

    def _before(self) -> None:
        if self._file is None:
            try:
                self._file = _unlinked_file()
                self._identity = _identity(self._file)
            except OSError:
                self._scopes.touch("opaque", "forks")

    def _in_child(self) -> None:
        file, identity = self._file, self._identity
        if file is None:
            return
        written: Set[str] = set()

        def write_row(row: List[Any]) -> None:
            text = ENCODE(row)
            if text in written:
                return
            try:
                if _identity(file) == identity:
                    write(file, text.encode("ascii") + b"\n")
                    written.add(text)
            except OSError:
                pass  # the child has closed it

        self._scopes.become_child(write_row)
        self._listen_in_child()

    def collect(self) -> None:
        """Add what children have written since the last time."""
        if self._file is None:
            return
        data = pread(self._file, READ_SIZE, self._read)
        whole = data[: data.rfind(b"\n") + 1]
        self._read += len(whole)
        for line in whole.decode("ascii").splitlines():
            kind, *words = DECODE(line)
            if kind == CODE:
                self._scopes.add_code(*words)
            elif kind in SCOPE_SETS:
                self._scopes.touch(kind, words[0])


def _unlinked_file() -> int:
    file, name = tempfile.mkstemp(prefix="watchtest-")
    os.unlink(name)
    fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
    return moved_out_of_reach(file)


def _identity(file: int) -> Tuple[int, int]:
    status = fstat(file)
    return status.st_dev, status.st_ino
