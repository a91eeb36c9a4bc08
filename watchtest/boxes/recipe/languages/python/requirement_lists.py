"""The lists in which a project names requirements: extras, groups, files. Tells what a list is for."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

DEPENDENCIES, EXTRA, GROUP, FILE = "dependencies", "extra", "group", "file"
"""The kinds of lists: what the project itself needs, what it offers on request, and what only developers need."""
NAME = re.compile(r"\s*(?P<name>[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[(?P<extras>[^\]]*)\])?")


class Purpose(Enum):
    """What a list is for."""

    TESTS = "tests"
    DEVELOPMENT = "development"
    OTHER = "something else"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class RequirementList:
    """Requirements that belong together, and the file that names them."""

    kind: str
    name: str
    path: str
    requirements: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.kind == FILE:
            return self.name
        return f"{self.kind}{self.name and f' {self.name}'} in {self.path}"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What the files of a project say about it as a package."""

    lists: tuple[RequirementList, ...] = ()
    name: str = ""
    is_installable: bool = False
    has_computed_extras: bool = False
    """Some extras are computed by the build, so they are known only once the project is installed."""


PLAIN_TESTS = frozenset({"test", "tests", "testing", "unittest", "unittests", "pytest"})
TESTS = PLAIN_TESTS | {"unit", "testsuite", "nose", "nose2"}
DEVELOPMENT = frozenset({"dev", "devel", "develop", "development", "developer", "developers", "ci", "local"})
OTHER = (
    frozenset({"doc", "docs", "documentation", "rtd", "readthedocs", "sphinx", "mkdocs", "changelog", "spelling"})
    | {"lint", "linting", "linter", "linters", "format", "formatting", "formatter", "style", "check", "checks"}
    | {"typing", "types", "type", "typecheck", "typechecking", "stubs", "mypy", "pyright", "ty", "pyrefly"}
    | {"release", "releases", "build", "building", "package", "packaging", "publish", "deploy", "deployment", "wheels"}
    | {"bench", "benchmark", "benchmarks", "benchmarking", "perf", "performance", "profile", "profiling", "codspeed"}
    | {
        "constraint",
        "constraints",
        "conda",
        "mamba",
        "fuzz",
        "fuzzing",
        "translations",
        "notebook",
        "notebooks",
        "example",
        "examples",
        "precommit",
        "update",
    }
    | {"ruff", "black", "flake8", "pylint", "workflow", "actions", "tools", "tooling", "debug"}
)
FILE_WORDS = frozenset({"requirements", "requirement", "reqs", "deps", "dependencies", "txt", "in", "pip"})
"""Words in the names of requirements files that say nothing about their purpose."""
TEST_TOOLS = re.compile(r"(pytest|pytest-.+|hypothesis|nose2?|pynose|unittest2|ward|trial|zope-testrunner)")


def words_of(name: str) -> set[str]:
    """Return the words in the name of a list, without trailing digits: {"tests"} for `requirements-tests39.txt`."""
    words = re.split(r"[^a-z0-9]+", name.lower().rpartition("/")[2])
    return {word.rstrip("0123456789") or word for word in words if word} - FILE_WORDS


@functools.lru_cache(maxsize=1024)
def purpose_of(name: str) -> Purpose:
    words = words_of(name)
    if words & OTHER or {"pre", "commit"} <= words:
        return Purpose.OTHER
    if words & TESTS:
        return Purpose.TESTS
    return Purpose.DEVELOPMENT if words & DEVELOPMENT else Purpose.UNKNOWN


def is_plain_test_name(name: str) -> bool:
    """Return whether nothing narrows the name: `tests`, but not `tests-random`."""
    words = words_of(name)
    return bool(words) and words <= PLAIN_TESTS


def test_tools(requirements: Iterable[str]) -> list[str]:
    """Return the names of the test tools among requirements."""
    return [name for name in map(distribution, requirements) if TEST_TOOLS.fullmatch(name)]


@functools.lru_cache(maxsize=4096)
def distribution(requirement: str) -> str:
    """Return the normalized name of the distribution that is required; "" for options, paths and addresses."""
    found = NAME.match(requirement)
    is_path = found is not None and requirement[found.end() :].startswith(("/", ":", "\\", "+"))
    return normalized(found["name"]) if found and not is_path else ""


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def with_own_extras(requirements: Iterable[str], own: str, extras: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Replace requirements like `mine[test]` of the project itself by the content of these extras."""
    found: dict[str, None] = {}
    waiting, seen = list(requirements), set[str]()
    while waiting:
        requirement = waiting.pop(0)
        if not own or distribution(requirement) != normalized(own):
            found[requirement] = None
            continue
        named = NAME.match(requirement)
        for extra in re.findall(r"[\w.-]+", (named and named["extras"]) or ""):
            if extra not in seen:
                seen.add(extra)
                waiting += extras.get(normalized(extra), ())
    return tuple(found)
