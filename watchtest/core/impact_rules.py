"""The rules: which tests a changed path can affect, and because of what. Pure; one table at the end.

Each rule gives findings: a set of tests to run first (the quick answer: tests that are known to have run just that) and
a set to run behind it (all that cannot be ruled out). Sets of tests are numbers, a bit a test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
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
NAMES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Impact:
    """`first` and `rest` are sets of tests. `whole`: a file of which every test is to run, the unknown ones, too."""

    because: str
    first: int = 0
    rest: int = 0
    whole: str = ""
    collects_all: bool = False
    """What there is to be found may be another now: every file is to be looked at."""


class RecordedTests(Protocol):
    """What was recorded, as questions."""

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
    """What the rules stand on."""

    known: RecordedTests
    reach: Callable[[Iterable[str]], int]
    """The tests that can reach one of these files by imports."""
    module_names: Callable[[str], Iterable[str]]
    """What a file is called when it is imported."""
    tops: frozenset[str]
    """First parts of the names of all modules that were there, whoever they belong to."""
    suffixes: frozenset[str]
    """How names of files with tests end."""
    patterns: tuple[tuple[str, Callable[[str], bool], str], ...] = ()
    """The user's own: in words, which paths, and where the tests of these are."""


Rule = Callable[[ChangedPath, ImpactContext], Iterable[Impact]]


# -- functions -------------------------------------------------------------------------------------


