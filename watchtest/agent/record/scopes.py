"""What tests touch, scope by scope, and the rows that report it. Listens to nothing by itself.

A scope owns everything that is touched while it is active: a test, a fixture that outlives a test, a file that is being
collected, a module that is being imported, a function that caches its results, a library that may cache the files it
has read, and the session for everything else.
"""

from __future__ import annotations

import stat
from itertools import islice
from os import PathLike, fsdecode, lstat, sep
from os.path import abspath, isabs, join, realpath, split
from types import CodeType
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from ..module_origins import real_folder
from ..rows import SCOPE_SETS, CodesRow, Row, RowKind

SESSION = "session"
CODE = "code"
TEST, FIXTURE, FILE, IMPORT, MEMO, LIBRARY = "test:", "fixture:", "file:", "import:", "memo:", "library:"
ITEMS_PER_ROW = 5000
"""Larger scopes take several rows."""
MAX_CALLS = 50
"""How often a scope may call a caching function; after that, all that the scope does is attributed to the function."""
FOREIGN_FOLDERS = ("site-packages", "__pycache__")
"""Folders inside the project whose files are not the project's own."""
ELSEWHERE, ABOVE = "elsewhere", "above"
"""In place of a folder of the project, which ends with a slash: a folder outside the project, or above it."""

Send = Callable[[Row], None]
Write = Callable[[List[Any]], None]
CodeLocation = Tuple[str, int, str]
"""File, first line and name of a function."""

identity: Callable[[object], int] = object.__hash__
"""Identifies an object while it lives, like id(), which would be an audit event: half a million per thousand tests."""


class Scope:
    """What was touched while it was active.

    `files` were read, `folders` listed, `probes` checked for existence, `imports` executed. `missing` are modules that
    were looked up, `uses` other scopes, `opaque` the reasons why not everything is known. `reported` has been sent.
    """

    __slots__ = ("calls", "codes", "is_test", "key", "reported", *SCOPE_SETS)

    def __init__(self, key: str) -> None:
        self.key = key
        self.is_test = key.startswith(TEST)
        self.codes: Set[int] = set()
        self.calls: Dict[str, int] = {}
        for name in SCOPE_SETS:
            setattr(self, name, set())
        self.reported: Dict[str, Set[Any]] = {}


