"""Find out from failures which distributions the tests lack, and which of them the project itself names.

Nothing is installed that no list of the project names, because a module says nothing about who publishes a
distribution of that name. The exception are well-known pytest plugins that the project's own pytest settings demand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import PurePosixPath
from types import MappingProxyType

from watchtest.boxes.recipe.languages.python import pytest_plugins
from watchtest.boxes.recipe.languages.python.requirement_lists import RequirementList, distribution, normalized
from watchtest.core.model import Execution
from watchtest.core.verdict import ORDINARY_CODES

DISTRIBUTIONS = MappingProxyType(
    {
        "attr": "attrs",
        "bs4": "beautifulsoup4",
        "cairo": "pycairo",
        "Crypto": "pycryptodome",
        "cv2": "opencv-python",
        "dateutil": "python-dateutil",
        "docx": "python-docx",
        "dotenv": "python-dotenv",
        "environ": "django-environ",
        "factory": "factory-boy",
        "fitz": "pymupdf",
        "git": "gitpython",
        "google.protobuf": "protobuf",
        "jose": "python-jose",
        "jwt": "pyjwt",
        "ldap": "python-ldap",
        "magic": "python-magic",
        "memcache": "python-memcached",
        "mpl_toolkits": "matplotlib",
        "multipart": "python-multipart",
        "MySQLdb": "mysqlclient",
        "OpenSSL": "pyopenssl",
        "PIL": "pillow",
        "pkg_resources": "setuptools",
        "psycopg2": "psycopg2-binary",
        "pywintypes": "pywin32",
        "rest_framework": "djangorestframework",
        "serial": "pyserial",
        "skimage": "scikit-image",
        "sklearn": "scikit-learn",
        "slugify": "python-slugify",
        "socketio": "python-socketio",
        "socks": "pysocks",
        "telegram": "python-telegram-bot",
        "usb": "pyusb",
        "wx": "wxpython",
        "yaml": "pyyaml",
        "zmq": "pyzmq",
    }
)
"""Distributions whose name cannot be guessed from that of their module."""
MODULE = re.compile(r"No module named '(?P<name>[\w.]{1,200})'")
ARGUMENTS = re.compile(r"unrecognized arguments: (?P<words>[^\n]{1,1000})")
SETTING = re.compile(r"Unknown config option: (?P<name>[\w-]{1,100})")
MARKER = re.compile(r"'(?P<name>\w{1,100})' not found in `markers` configuration option")
PLUGINS = re.compile(r"Missing required plugins: (?P<names>[^\n]{1,1000})")
FIXTURE = re.compile(r"fixture '(?P<name>\w{1,100})' not found")
ASYNCHRONOUS = "async def functions are not natively supported"
ADVICE = re.compile(r"\bpip install [`'\"]?(?P<name>[A-Za-z0-9][\w.-]{0,100})")
IN_TEST = re.compile(rf"(ModuleNotFound|Import)Error|.*{FIXTURE.pattern}|.*{ASYNCHRONOUS}", re.DOTALL)
"""Failures of single tests that count; what others say may be what they test."""
RESULTS_LIMIT = 500
TEST_MODULE = re.compile(r"test_.*|.*_test|conftest|__init__")


@dataclass(frozen=True, slots=True)
class Demand:
    """Something that tests need and the box lacks."""

    what: str
    """For the user: `yaml`, `--cov`, "the fixture mocker"."""
    candidates: tuple[str, ...]
    """Normalized names of distributions that may provide it, the likeliest first."""
    is_of_settings: bool = False
    """The project's own pytest settings demand it."""
    is_guess: bool = False
    """It may be something else: not worth a report if no list names it."""


def failure_texts(execution: Execution) -> Iterator[str]:
    """Yield what a run says about what is missing: its output if it could not start, and the failures of imports."""
    if execution.exit_code not in (*ORDINARY_CODES, None) or not execution.promised:
        yield execution.raw_output
    for result in execution.collection_errors[:RESULTS_LIMIT]:
        if result.failure is not None:
            yield f"{result.failure.message}\n{result.failure.text}"
    red = (result.failure for result in execution.results.values() if result.outcome.is_red)
    for failure in islice(red, RESULTS_LIMIT):
        if failure is not None and IN_TEST.match(f"{failure.kind}: {failure.message}"):
            yield failure.message
            # A setting that pytest does not know is no more than a warning.
            yield from (found[0] for found in SETTING.finditer(execution.raw_output))


def demands(texts: Iterable[str], paths: Iterable[str]) -> list[Demand]:
    """Return what these failures complain about, once each. `paths` are the files of the tree."""
    found = {demand.what: demand for text in texts for demand in _demands_of(text)}
    if not found:
        return []
    own = {normalized(name) for name in own_modules(paths)}
    return [demand for demand in found.values() if not _is_own(demand, own)]


def _is_own(demand: Demand, own: set[str]) -> bool:
    top = demand.what.partition(".")[0]
    return top in sys.stdlib_module_names or not own.isdisjoint({normalized(top), *demand.candidates})


