"""The rules that decide which tests a changed path can affect, and why. Pure; the table of rules is at the end.

Each rule yields impacts: a set of tests to run first, which are known to have used the changed code, and a set to run
after them, which cannot be ruled out. Sets of tests are integers with one bit per test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from types import MappingProxyType
from typing import Protocol

from watchtest.core.recorded import FILE, IMPORT, LIBRARY, MEMO, SESSION, ChangedPath, FileFingerprint, Unit
from watchtest.core.supersede import is_text

CONFTEST = "conftest.py"
INIT = "__init__.py"
PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
"""Files that only pytest reads."""
PYTEST_TABLES = MappingProxyType(
    {"pyproject.toml": b"[tool.pytest", "setup.cfg": b"[tool:pytest]", "tox.ini": b"[pytest]"}
)
"""Files of several tools, and how the header of pytest's table begins in each."""
SETTINGS = frozenset({*PYTEST_FILES, *PYTEST_TABLES})
"""Files from which pytest, unittest or their plugins read their settings."""


@dataclass(frozen=True, slots=True)
class Impact:
    """The tests that a change can affect: sets to run first and after that, and optionally a whole file.

    Every test of the file `whole` runs, including tests that are not known yet.
    """

    because: str
    first: int = 0
    rest: int = 0
    whole: str = ""
    collects_all: bool = False
    """The change may affect which tests are found, so every file must be collected."""


class RecordedTests(Protocol):
    """The questions that the rules ask about the recorded dependencies."""

    def all(self) -> int: ...

    def opaque(self) -> int: ...

    def opaque_scopes(self) -> Iterable[str]: ...

    def in_file(self, path: str) -> int: ...

    def below(self, folder: str) -> int: ...

    def direct(self, kind: str, thing: object) -> int: ...

    def scopes(self, kind: str, thing: object) -> Iterable[str]: ...

    def users(self, key: str) -> int: ...

    def units_of(self, path: str) -> Iterable[Unit]: ...

    def entering(self, path: str) -> int: ...

    def looked_for(self, names: Iterable[str]) -> int: ...


@dataclass(frozen=True, slots=True)
class ImpactContext:
    """What the rules need to know about the project."""

    recorded: RecordedTests
    reach: Callable[[Iterable[str]], int]
    """The tests that can reach one of these files by imports."""
    module_names: Callable[[str], Iterable[str]]
    """The module names under which a file can be imported."""
    tops: frozenset[str]
    """The top-level names of all loaded modules, of the project and of libraries."""
    suffixes: frozenset[str]
    """Suffixes of test files that are not Python."""
    circles: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """Symlinks that lead back to a folder around them, and that folder; "" is the workspace."""
    patterns: tuple[tuple[str, Callable[[str], bool], str], ...] = ()
    """The user's rules: the text, a matcher for changed paths, and the place of the tests."""


Rule = Callable[[ChangedPath, ImpactContext], Iterable[Impact]]


# -- functions -------------------------------------------------------------------------------------


