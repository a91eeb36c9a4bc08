"""What tests touch, scope by scope, and the rows that tell it. Listens to nothing by itself.

A scope is whatever owns what is touched while it is on: a test, a fixture that outlives a test, a file that is being
collected, a module that is being imported, a function that remembers its answers, a library that may remember the files
it has read, and the session for all the rest.
"""

from __future__ import annotations

import os
import stat
from itertools import islice
from types import CodeType
from typing import Any, Callable, Dict, Iterable, List, Optional, Set, Tuple

from .identity import identity
from .modules import real_folder

SESSION = "session"
CODE = "code"
TEST, FIXTURE, FILE, IMPORT, MEMO, LIBRARY = "test:", "fixture:", "file:", "import:", "memo:", "library:"
A_ROW = 5000
"""The most that one row names; larger scopes take several rows."""
MOST_CALLS = 50
"""So often a scope may call a function that remembers; after that, all it does is taken for what that one does."""
NOT_OURS = ("site-packages", "__pycache__")
"""Folders of the project with files that nobody of the project wrote."""
ELSEWHERE, ABOVE = "elsewhere", "above"
"""In place of a folder of the project, which ends with a slash: of no interest, and one that the project lies in."""
SETS = ("files", "folders", "probes", "imports", "missing", "uses", "opaque")
TOLD = ("codes", *SETS)

Send = Callable[[Dict[str, Any]], None]
Write = Callable[[List[Any]], None]
Place = Tuple[str, int, str]
"""File, first line and name of a function."""


class Scope:
    """`files` were read, `folders` listed, `probes` asked for, `imports` executed; `missing` are modules that were
    looked for, `uses` other scopes, `opaque` reasons why what was touched cannot be known."""

    __slots__ = ("calls", "codes", "is_dirty", "key", *SETS)

    def __init__(self, key: str) -> None:
        self.key = key
        self.codes: Set[int] = set()
        self.calls: Dict[str, int] = {}
        for name in SETS:
            setattr(self, name, set())
        self.is_dirty = True