def _demands_of(text: str) -> Iterator[Demand]:
    for found in MODULE.finditer(text):
        top = found["name"].partition(".")[0]
        yield Demand(found["name"] if top == "google" else top, tuple(_distributions(found["name"])))
    for found in ARGUMENTS.finditer(text):
        for option in found["words"].split():
            if plugin := pytest_plugins.plugin_of_option(option):
                yield Demand(f"pytest's option {option.partition('=')[0]}", (plugin,), is_of_settings=True)
    for found in SETTING.finditer(text):
        if plugin := pytest_plugins.SETTINGS.get(found["name"], ""):
            yield Demand(f"pytest's setting {found['name']}", (plugin,), is_of_settings=True)
    for found in PLUGINS.finditer(text):
        for name in filter(None, map(distribution, found["names"].split(","))):
            yield Demand(f"the plugin {name}", (name,), is_of_settings=True)
    for found in MARKER.finditer(text):
        if plugin := pytest_plugins.MARKERS.get(found["name"], ""):
            yield Demand(f"the marker {found['name']}", (plugin,))
    for found in FIXTURE.finditer(text):
        if plugin := pytest_plugins.FIXTURES.get(found["name"], ""):
            yield Demand(f"the fixture {found['name']}", (plugin,))
    if ASYNCHRONOUS in text:
        yield Demand("a plugin for async tests", pytest_plugins.ASYNCHRONOUS)
    for found in ADVICE.finditer(text):
        yield Demand(found["name"], (normalized(found["name"]),), is_guess=True)


def _distributions(module: str) -> Iterator[str]:
    """Yield the names that a distribution with this module may have: the longest and likeliest first."""
    parts = module.split(".")
    for count in range(len(parts), 0, -1):
        name = ".".join(parts[:count])
        known = DISTRIBUTIONS.get(name)
        if known is not None:
            yield known
            if known.endswith("-binary") or known == "opencv-python":
                yield from (known.removesuffix("-binary"), f"{known}-headless")
        yield normalized(name)
    top = normalized(parts[0])
    yield from (f"python-{top}", f"py{top}", f"{top}-python", f"{top}-py", f"django-{top}")


def own_modules(paths: Iterable[str]) -> set[str]:
    """Return the names under which the tree's own files can be imported at the top level."""
    python = {path for path in paths if path.endswith(".py")}
    found: set[str] = set()
    for path in python:
        file = PurePosixPath(path)
        packages = [parent for parent in file.parents if f"{parent}/__init__.py".removeprefix("./") in python]
        if packages:
            found.add(packages[-1].name)
        elif not TEST_MODULE.fullmatch(file.stem):
            # Without __init__.py, each folder above may be a namespace package.
            found.update((file.stem, *(parent.name for parent in file.parents if parent.name)))
    return found - {""}


def requirement_for(name: str, lists: Sequence[RequirementList]) -> tuple[str, str] | None:
    """Return the requirement that adds this distribution, and the reason; None if nothing allows to install it."""
    return _listed_requirement(name, lists) or _plugin(name)


def _listed_requirement(name: str, lists: Sequence[RequirementList]) -> tuple[str, str] | None:
    for one in lists:
        for requirement in one.requirements:
            if distribution(requirement) == name and "@" not in requirement:
                return requirement, f"named by {one}"
    return None


def _plugin(name: str) -> tuple[str, str] | None:
    return (name, "a plugin that the project's settings of pytest demand") if name in pytest_plugins.KNOWN else None


@dataclass(frozen=True, slots=True)
class MissingDependencies:
    """What the tests lack: what can be installed, and lines for the user about the rest."""

    installable: tuple[tuple[str, str], ...] = ()
    """Pairs of a distribution and the reason."""
    reports: tuple[str, ...] = ()


def missing_dependencies(
    found: Iterable[Demand], lists: Sequence[RequirementList], provided: Iterable[str]
) -> MissingDependencies:
    """Decide which demands the lists of the project can meet. `provided` is what setup installs anyway."""
    installable: dict[str, str] = {}
    unmet: list[tuple[Demand, bool]] = []
    tried = set(provided)
    for demand in found:
        offers = {name: _listed_requirement(name, lists) for name in demand.candidates}
        if demand.is_of_settings:
            offers = {name: offer or _plugin(name) for name, offer in offers.items()}
        fresh = next(((name, offer) for name, offer in offers.items() if offer and name not in tried), None)
        if fresh is not None:
            installable.setdefault(fresh[0], f"tests need {demand.what}; {fresh[1][1]}")
        elif not demand.is_guess:
            unmet.append((demand, any(offers.values())))
    reports = (
        _report(demand, is_listed=is_listed)
        for demand, is_listed in unmet
        if installable.keys().isdisjoint(demand.candidates)
    )
    return MissingDependencies(tuple(installable.items()), tuple(reports))


def _report(demand: Demand, *, is_listed: bool) -> str:
    name = demand.candidates[0]
    why = "which setup did not provide" if is_listed else "which no dependency list of the project names"
    return f"tests need {demand.what}, {why}: `watchtest exec -- pip install {name}` tries it, box.setup keeps it"
