"""Makes random small changes to a project, as a developer might. Only `applied` writes to disk.

All candidates of a kind are found first; numbers drawn from a seed choose among them. So the same seed, project and
Python give the same mutants.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path, PurePosixPath
from random import Random

from edits import EDITS, Edit

CONFTEST = "conftest.py"
LEFT_OUT = frozenset({"docs", "doc", "examples", "scripts", "requirements", "setup.py", "__pycache__"})
"""Names at the top of a project that its tests do not use."""
HIDDEN = (".", "__pycache__")
CYCLE = ("body", "constant", "body", "default", "deletion", "body", "attribute", "decorator", "body", "rename")
CYCLE += ("data", "body", "new name", "conftest", "body", "constant", "deletion", "body", "rename", "data")
SPARE_TRIES = 50
SHARE_OF_SOURCES = 0.7
"""The share of changes made to source files; the others can be anywhere, mostly in tests."""


@dataclass(frozen=True)
class Mutant:
    """One file before and after the change; None means that the file does not exist."""

    number: int
    kind: str
    path: str
    before: bytes | None
    after: bytes | None

    @contextmanager
    def applied(self, root: Path) -> Iterator[None]:
        _write(root / self.path, self.after)
        try:
            yield
        finally:
            _write(root / self.path, self.before)

    def diff(self) -> str:
        old, new = (
            (side or b"").decode("utf-8", "replace").splitlines(keepends=True) for side in (self.before, self.after)
        )
        names = (
            self.path if self.before is not None else "nothing",
            self.path if self.after is not None else "nothing",
        )
        return "".join(difflib.unified_diff(old, new, *names, n=1))


def _write(path: Path, content: bytes | None) -> None:
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)


Change = Callable[[Random], bytes | None]


@dataclass(frozen=True)
class _Site:
    """A place where a change of some kind can be made."""

    path: str
    before: bytes | None
    change: Change


class Mutants:
    """An endless sequence of mutants. `tests` is where the project's tests are."""

    def __init__(self, root: Path, tests: tuple[str, ...], seed: int) -> None:
        self._root = root
        self._tests = tuple(f"{folder}/" for folder in tests)
        self._seed = seed
        files = sorted(_files(root))
        self._python = [path for path in files if path.endswith(".py")]
        self._data = [path for path in files if not path.endswith(".py") and "/" in path]
        self._sites: dict[str, list[_Site]] = {kind: [] for kind in CYCLE}
        for path in self._python:
            self._look_at(path)
        self._sites["data"] += [site for path in self._data for site in self._data_sites(path)]
        self.kinds = [kind for kind in self._sites if self._sites[kind]]

    def __iter__(self) -> Iterator[Mutant]:
        """Yield mutants endlessly, without repetition."""
        seen: set[tuple[str, bytes | None]] = set()
        kinds = (kind for kind in cycle(CYCLE) if self._sites[kind])
        for number, kind in enumerate(kinds, 1):
            for attempt in range(SPARE_TRIES):
                made = self._drawn(number, kind, Random(f"{self._seed} {number} {attempt}"))
                if made is not None and (made.path, made.after) not in seen:
                    seen.add((made.path, made.after))
                    yield made
                    break

    def chosen(self, number: int | None) -> Iterable[Mutant]:
        """Return the mutant with this number, or all of them."""
        if number is None:
            return self
        return islice((mutant for mutant in self if mutant.number == number), 1)

    def _drawn(self, number: int, kind: str, random: Random) -> Mutant | None:
        sites = self._sites[kind]
        own = [site for site in sites if not site.path.startswith(self._tests)]
        site = random.choice(own if own and random.random() < SHARE_OF_SOURCES else sites)
        after = site.change(random)
        if after == site.before or (after is not None and site.path.endswith(".py") and not _parses(after)):
            return None
        return Mutant(number, kind, site.path, site.before, after)

    # -- sites -------------------------------------------------------------------------------------

    def _look_at(self, path: str) -> None:
        source = (self._root / path).read_bytes()
        if not _parses(source):
            return
        is_conftest = PurePosixPath(path).name == CONFTEST
        for kind, find in EDITS.items():
            for edit in find(source):
                where = "conftest" if is_conftest else kind
                self._sites[where].append(_Site(path, source, _by(source, edit)))
        if not is_conftest:
            self._sites["deletion"].append(_Site(path, source, lambda _random: None))
            self._sites["new name"] += self._new_modules(path, source)

    def _new_modules(self, path: str, source: bytes) -> Iterable[_Site]:
        """Yield copies of modules under another name; a copied test module brings new tests."""
        new = str(PurePosixPath(path).with_name(f"{PurePosixPath(path).stem}_too.py"))
        if PurePosixPath(path).name != "__init__.py" and not (self._root / new).exists():
            yield _Site(new, None, lambda _random: source)

    def _data_sites(self, path: str) -> Iterable[_Site]:
        content = (self._root / path).read_bytes()
        yield _Site(path, content, lambda _random: None)
        yield _Site(path, content, lambda random: _without_a_line(content, random))
        yield _Site(path, content, lambda random: _with_another_letter(content, random))
        new = str(PurePosixPath(path).with_name(f"{PurePosixPath(path).stem}_too{PurePosixPath(path).suffix}"))
        yield _Site(new, None, lambda _random: content)


def _files(root: Path) -> Iterator[str]:
    for path in root.rglob("*"):
        inner = path.relative_to(root)
        is_hidden = any(part.startswith(HIDDEN) or part.endswith(".egg-info") for part in inner.parts)
        if path.is_file() and not path.is_symlink() and not is_hidden and inner.parts[0] not in LEFT_OUT:
            yield inner.as_posix()


def _by(source: bytes, edit: Edit) -> Change:
    return lambda random: source[: edit.start] + edit.text(random) + source[edit.end :]


def _parses(source: bytes) -> bool:
    try:
        ast.parse(source)
    except (SyntaxError, ValueError):
        return False
    return True


def _without_a_line(content: bytes, random: Random) -> bytes:
    lines = content.splitlines(keepends=True)
    if lines:
        del lines[random.randrange(len(lines))]
    return b"".join(lines)


def _with_another_letter(content: bytes, random: Random) -> bytes:
    if not content:
        return b"x"
    place = random.randrange(len(content))
    return content[:place] + (b"Q" if content[place : place + 1] != b"Q" else b"q") + content[place + 1 :]