class Scopes:
    """The scopes that are on, one in the other. `on_switch` is called when everything is to be heard of again."""

    def __init__(self, root: str, send: Send, on_switch: Callable[[], None]) -> None:
        self._root = os.path.join(os.path.realpath(root), "")
        self._send = send
        self._on_switch = on_switch
        self._kept: Dict[str, Scope] = {}
        self.entered: List[CodeType] = []
        """Code that ran since the last switch; whoever listens adds to it."""
        self.blind: Dict[int, str] = {}
        """Code that does what cannot be heard: in words."""
        self.born: Set[int] = set()
        """Objects that the test which is on has made for itself."""
        self.shared: Set[int] = set()
        """Code that ran elsewhere than in tests: what it has made may be found by all of them."""
        self._write: Optional[Write] = None
        self._passed_over: Dict[str, int] = {}
        self.gather: Callable[[], None] = lambda: None
        """Takes over what children of this process have touched."""
        self._numbers: Dict[int, int] = {}
        self._kept_codes: List[CodeType] = []
        """So that no other code gets the identity of one of them."""
        self._places: Dict[Place, int] = {}
        self._told = 0
        self._paths: Dict[str, str] = {}
        self._folders: Dict[str, str] = {}
        self._stack = [self._scope(SESSION)]

    @property
    def top(self) -> Scope:
        return self._stack[-1]

    def touch(self, kind: str, word: str, key: str = "") -> None:
        """By the scope that is on, or by another."""
        if self._write is None:
            getattr(self._scope(key) if key else self.top, kind).add(word)
        else:
            self._write([kind, word])

    def touch_path(self, kind: str, path: str, key: str = "") -> None:
        """By its own name, and by that of what it links to."""
        own = self.own(path)
        if own:
            self.touch(kind, own, key)
            real = self.own(os.path.realpath(path)) if _is_link(path) else own
            if real and real != own:
                self.touch(kind, real, key)

    def enter(self, code: CodeType) -> None:
        if self._write is None:
            self.entered.append(code)
            return
        reason = self.blind.get(identity(code))
        if reason is not None:
            self.touch("opaque", reason)
        self._write([CODE, self.own(code.co_filename), code.co_firstlineno, code.co_name])

    def become_child(self, write: Write) -> None:
        """From now on in a process of which nobody knows how it ends: everything is written at once."""
        self._write = write

    def begin_keeping(self, key: str) -> None:
        """A function that remembers was called; in a tight loop that is too much to follow."""
        calls = self.top.calls
        calls[key] = calls.get(key, 0) + 1
        if calls[key] <= MOST_CALLS:
            self.begin(key)
        else:
            self.pass_over(key)

    def pass_over(self, key: str) -> None:
        """The next end of it is that of a call of which nothing is kept."""
        self._passed_over[key] = self._passed_over.get(key, 0) + 1

    def end_keeping(self, key: str) -> bool:
        """Whether there was nothing to end."""
        if self._passed_over.get(key):
            self._passed_over[key] -= 1
            return False
        return not self.end(key)

    def begin(self, key: str) -> None:
        if self._write is not None:
            return
        self._settle()
        if key.startswith(TEST):
            self.born.clear()
        scope = self._scope(key)
        if len(self._stack) > 1:
            self.top.uses.add(key)  # type: ignore[attr-defined]
        self._stack.append(scope)
        self._on_switch()

    def end(self, key: str) -> bool:
        """Also of all that began after it and did not end: an import that failed. Whether it was on."""
        if self._write is not None or all(scope.key != key for scope in self._stack[1:]):
            return False
        self._settle()
        while True:
            scope = self._stack.pop()
            self._spill(scope)
            if scope.key == key:
                break
        # What was heard of within is known of the one around it, too: it uses what has just ended.
        if len(self._stack) == 1:
            self._on_switch()
        return True

    def _spill(self, scope: Scope) -> None:
        """What it did may be what functions did that it called too often."""
        for key in [key for key, count in scope.calls.items() if count > MOST_CALLS and key != scope.key]:
            memo = self._scope(key)
            memo.codes |= scope.codes
            for name in SETS:
                getattr(memo, name).update(getattr(scope, name) - {key})
        scope.calls.clear()
        if scope.key.startswith(TEST):
            self._passed_over.clear()

    def _scope(self, key: str) -> Scope:
        scope = self._kept.get(key)
        if scope is None:
            scope = self._kept[key] = Scope(key)
        scope.is_dirty = True
        return scope

    def _settle(self) -> None:
        """What ran since the last switch belongs to the scope that was on."""
        if self.entered:
            identities = list(map(identity, self.entered))
            try:
                self.top.codes.update(map(self._numbers.__getitem__, identities))
            except KeyError:
                self.top.codes.update(map(self._number_of, identities, self.entered))
            if not self.top.key.startswith(TEST):
                self.shared.update(identities)
            if not self.blind.keys().isdisjoint(identities):
                reasons = (self.blind[one] for one in identities if one in self.blind)
                self.top.opaque.update(reasons)  # type: ignore[attr-defined]
            self.entered.clear()
        self.gather()

    def _number_of(self, one: int, code: CodeType) -> int:
        number = self._numbers.get(one)
        if number is None:
            number = self._number((self.own(code.co_filename), code.co_firstlineno, code.co_name))
            self._numbers[one] = number
            self._kept_codes.append(code)
        return number

    def add_place(self, path: str, line: int, name: str) -> None:
        """Code that ran in another process."""
        self.top.codes.add(self._number((path, line, name)))

    def _number(self, place: Place) -> int:
        return self._places.setdefault(place, len(self._places))

    # -- paths -------------------------------------------------------------------------------------

    def own(self, path: Any) -> str:
        """The path relative to the project; "" if it lies elsewhere, or among installed packages."""
        if not isinstance(path, str):
            if not isinstance(path, (bytes, os.PathLike)):
                return ""
            path = os.fsdecode(path)
        known = self._paths.get(path)
        if known is None:
            known = self._own(path)
            if os.path.isabs(path):
                self._paths[path] = known
        return known

    def _own(self, path: str) -> str:
        try:
            is_plain = path.startswith(os.sep) and os.sep + "." not in path and os.sep * 2 not in path
            folder, name = os.path.split(path if is_plain else os.path.abspath(path))
        except (OSError, ValueError):
            return ""
        known = self._folders.get(folder)
        if known is None:
            known = self._folders[folder] = self._own_folder(folder)
        if known == ELSEWHERE or name in NOT_OURS:
            return ""
        if known == ABOVE:
            return "." if os.path.join(real_folder(folder), name, "") == self._root else ""
        return known + name

    def _own_folder(self, folder: str) -> str:
        """With a slash at its end, relative to the project. Hundreds of files lie in a few folders."""
        try:
            real = os.path.join(real_folder(folder), "")
        except (OSError, ValueError):
            return ELSEWHERE
        if self._root.startswith(real) and self._root != real:
            return ABOVE
        if not real.startswith(self._root) or any(part in real for part in NOT_OURS):
            return ELSEWHERE
        return real[len(self._root) :].replace(os.sep, "/")

    # -- telling -----------------------------------------------------------------------------------

    def tell(self, test_key: str = "") -> None:
        """All that is new; a test is told once, when it has ended, and forgotten."""
        self._settle()
        dirty = [scope for scope in self._kept.values() if scope.is_dirty and scope.key != test_key]
        for scope in dirty:
            self._tell(scope)
            scope.is_dirty = any(scope is on for on in self._stack)
        if test_key:
            self._tell(self._kept.pop(test_key))

    def _tell(self, scope: Scope) -> None:
        if self._told < len(self._places):
            fresh = list(islice(self._places, self._told, None))
            for start, rows in _pieces(fresh):
                self._send({"k": "codes", "from": self._told + start, "codes": rows})
            self._told = len(self._places)
        is_empty = not scope.codes and not any(getattr(scope, name) for name in SETS)
        if is_empty and not scope.key.startswith(TEST):  # that a test touches nothing is worth knowing
            return
        row: Dict[str, Any] = {"k": "scope", "scope": scope.key}
        for name in TOLD:
            words = getattr(scope, name)
            *whole, rest = (piece for _, piece in _pieces(sorted(words)))
            for piece in whole:
                self._send({"k": "scope", "scope": scope.key, name: piece})
            if rest:
                row[name] = rest
            words.clear()
        self._send(row)


def _pieces(things: List[Any]) -> Iterable[Tuple[int, List[Any]]]:
    """At least one, be it empty."""
    for start in range(0, max(len(things), 1), A_ROW):
        yield start, things[start : start + A_ROW]


def _is_link(path: str) -> bool:
    """Not by os.path: whoever calls that is listened to."""
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (OSError, ValueError):
        return False