class Scopes:
    """The stack of active scopes. Calls `on_switch` when functions have to be reported again, for another scope."""

    def __init__(self, root: str, send: Send, on_switch: Callable[[], None]) -> None:
        self._root = join(realpath(root), "")
        self._send = send
        self._on_switch = on_switch
        self._scopes: Dict[str, Scope] = {}
        self._changed: Dict[str, Scope] = {}
        """The scopes that may have changed since the last report."""
        self.known_code: Dict[int, CodeType] = {}
        """By identity: all code that may be entered. It is kept alive, so that identities stay unique."""
        self.entered: List[int] = []
        """Code that ran since the last switch; the function listener adds to it."""
        self.blind: Dict[int, str] = {}
        """By code: what it does that cannot be observed."""
        self.born: Set[int] = set()
        """Objects that the current test has created for itself."""
        self.shared: Set[int] = set()
        """Code that ran outside of tests: all tests may find the objects it has created."""
        self._write: Optional[Write] = None
        self._ignored_calls: Dict[str, int] = {}
        self.collect: Callable[[], None] = lambda: None
        """Adds what children of this process and native libraries have touched."""
        self._numbers: Dict[int, int] = {}
        self._locations: Dict[CodeLocation, int] = {}
        self._locations_reported = 0
        self._paths: Dict[str, str] = {}
        self._folders: Dict[str, str] = {}
        self.top = self._scope(SESSION)
        self._stack = [self.top]

    def touch(self, kind: str, word: str, key: str = "") -> None:
        """Note what the active scope, or the one with this key, has touched."""
        if self._write is None:
            getattr(self._scope(key) if key else self.top, kind).add(word)
        else:
            self._write([kind, word])

    def touch_path(self, kind: str, path: Any, key: str = "") -> None:
        """Note a path of the project and, if it is a link, its target."""
        own = self.own(path)
        if own:
            self.touch(kind, own, key)
            path = fsdecode(path)
            real = self.own(realpath(path)) if _is_link(path) else own
            if real and real != own:
                self.touch(kind, real, key)

    def enter(self, code_id: int) -> None:
        if self._write is None:
            self.entered.append(code_id)
            return
        reason = self.blind.get(code_id)
        if reason is not None:
            self.touch("opaque", reason)
        code = self.known_code[code_id]
        self._write([CODE, self.own(code.co_filename), code.co_firstlineno, code.co_name])

    def become_child(self, write: Write) -> None:
        """In a forked child, which may end at any time: write everything at once from now on."""
        self._write = write

    def begin_caching(self, key: str) -> None:
        """A caching function was called. In a tight loop, not every call gets a scope."""
        calls = self.top.calls
        calls[key] = calls.get(key, 0) + 1
        if calls[key] <= MAX_CALLS:
            self.begin(key)
        else:
            self.ignore_call(key)

    def ignore_call(self, key: str) -> None:
        """The current call of this caching function gets no scope, so its end must be ignored, too."""
        self._ignored_calls[key] = self._ignored_calls.get(key, 0) + 1

    def end_caching(self, key: str) -> bool:
        """End the scope of a caching function; return whether there was none to end."""
        if self._ignored_calls.get(key):
            self._ignored_calls[key] -= 1
            return False
        return not self.end(key)

    def begin(self, key: str) -> None:
        if self._write is not None:
            return
        self._settle()
        scope = self._scope(key)
        if scope.is_test:
            self.born.clear()
        if len(self._stack) > 1:
            self.top.uses.add(key)  # type: ignore[attr-defined]
        self._stack.append(scope)
        self.top = scope
        self._on_switch()

    def end(self, key: str) -> bool:
        """End this scope, and those that began after it and never ended (failed imports); False if it is not active."""
        if self._write is not None or (self.top.key != key and all(scope.key != key for scope in self._stack[1:])):
            return False
        self._settle()
        while True:
            scope = self._stack.pop()
            self._attribute_to_caches(scope)
            if scope.key == key:
                break
        self.top = self._stack[-1]
        # An enclosing scope uses the one that has just ended, and so need not report the same functions again.
        if len(self._stack) == 1:
            self._on_switch()
        return True

    def _attribute_to_caches(self, scope: Scope) -> None:
        """Attribute what this scope did to the caching functions that it called too often to follow."""
        if scope.calls:
            for key in [key for key, count in scope.calls.items() if count > MAX_CALLS and key != scope.key]:
                cache = self._scope(key)
                cache.codes |= scope.codes
                for name in SCOPE_SETS:
                    getattr(cache, name).update(getattr(scope, name) - {key})
            scope.calls.clear()
        if scope.is_test:
            self._ignored_calls.clear()

    def _scope(self, key: str) -> Scope:
        scope = self._scopes.get(key)
        if scope is None:
            scope = self._scopes[key] = Scope(key)
        self._changed[key] = scope
        return scope

    def _settle(self) -> None:
        """Attribute what ran since the last switch to the active scope."""
        if self.entered:
            entered = self.entered[:]
            del self.entered[: len(entered)]  # other threads may add to it meanwhile
            numbers = self._numbers
            try:
                self.top.codes.update(map(numbers.__getitem__, entered))
            except KeyError:  # at least one is new, usually that of the test itself
                for code_id in entered:
                    if code_id not in numbers:
                        code = self.known_code[code_id]
                        location = (self.own(code.co_filename), code.co_firstlineno, code.co_name)
                        numbers[code_id] = self._number(location)
                self.top.codes.update(map(numbers.__getitem__, entered))
            if not self.top.is_test:
                self.shared.update(entered)
            if not self.blind.keys().isdisjoint(entered):
                reasons = (self.blind[code_id] for code_id in entered if code_id in self.blind)
                self.top.opaque.update(reasons)  # type: ignore[attr-defined]
        self.collect()

    def add_code(self, path: str, line: int, name: str) -> None:
        """Note code that ran in another process."""
        self.top.codes.add(self._number((path, line, name)))

    def _number(self, location: CodeLocation) -> int:
        """Return the number of a location: code that is created again, or imported twice, has the same one."""
        return self._locations.setdefault(location, len(self._locations))

    # -- paths -------------------------------------------------------------------------------------

    def own(self, path: Any) -> str:
        """Return the path relative to the project; "" if it is outside, or of an installed package."""
        if not isinstance(path, str):
            if not isinstance(path, (bytes, PathLike)):
                return ""
            path = fsdecode(path)
        known = self._paths.get(path)
        if known is None:
            known = self._own(path)
            if isabs(path):
                self._paths[path] = known
        return known

    def _own(self, path: str) -> str:
        try:
            is_plain = path.startswith(sep) and sep + "." not in path and sep * 2 not in path
            folder, name = split(path if is_plain else abspath(path))
        except (OSError, ValueError):
            return ""
        known = self._folders.get(folder)
        if known is None:
            known = self._folders[folder] = self._own_folder(folder)
        if known == ELSEWHERE or name in FOREIGN_FOLDERS:
            return ""
        if known == ABOVE:
            return "." if join(real_folder(folder), name, "") == self._root else ""
        return known + name

    def _own_folder(self, folder: str) -> str:
        """Return the folder relative to the project, with a slash at its end; or ELSEWHERE, or ABOVE."""
        try:
            real = join(real_folder(folder), "")
        except (OSError, ValueError):
            return ELSEWHERE
        if self._root.startswith(real) and self._root != real:
            return ABOVE
        if not real.startswith(self._root) or any(part in real for part in FOREIGN_FOLDERS):
            return ELSEWHERE
        return real[len(self._root) :].replace(sep, "/")

    # -- reports -----------------------------------------------------------------------------------

    def report(self, test_key: str = "") -> None:
        """Send all that is new. A test is sent once, when it has ended, and then dropped."""
        self._settle()
        test = self._scopes.pop(test_key, None)
        self._changed.pop(test_key, None)
        changed = list(self._changed.values())
        self._changed = {scope.key: scope for scope in self._stack}
        for scope in changed:
            self._report(scope)
        if test is not None:
            self._report(test)

    def _report(self, scope: Scope) -> None:
        while self._locations_reported < len(self._locations):
            newest = islice(reversed(self._locations), len(self._locations) - self._locations_reported)
            locations = list(newest)[::-1][:ITEMS_PER_ROW]
            codes_row: CodesRow = {"k": RowKind.CODES, "from": self._locations_reported, "codes": locations}
            self._send(codes_row)
            self._locations_reported += len(locations)
        row: Dict[str, Any] = {"k": RowKind.SCOPE, "scope": scope.key}
        for name in ("codes", *SCOPE_SETS):
            new = _unreported(scope, name) if getattr(scope, name) else ()
            while len(new) > ITEMS_PER_ROW:
                self._send({"k": RowKind.SCOPE, "scope": scope.key, name: new[:ITEMS_PER_ROW]})
                new = new[ITEMS_PER_ROW:]
            if new:
                row[name] = new
        if len(row) > 2 or scope.is_test:  # it is worth knowing that a test touches nothing
            self._send(row)


def _unreported(scope: Scope, name: str) -> Sequence[Any]:
    """Return what has not been sent yet: a scope that outlives a test would be sent again after each of them."""
    items = getattr(scope, name)
    reported = scope.reported.setdefault(name, set())
    new = items - reported
    reported |= new
    items -= reported  # not clear(): threads may have added to it meanwhile
    return list(new)


def _is_link(path: str) -> bool:
    """Return whether this is a symlink. Not by os.path, which is observed."""
    try:
        return stat.S_ISLNK(lstat(path).st_mode)
    except (OSError, ValueError):
        return False