def changed_functions(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """The body of a function changed: tests that entered it; more, where it ran for others than the one who came."""
    before, after = change.before, change.after
    if before is None or after is None or before.error or after.error or not change.is_there:
        return
    for name in changed_names(before, after):
        yield from _entered(change.path, name, context, name in before.writers | after.writers)


def changed_names(before: FileFingerprint, after: FileFingerprint) -> list[str]:
    names = before.functions.keys() | after.functions.keys()
    return sorted(name for name in names if before.functions.get(name) != after.functions.get(name))


def _entered(path: str, name: str, context: ImpactContext, is_writer: bool) -> Iterator[Impact]:
    known, what = context.known, f"{path}: {name} changed"
    yield Impact(what, known.direct("units", (path, name)))
    for scope in known.scopes("units", (path, name)):
        yield from _in_scope(scope, what, context)
    if is_writer:
        yield Impact(f"{what}, which changes what others find", rest=context.reach([path]))


def _in_scope(scope: str, what: str, context: ImpactContext) -> Iterator[Impact]:
    """It ran in a scope that tests share, and may have left there what others find."""
    known = context.known
    if scope == SESSION:
        yield Impact(f"{what}, which runs for the whole session", rest=known.all())
    elif scope.startswith(IMPORT):
        path = scope.removeprefix(IMPORT)
        yield Impact(f"{what}, which runs when {path} is imported", known.entering(path), context.reach([path]))
    elif scope.startswith(FILE):
        path = scope.removeprefix(FILE)
        yield Impact(f"{what}, which runs when {path} is collected", known.in_file(path), whole=path)
    elif scope.startswith(MEMO):
        path = scope.rpartition(":")[2]
        yield Impact(f"{what}; what it gives is kept in {path}", known.users(scope), context.reach([path]))
    elif scope.startswith(LIBRARY):
        library = scope.removeprefix(LIBRARY)
        yield Impact(f"{what} by {library}, which may have kept it", rest=known.users(scope))


# -- the shell -------------------------------------------------------------------------------------


def changed_shell(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """What runs or is seen at import changed: every test that can reach the file."""
    before, after = change.before, change.after
    if not change.is_python or not (change.was_there and change.is_there) or not change.is_content:
        return
    if before is None or after is None:
        yield from _wide(change.path, f"{change.path} changed, and nothing is known of what it was", context)
    elif before.error or after.error:
        yield from _wide(change.path, f"{change.path} {after.error or before.error}", context)
    elif before.shell != after.shell:
        yield from _wide(change.path, f"{change.path}: what runs or is seen at its import changed", context)


def _wide(path: str, because: str, context: ImpactContext) -> Iterator[Impact]:
    whole = path if _is_collected(path, context) else ""
    yield Impact(because, context.known.entering(path), context.reach([path]), whole=whole)
    if PurePosixPath(path).name == CONFTEST:
        yield Impact(because, rest=context.known.below(_folder(path)), collects_all=True)


def _is_collected(path: str, context: ImpactContext) -> bool:
    """Whether tests are looked for in it, be there any or not."""
    return bool(context.known.in_file(path)) or f"{FILE}{path}" in context.known.scopes("imports", path)


# -- files that come and go ------------------------------------------------------------------------


def new_python(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A new module: those who looked for it in vain, and those who would now find it before another."""
    if not change.is_python or change.was_there:
        return
    path, name = change.path, PurePosixPath(change.path).name
    if name in (CONFTEST, INIT):
        because = f"{path} is new: what is found, and by which name, may change"
        yield Impact(because, rest=context.known.all(), whole=path, collects_all=True)
        return
    names = set(context.module_names(path))
    yield Impact(f"{path} is new: its tests, if it has any", whole=path, collects_all=True)
    yield Impact(f"{path} is new, and was looked for", context.known.looked_for(names), context.reach([path]))
    if any(name.partition(".")[0] in context.tops for name in names if "." not in name):
        yield Impact(f"{path} is new, and may hide another module of its name", rest=context.known.all())


def removed_python(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A module that is gone: all that entered it, or can reach it."""
    if not change.is_python or change.is_there:
        return
    path = change.path
    if PurePosixPath(path).name in (CONFTEST, INIT):
        yield Impact(f"{path} is gone", context.known.entering(path), context.known.all(), collects_all=True)
        return
    whole = path if _is_collected(path, context) else ""
    yield Impact(f"{path} is gone", context.known.entering(path), context.reach([path]), whole=whole)


def came_or_went(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """A path that is new or gone: those who listed its folder, and those who asked whether it is there."""
    word = "new" if change.is_there else "gone"
    for listed in change.listings:
        yield from _by("folders", listed, f"{change.path} is {word}, and {listed} was listed", context)
    for path in change.came_or_went:
        yield from _by("probes", path, f"{path} is {word}, and was asked for", context)


# -- data ------------------------------------------------------------------------------------------


def read_as_data(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """Those who have read it; of files with tests that are no Python, their tests."""
    yield from _by("files", change.path, f"{change.path} was read", context)
    if change.was_there and change.is_there and not change.is_python:
        yield from _by("probes", change.path, f"{change.path} was looked at", context, is_first=False)
    if not change.is_python and (
        context.known.in_file(change.path) or (not change.was_there and _suffix(change.path) in context.suffixes)
    ):
        yield Impact(
            f"{change.path} holds tests", context.known.in_file(change.path), whole=change.path, collects_all=True
        )


def _by(kind: str, thing: str, because: str, context: ImpactContext, *, is_first: bool = True) -> Iterator[Impact]:
    found = context.known.direct(kind, thing)
    if found:
        yield Impact(because, found if is_first else 0, found)
    for scope in context.known.scopes(kind, thing):
        if scope == SESSION and (kind != "files" or PurePosixPath(thing).name in SETTINGS or thing.endswith(".py")):
            continue  # pytest itself looks for many things and lists folders; settings have a rule of their own
        yield from _in_scope(scope, because, context)


# -- everything ------------------------------------------------------------------------------------


def settings(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """What tells the runner how to run."""
    if PurePosixPath(change.path).name in SETTINGS:
        because = f"{change.path} may hold settings of the tests"
        yield Impact(because, rest=context.known.all(), collects_all=True)


def links(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """What lies behind a link is known by its own place, so nobody is known to have gone through it."""
    if change.is_link:
        yield Impact(f"{change.path} leads elsewhere than before", rest=context.known.all(), collects_all=True)


def opaque(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """Nobody knows what these tests touch: programs that they start see more than can be heard."""
    if is_text(PurePosixPath(change.path)):
        return
    because = f"{change.path} changed, and some tests do what cannot be heard"
    yield Impact(because, rest=context.known.opaque())
    for scope in context.known.opaque_scopes():
        for impact in _in_scope(scope, because, context):
            yield replace(impact, first=0, rest=impact.first | impact.rest | context.known.users(scope))


def patterns(change: ChangedPath, context: ImpactContext) -> Iterator[Impact]:
    """What the user knows and nobody can see."""
    for words, matches, where in context.patterns:
        if matches(change.path):
            found = context.known.in_file(where) | context.known.below(where.rstrip("/"))
            yield Impact(f"{change.path} by the rule {words}", found, whole=where if where.endswith(".py") else "")


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
    opaque,
)


def find_impacts(changes: Iterable[ChangedPath], context: ImpactContext) -> list[Impact]:
    """Whatever a rule says of a change that concerns anybody."""
    return [
        impact
        for change in changes
        for rule in RULES
        for impact in rule(change, context)
        if impact.first or impact.rest or impact.whole
    ]


def find_impacts_by_file(changes: Iterable[ChangedPath], context: ImpactContext) -> list[Impact]:
    """The same, conservatively: every changed Python file as if all of it had changed."""
    return find_impacts((replace(change, before=None, after=None) for change in changes), context)


def describe_impacts(found: Iterable[Impact]) -> str:
    """The reasons in one line, each once."""
    words = list(dict.fromkeys(impact.because for impact in found))
    more = f"; and {len(words) - NAMES_SHOWN} more" if len(words) > NAMES_SHOWN else ""
    return "; ".join(words[:NAMES_SHOWN]) + more


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _suffix(path: str) -> str:
    return PurePosixPath(path).suffix
