"""Read what tox installs for the tests: from tox.ini, setup.cfg, tox.toml or pyproject.toml. Runs nothing.

Of the environments that run the tests, the one with the fewest factors besides the Python version counts. Lines of
other factors are left out.
"""

from __future__ import annotations

import configparser
import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from watchtest.boxes.recipe.languages.python.install_requests import InstallRequest
from watchtest.boxes.recipe.languages.python.requirement_lists import Purpose, is_plain_test_name, purpose_of
from watchtest.boxes.recipe.project_files import ProjectFiles, parse_ini, table, texts

FOLDER = re.compile(r"\{(?:toxinidir|tox_root)\}(?:\{/\}|/)?")
REFERENCE = re.compile(r"\{\[(?P<section>[^\]{}]+)\](?P<key>[^{}]+)\}")
BRACES = re.compile(r"\{(?P<parts>[^{}]*)\}")
PYTHON_FACTOR = re.compile(r"(py|python|pypy|cpython)?\d?(\.?\d+)?t?")
FACTORS = re.compile(r"(?:(?P<condition>[\w {}.!,-]+):\s+)?(?P<rest>.*)", re.DOTALL)
"""As tox itself reads a line with a condition."""
EXPANSION_LIMIT = 500
REFERENCE_LIMIT = 10


def tox_request(files: ProjectFiles, python: tuple[int, int]) -> InstallRequest | None:
    """Return what tox installs for the tests with this version of Python; None if the project does not use tox."""
    for path, section in (("tox.ini", "tox"), ("setup.cfg", "tox:tox")):
        ini = files.ini(path)
        if ini.has_section(section) or ini.has_section("testenv"):
            return _from_ini(path, ini, python)
    project = files.toml("pyproject.toml") if files.has("pyproject.toml") else {}
    tool = table(project, "tool", "tox")
    if isinstance(legacy := tool.get("legacy_tox_ini"), str):
        return _from_ini("pyproject.toml", parse_ini(legacy), python)
    if tool:
        return _from_toml("pyproject.toml", tool, python)
    return _from_toml("tox.toml", files.toml("tox.toml"), python) if files.has("tox.toml") else None


# -- INI -------------------------------------------------------------------------------------------


def _from_ini(path: str, ini: configparser.RawConfigParser, python: tuple[int, int]) -> InstallRequest:
    prefix = "tox:" if ini.has_section("tox:tox") else ""
    listed = "\n".join(str(ini.get(f"{prefix}tox", key, fallback="")) for key in ("envlist", "env_list"))
    environments = {name for line in re.split(r"\n|,(?![^{]*\})", listed) for name in expand(line.strip()) if name}
    sections = {
        name: section
        for section in ini.sections()
        if section.startswith("testenv:")
        for name in expand(section.removeprefix("testenv:"))
    }
    chosen = choose_environment([*environments, *sections], python)
    factors = factors_of(chosen, python)
    own = sections.get(chosen, "testenv")
    request = InstallRequest(f"{path} [{own}]")
    request.add_lines(_lines(ini, own, "deps", factors))
    for key, names in (("extras", request.extras), ("dependency_groups", request.groups)):
        names += [name for line in _lines(ini, own, key, factors) for name in re.findall(r"[\w.-]+", line)]
    return request


def _lines(ini: configparser.RawConfigParser, section: str, key: str, factors: set[str]) -> Iterator[str]:
    """Yield the lines of a setting that apply to an environment with these factors."""
    value = ini.get(section, key, fallback=None)
    value = ini.get("testenv", key, fallback="") if value is None else value
    for line in _with_references(ini, str(value)).splitlines():
        if text := applicable(line, factors).strip():
            yield FOLDER.sub("", text)


def _with_references(ini: configparser.RawConfigParser, value: str) -> str:
    """Replace `{[section]key}` by the value of that setting."""
    for _ in range(REFERENCE_LIMIT):
        found = REFERENCE.search(value)
        if found is None:
            break
        other = ini.get(found["section"], found["key"], fallback=None)
        other = ini.get("testenv", found["key"], fallback="") if other is None else other
        value = value[: found.start()] + str(other) + value[found.end() :]
    return value


# -- TOML ------------------------------------------------------------------------------------------


def _from_toml(path: str, settings: Mapping[str, Any], python: tuple[int, int]) -> InstallRequest:
    named = table(settings, "env")
    chosen = choose_environment([*texts(settings.get("env_list")), *named], python)
    own, base = table(named, chosen), table(settings, "env_run_base")
    request = InstallRequest(f"{path} {f'env.{chosen}' if own else 'env_run_base'}")
    request.add_lines(FOLDER.sub("", line) for line in texts(own.get("deps", base.get("deps"))))
    request.extras += texts(own.get("extras", base.get("extras")))
    request.groups += texts(own.get("dependency_groups", base.get("dependency_groups")))
    return request


# -- environments and factors ----------------------------------------------------------------------


def choose_environment(names: list[str], python: tuple[int, int]) -> str:
    """Return the environment that runs the tests with this version of Python; "" if none is meant for that."""
    version = {f"py{python[0]}{python[1]}", f"{python[0]}.{python[1]}", "py"}

    def order(name: str) -> tuple[bool, bool, int, str]:
        factors = set(name.split("-"))
        return not factors & version, not any(map(is_plain_test_name, factors)), len(factors), name

    suitable = [name for name in dict.fromkeys(names) if _runs_tests(name)]
    return min(suitable, key=order, default="")


def _runs_tests(name: str) -> bool:
    factors = name.split("-")
    purposes = {purpose_of(factor) for factor in factors if not PYTHON_FACTOR.fullmatch(factor)}
    has_python = any(PYTHON_FACTOR.fullmatch(factor) for factor in factors) and "pypy" not in name
    return Purpose.OTHER not in purposes and (has_python or Purpose.TESTS in purposes)


def factors_of(name: str, python: tuple[int, int]) -> set[str]:
    """Return the factors of an environment, as if it were made for this version of Python."""
    others = {factor for factor in name.split("-") if factor and not PYTHON_FACTOR.fullmatch(factor)}
    return others | {f"py{python[0]}{python[1]}", f"{python[0]}.{python[1]}", "py", f"py{python[0]}"}


def applicable(line: str, factors: set[str]) -> str:
    """Return a line without its condition; "" if the condition (`py312,!cov-lint: …`) does not hold."""
    found = FACTORS.fullmatch(line.strip())
    if found is None or found["condition"] is None:
        return line
    alternatives = [part for one in re.split(r",(?![^{]*\})", found["condition"]) for part in expand(one.strip())]
    return found["rest"] if any(_holds(alternative, factors) for alternative in alternatives) else ""


def _holds(alternative: str, factors: set[str]) -> bool:
    return all((part.lstrip("!") in factors) != part.startswith("!") for part in alternative.split("-"))


def expand(text: str) -> list[str]:
    """Return what braces stand for: `py{311-313}-x` is py311-x, py312-x and py313-x."""
    parts = BRACES.split(text)
    choices = [[part] if place % 2 == 0 else _alternatives(part) for place, part in enumerate(parts)]
    return ["".join(chosen).strip() for chosen in itertools.islice(itertools.product(*choices), EXPANSION_LIMIT)]


def _alternatives(inner: str) -> list[str]:
    found: list[str] = []
    for part in inner.split(","):
        numbers = re.fullmatch(r"(\d{1,3})-(\d{1,3})", part.strip())
        found += map(str, range(int(numbers[1]), int(numbers[2]) + 1)) if numbers else [part.strip()]
    return found