def changed_functions(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """The body of a function changed: select the tests that called it, and more if it ran in a shared scope."""
    before, after = change.before, change.after
    if before is None or after is None or before.error or after.error or not change.is_there:
        return
    for name in changed_names(before, after):
        yield from _entered(change.path, name, context, name in before.writers | after.writers)


def changed_names(before: FileFingerprint, after: FileFingerprint) -> list[str]:
    names = before.functions.keys() | after.functions.keys()
    return sorted(name for name in names if before.functions.get(name) != after.functions.get(name))


def _entered(path: str, name: str, context: ImpactContext, is_writer: bool) -> Iterator[Impact]:
    recorded, what = context.recorded, f"{path}: {name} changed"
    yield Impact(what, recorded.direct("units", (path, name)))
    for scope in recorded.scopes("units", (path, name)):
        yield from _in_scope(scope, what, context)
    if is_writer:
        yield Impact(f"{what}, which writes global names", rest=context.reach([path]))


def _in_scope(scope: str, what: str, context: ImpactContext) -> Iterator[Impact]:
    """The changed code ran in a scope that tests share, so its effects may be visible to all of them."""
    recorded = context.recorded
    if scope == SESSION:
        yield Impact(f"{what}, which runs for the whole session", rest=recorded.all())
    elif scope.startswith(IMPORT):
        path = scope.removeprefix(IMPORT)
        yield Impact(f"{what}, which runs when {path} is imported", recorded.entering(path), context.reach([path]))
    elif scope.startswith(FILE):
        path = scope.removeprefix(FILE)
        yield Impact(f"{what}, which runs when {path} is collected", recorded.in_file(path), whole=path)
    elif scope.startswith(MEMO):
        path = scope.rpartition(":")[2]
        yield Impact(f"{what}; its result is cached in {path}", recorded.users(scope), context.reach([path]))
    elif scope.startswith(LIBRARY):
        library = scope.removeprefix(LIBRARY)
        yield Impact(f"{what}, through {library}, which may have cached it", rest=recorded.users(scope))


# -- the shell -------------------------------------------------------------------------------------


def changed_shell(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """Code that runs or is visible at import changed: select every test that can import the file."""
    before, after = change.before, change.after
    if not change.is_python or not (change.was_there and change.is_there) or not change.is_content:
        return
    if before is None or after is None:
        yield from _wide(change, f"{change.path} changed, and its earlier content is unknown", context)
    elif before.error or after.error:
        yield from _wide(change, f"{change.path} {after.error or before.error}", context)
    elif before.shell != after.shell:
        yield from _wide(change, f"{change.path}: code that runs or is visible at import changed", context)


def _wide(change: ChangedPath, because: str, context: ImpactContext) -> Iterator[Impact]:
    path = change.path
    whole = path if _is_collected(change, context) else ""
    # The runner may not follow the link, so find out: naming the file would make it.
    is_unsure = bool(whole and change.real and not context.recorded.in_file(path))
    yield Impact(because, context.recorded.entering(path), context.reach([path]), whole=whole, collects_all=is_unsure)
    if PurePosixPath(path).name == CONFTEST:
        yield Impact(because, rest=context.recorded.below(path.rpartition("/")[0]), collects_all=True)


def _is_collected(change: ChangedPath, context: ImpactContext) -> bool:
    """Return whether the runner collects tests from the file, even if it has none."""
    real = change.real or change.path
    if context.recorded.in_file(change.path):
        return True
    # If it found tests in the file itself and none behind the link, it does not follow the link.
    return not context.recorded.in_file(real) and f"{FILE}{real}" in context.recorded.scopes("imports", real)


# -- added and removed files -----------------------------------------------------------------------


def new_python(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A new module: select tests that looked for it in vain, and those that would now find it instead of another."""
    if not change.is_python or change.was_there:
        return
    path, name = change.path, PurePosixPath(change.path).name
    if name in (CONFTEST, INIT):
        because = f"{path} is new: it may change which tests are found, and under which names"
        yield Impact(because, rest=context.recorded.all(), whole=path, collects_all=True)
        return
    names = set(context.module_names(path))
    yield Impact(f"{path} is new: its tests, if it has any", whole=path, collects_all=True)
    yield Impact(f"{path} is new, and tests looked for it", context.recorded.looked_for(names), context.reach([path]))
    if any(name.partition(".")[0] in context.tops for name in names if "." not in name):
        yield Impact(f"{path} is new, and may hide another module of the same name", rest=context.recorded.all())


def removed_python(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A removed module: select the tests that ran code of it or can import it."""
    if not change.is_python or change.is_there:
        return
    path = change.path
    if PurePosixPath(path).name in (CONFTEST, INIT):
        yield Impact(f"{path} was removed", context.recorded.entering(path), context.recorded.all(), collects_all=True)
        return
    whole = path if _is_collected(change, context) else ""
    yield Impact(f"{path} was removed", context.recorded.entering(path), context.reach([path]), whole=whole)


def came_or_went(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """An added or removed path: select tests that listed its folder or checked whether it exists."""
    word = "is new" if change.is_there else "was removed"
    for listed in change.listings:
        yield from _by("folders", listed, f"{change.path} {word}, and tests list {listed}", context)
    for path in change.came_or_went:
        yield from _by("probes", path, f"{path} {word}, and tests check whether it exists", context)


# -- data ------------------------------------------------------------------------------------------


def read_as_data(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A data file changed: select the tests that read it, and the tests in it if it is a test file."""
    path = change.path
    yield from _by("files", path, f"{path} changed, and tests read it", context)
    if change.is_python:
        return
    if change.was_there and change.is_there:
        yield from _by("probes", path, f"{path} changed, and tests check whether it exists", context, is_first=False)
    tests = context.recorded.in_file(path)
    if tests or (not change.was_there and PurePosixPath(path).suffix in context.suffixes):
        yield Impact(f"{path} contains tests", tests, whole=path, collects_all=True)


def _by(kind: str, thing: str, because: str, context: ImpactContext, *, is_first: bool = True) -> Iterator[Impact]:
    found = context.recorded.direct(kind, thing)
    if found:
        yield Impact(because, found if is_first else 0, found)
    for scope in context.recorded.scopes(kind, thing):
        if scope == SESSION and (kind != "files" or PurePosixPath(thing).name in SETTINGS or thing.endswith(".py")):
            continue  # pytest itself reads and lists much; settings have a rule of their own
        yield from _in_scope(scope, because, context)


# -- everything ------------------------------------------------------------------------------------


def settings(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A settings file of the runner changed: select everything."""
    if PurePosixPath(change.path).name in SETTINGS:
        because = f"{change.path} may contain test settings"
        yield Impact(because, rest=context.recorded.all(), collects_all=True)


def links(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A symlink changed: select everything, because recorded paths are resolved and do not mention the link."""
    if change.is_link:
        yield Impact(f"{change.path} is a symlink that changed", rest=context.recorded.all(), collects_all=True)


def circles(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A file changed that a link shows without end: select everything if tests may be collected behind the link."""
    for link, folder in context.circles.items():
        is_followed = context.recorded.below(link) or not context.recorded.below(folder)
        if is_followed and (not folder or change.path.startswith(f"{folder}/")):
            because = f"{change.path} changed, and {link} leads back to {folder or 'the workspace'}"
            yield Impact(because, rest=context.recorded.all(), whole=link, collects_all=True)


def opaque(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """Select tests whose dependencies cannot be recorded, for example because they start programs."""
    if is_text(PurePosixPath(change.path)):
        return
    because = f"{change.path} changed, and the dependencies of some tests cannot be recorded"
    yield Impact(because, rest=context.recorded.opaque())
    for scope in context.recorded.opaque_scopes():
        for impact in _in_scope(scope, because, context):
            yield replace(impact, first=0, rest=impact.first | impact.rest | context.recorded.users(scope))


def patterns(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """Apply the user's own rules from `watch.rules`."""
    for words, matches, where in context.patterns:
        if matches(change.path):
            found = context.recorded.in_file(where) | context.recorded.below(where.rstrip("/"))
            yield Impact(f"{change.path} matches the rule {words}", found, whole=where if where.endswith(".py") else "")


RULES: tuple[Rule, ...] = (
    settings,
    changed_functions,
    changed_shell,
    new_python,
    removed_python,
    came_or_went,
    read_as_data,
    patterns,
    links,
    circles,
    opaque,
)


def find_impacts(changes: Iterable[ChangedPath], context: ImpactContext) -> list[Impact]:
    """Return every impact of the changes that selects a test."""
    return [
        impact
        for change in changes
        for rule in RULES
        for impact in rule(change, context)
        if impact.first or impact.rest or impact.whole
    ]


def find_impacts_by_file(changes: Iterable[ChangedPath], context: ImpactContext) -> list[Impact]:
    """Return the impacts if every changed Python file is treated as changed completely."""
    return find_impacts((replace(change, before=None, after=None) for change in changes), context)
