"""What tests touch, scope by scope, and the rows that tell it. Listens to nothing by itself.

A scope is whatever owns what is touched while it is on: a test, a fixture that outlives a test, a file that is being
collected, a module that is being imported, a function that remembers its answers, a library that may remember the files
it has read, and the session for all the rest.

What tells objects apart while they live. As id(), of which the interpreter makes an event each time: the recorder
listens to those, and would hear half a million times of itself in a suite of a thousand tests.
"""

from __future__ import annotations

import stat
from itertools import islice
from os import PathLike, fsdecode, lstat, sep
from os.path import abspath, isabs, join, realpath, split
from types import CodeType
from typing import Any, Callable, Dict, List, Optional, Sequence, Set, Tuple

from ..module_origins import real_folder

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
    looked for, `uses` other scopes, `opaque` reasons why what was touched cannot be known. `told`: what of all that is
    known to whoever is told."""

    __slots__ = ("calls", "codes", "is_test", "key", "told", *SETS)

    def __init__(self, key: str) -> None:
        self.key = key
        self.is_test = key.startswith(TEST)
        self.codes: Set[int] = set()
        self.calls: Dict[str, int] = {}
        for name in SETS:
            setattr(self, name, set())
        self.told: Dict[str, Set[Any]] = {}


class Scopes:
    """The scopes that are on, one in the other. `on_switch` is called when everything is to be heard of again."""

    def __init__(self, root: str, send: Send, on_switch: Callable[[], None]) -> None:
        self._root = join(realpath(root), "")
        self._send = send
        self._on_switch = on_switch
        self._kept: Dict[str, Scope] = {}
        self._touched: Dict[str, Scope] = {}
        """Those of which something may be new since the last that was told."""
        self.known_code: Dict[int, CodeType] = {}
        """By identity: all code that may be entered, kept so that no other gets the identity of one of them."""
        self.entered: List[int] = []
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
        self._places: Dict[Place, int] = {}
        self._places_told = 0
        self._paths: Dict[str, str] = {}
        self._folders: Dict[str, str] = {}
        self.top = self._scope(SESSION)
        self._stack = [self.top]

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
            real = self.own(realpath(path)) if _is_link(path) else own
            if real and real != own:
                self.touch(kind, real, key)

    def enter(self, one: int) -> None:
        if self._write is None:
            self.entered.append(one)
            return
        reason = self.blind.get(one)
        if reason is not None:
            self.touch("opaque", reason)
        code = self.known_code[one]
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
        scope = self._scope(key)
        if scope.is_test:
            self.born.clear()
        if len(self._stack) > 1:
            self.top.uses.add(key)  # type: ignore[attr-defined]
        self._stack.append(scope)
        self.top = scope
        self._on_switch()

    def end(self, key: str) -> bool:
        """Also of all that began after it and did not end: an import that failed. Whether it was on."""
        if self._write is not None or (self.top.key != key and all(scope.key != key for scope in self._stack[1:])):
            return False
        self._settle()
        while True:
            scope = self._stack.pop()
            self._spill(scope)
            if scope.key == key:
                break
        self.top = self._stack[-1]
        # What was heard of within is known of the one around it, too: it uses what has just ended.
        if len(self._stack) == 1:
            self._on_switch()
        return True

    def _spill(self, scope: Scope) -> None:
        """What it did may be what functions did that it called too often."""
        if scope.calls:
            for key in [key for key, count in scope.calls.items() if count > MOST_CALLS and key != scope.key]:
                memo = self._scope(key)
                memo.codes |= scope.codes
                for name in SETS:
                    getattr(memo, name).update(getattr(scope, name) - {key})
            scope.calls.clear()
        if scope.is_test:
            self._passed_over.clear()

    def _scope(self, key: str) -> Scope:
        scope = self._kept.get(key)
        if scope is None:
            scope = self._kept[key] = Scope(key)
        self._touched[key] = scope
        return scope

    def _settle(self) -> None:
        """What ran since the last switch belongs to the scope that was on."""
        if self.entered:
            entered = self.entered[:]
            del self.entered[: len(entered)]  # other threads may go on adding to it
            numbers = self._numbers
            try:
                self.top.codes.update(map(numbers.__getitem__, entered))
            except KeyError:  # at least one is new: mostly that of the test itself
                for one in entered:
                    if one not in numbers:
                        code = self.known_code[one]
                        numbers[one] = self._number((self.own(code.co_filename), code.co_firstlineno, code.co_name))
                self.top.codes.update(map(numbers.__getitem__, entered))
            if not self.top.is_test:
                self.shared.update(entered)
            if not self.blind.keys().isdisjoint(entered):
                reasons = (self.blind[one] for one in entered if one in self.blind)
                self.top.opaque.update(reasons)  # type: ignore[attr-defined]
        self.gather()

    def add_place(self, path: str, line: int, name: str) -> None:
        """Code that ran in another process."""
        self.top.codes.add(self._number((path, line, name)))

    def _number(self, place: Place) -> int:
        """The same for all code of one place: a function that is made anew, or imported twice."""
        return self._places.setdefault(place, len(self._places))

    # -- paths -------------------------------------------------------------------------------------

    def own(self, path: Any) -> str:
        """The path relative to the project; "" if it lies elsewhere, or among installed packages."""
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
        if known == ELSEWHERE or name in NOT_OURS:
            return ""
        if known == ABOVE:
            return "." if join(real_folder(folder), name, "") == self._root else ""
        return known + name

    def _own_folder(self, folder: str) -> str:
        """With a slash at its end, relative to the project. Hundreds of files lie in a few folders."""
        try:
            real = join(real_folder(folder), "")
        except (OSError, ValueError):
            return ELSEWHERE
        if self._root.startswith(real) and self._root != real:
            return ABOVE
        if not real.startswith(self._root) or any(part in real for part in NOT_OURS):
            return ELSEWHERE
        return real[len(self._root) :].replace(sep, "/")

    # -- telling -----------------------------------------------------------------------------------

    def tell(self, test_key: str = "") -> None:
        """All that is new; a test is told once, when it has ended, and forgotten."""
        self._settle()
        test = self._kept.pop(test_key, None)
        self._touched.pop(test_key, None)
        touched = list(self._touched.values())
        self._touched = {scope.key: scope for scope in self._stack}
        for scope in touched:
            self._tell(scope)
        if test is not None:
            self._tell(test)

    def _tell(self, scope: Scope) -> None:
        while self._places_told < len(self._places):
            newest = islice(reversed(self._places), len(self._places) - self._places_told)
            places = list(newest)[::-1][:A_ROW]
            self._send({"k": "codes", "from": self._places_told, "codes": places})
            self._places_told += len(places)
        row: Dict[str, Any] = {"k": "scope", "scope": scope.key}
        for name in TOLD:
            new = _news(scope, name) if getattr(scope, name) else ()
            while len(new) > A_ROW:
                self._send({"k": "scope", "scope": scope.key, name: new[:A_ROW]})
                new = new[A_ROW:]
            if new:
                row[name] = new
        if len(row) > 2 or scope.is_test:  # that a test touches nothing is worth knowing
            self._send(row)


def _news(scope: Scope, name: str) -> Sequence[Any]:
    """What was not told yet. Of what outlives a test, most was: it would be told again after each of them."""
    words = getattr(scope, name)
    told = scope.told.setdefault(name, set())
    new = words - told
    told |= new
    words -= told  # not all: threads may have added to it meanwhile
    return list(new)


def _is_link(path: str) -> bool:
    """Not by os.path: whoever calls that is listened to."""
    try:
        return stat.S_ISLNK(lstat(path).st_mode)
    except (OSError, ValueError):
        return False


identity: Callable[[object], int] = object.__hash__
