"""Which runners a workspace needs, by the names of its files and a few of their contents. Pure.

What lies among tests, samples or vendored code belongs to them and is no project of its own.

Which runners test a snapshot: those of the settings, else those that its files ask for. Keeps its last answer.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any

from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.runners.registry import KINDS, AnyRunner, RunnerDefaults
from watchtest.runners.runner import RunnerSpec
from watchtest.runners.unittest import uses_only_unittest

Read = Callable[[str], bytes]
"""The content of a path of the snapshot."""

MANIFESTS = ("go.mod", "Cargo.toml", "package.json")
OTHERS_CODE = frozenset(
    {
        *("node_modules", "vendor", "third_party", "target", "dist", "build", "testdata"),
        *("test", "tests", "__tests__", "e2e", "fixtures", "__fixtures__", "samples", "examples", "example"),
        *("docs", "doc", "templates", "template", "benchmarks"),
    }
)
MOST_PROJECTS = 20
MOST_SOURCES = 300
PYTHON_TEST = re.compile(r"(^|/)(test_[^/]*|[^/]*_test)\.py$")
PYTHON_SETTINGS = ("pytest.ini", ".pytest.ini", "conftest.py", "tests/conftest.py", "test/conftest.py")
PYTHON_TABLES = {"pyproject.toml": b"[tool.pytest", "setup.cfg": b"[tool:pytest]", "tox.ini": b"[pytest]"}
SCRIPT_TEST = re.compile(r"(\.(test|spec)\.[cm]?[jt]sx?$)|(^|/)__tests__/[^/]+\.[cm]?[jt]sx?$")
RUST_TEST = re.compile(rb"#\[(\w+::)*test\b|#\[rstest")
SCRIPT_TOOLS = ("vitest", "jest")


def detect(paths: Collection[str], read: Read) -> tuple[RunnerSpec, ...]:
    """At least one, Python first. Tools whose project has no tests yet count only if there is nothing else."""
    language = python_runner(paths, read)
    sure: list[RunnerSpec] = []
    unsure: list[RunnerSpec] = []
    manifests = sorted((path for path in paths if _is_manifest(path)), key=lambda path: (path.count("/"), path))
    for spec in _projects(manifests, read):
        below = _below(spec.folder, paths)
        (sure if _has_tests(spec, below, language != "", read) else unsure).append(spec)
    python = [RunnerSpec(language)] if language else []
    return tuple([*python, *sure] or unsure or [RunnerSpec("pytest")])


def python_runner(paths: Collection[str], read: Read) -> str:
    """`pytest` if there are Python tests or settings of pytest, `unittest` if nothing but that is used, else ""."""
    has_settings = any(path in paths for path in PYTHON_SETTINGS) or any(
        name in paths and table in read(name) for name, table in PYTHON_TABLES.items()
    )
    # The cheap questions come first: there may be a hundred thousand paths.
    has_tests = any("test" in path and path.endswith(".py") and PYTHON_TEST.search(path) for path in paths)
    if not has_settings and has_tests and uses_only_unittest(paths, read):
        return "unittest"
    return "pytest" if has_settings or has_tests else ""


def _is_manifest(path: str) -> bool:
    if not path.endswith(MANIFESTS) or path.rpartition("/")[2] not in MANIFESTS:
        return False
    folders = path.split("/")[:-1]
    return OTHERS_CODE.isdisjoint(folders) and not any(folder.startswith((".", "_")) for folder in folders)


def _projects(manifests: Iterable[str], read: Read) -> list[RunnerSpec]:
    """From the top down, so that a project which covers those below it comes first."""
    found: list[RunnerSpec] = []
    workspaces: list[tuple[str, list[str]]] = []
    for path in manifests:
        if len(found) >= MOST_PROJECTS:
            break
        folder, _, name = path.rpartition("/")
        if name == "go.mod":
            found.append(_spec("go", folder))
        elif name == "Cargo.toml":
            manifest = _toml(read(path))
            workspace = manifest.get("workspace")
            is_member = any(_covers(top, excluded, folder) for top, excluded in workspaces)
            if workspace is None and is_member:
                continue
            if isinstance(workspace, dict):
                workspaces.append((folder, _texts(workspace.get("exclude"))))
            found.append(_spec("cargo", folder))
        elif kind := _script_tool(_json(read(path))):
            parents = [spec.folder for spec in found if spec.kind == kind]
            if not any(_is_below(folder, parent) for parent in parents):
                found.append(_spec(kind, folder))
    return found


def _has_tests(spec: RunnerSpec, below: list[str], has_python: bool, read: Read) -> bool:
    match spec.kind:
        case "go":
            return any(path.endswith("_test.go") for path in below)
        case "cargo":
            return not has_python or _has_rust_tests(spec, below, read)
        case _:
            named = (path for path in below if "test" in path or "spec" in path)
            return any(SCRIPT_TEST.search(path) and "node_modules/" not in path for path in named)


def _has_rust_tests(spec: RunnerSpec, below: list[str], read: Read) -> bool:
    """Asked of Python projects, where Rust is mostly an extension; one that Python must load cannot be linked alone."""
    manifest = f"{spec.folder}/Cargo.toml".lstrip("/")
    if b"extension-module" in read(manifest):
        return False
    sources = [path for path in below if path.endswith(".rs")][:MOST_SOURCES]
    return any(RUST_TEST.search(read(path)) for path in sources)


def _script_tool(package: dict[str, Any]) -> str:
    """The tool that a package depends on; of two, the one that its own test script starts."""
    tables = [package.get(name) for name in ("devDependencies", "dependencies")]
    named = [tool for tool in SCRIPT_TOOLS if any(isinstance(table, dict) and tool in table for table in tables)]
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    started = [tool for tool in named if isinstance(script, str) and re.search(rf"\b{tool}\b", script)]
    return next(iter(started or named), "")


def _spec(kind: str, folder: str) -> RunnerSpec:
    return RunnerSpec(kind, f"{kind}:{folder}" if folder else kind, folder)


def _below(folder: str, paths: Iterable[str]) -> list[str]:
    return [path for path in paths if path.startswith(folder + "/")] if folder else list(paths)


def _is_below(folder: str, parent: str) -> bool:
    return not parent or folder == parent or folder.startswith(parent + "/")


def _covers(top: str, excluded: list[str], folder: str) -> bool:
    if not _is_below(folder, top):
        return False
    inner = folder.removeprefix(top).lstrip("/")
    return not any(fnmatchcase(inner, one) or _is_below(inner, one.rstrip("/")) for one in excluded if one)


def _texts(raw: object) -> list[str]:
    return [one for one in raw if isinstance(one, str)] if isinstance(raw, list) else []


def _toml(content: bytes) -> dict[str, Any]:
    """Nothing if it is only half written: the tool itself says so better."""
    try:
        return tomllib.loads(content.decode("utf-8", "replace"))
    except ValueError:
        return {}


def _json(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


DECISIVE = frozenset({*MANIFESTS, *(name.rpartition("/")[2] for name in PYTHON_SETTINGS), *PYTHON_TABLES})


class RunnerDetector:
    """`given`: the runners of the settings; if there are none, they are detected."""

    def __init__(
        self,
        given: tuple[RunnerSpec, ...],
        read: Callable[[str, Entry], bytes],
        defaults: RunnerDefaults | None = None,
    ) -> None:
        self._given = given
        self._read = read
        self._defaults = defaults or RunnerDefaults()
        # Options for pytest in the settings mean that it is wanted even where unittest would do.
        self._is_for_pytest = bool(self._defaults.args) or self._defaults.workers > 1
        self._entries: Mapping[str, Entry] = MappingProxyType({})
        self._specs: tuple[RunnerSpec, ...] = ()

    def __call__(self, snapshot: Snapshot) -> tuple[AnyRunner, ...]:
        return tuple(KINDS[spec.kind].make(spec, self._defaults) for spec in self.specs(snapshot))

    def specs(self, snapshot: Snapshot) -> tuple[RunnerSpec, ...]:
        specs = self._given or self._found(snapshot.entries)
        return tuple(sorted(specs, key=lambda spec: KINDS[spec.kind].rank))

    def _found(self, entries: Mapping[str, Entry]) -> tuple[RunnerSpec, ...]:
        if not self._specs or not self._is_as_before(entries):
            files = {path: entry for path, entry in entries.items() if entry.kind is EntryKind.FILE}
            found = detect(files, lambda path: self._read(path, files[path]))
            self._specs = tuple(
                replace(spec, kind="pytest") if spec.kind == "unittest" and self._is_for_pytest else spec
                for spec in found
            )
        self._entries = entries
        return self._specs

    def _is_as_before(self, entries: Mapping[str, Entry]) -> bool:
        """Looking costs time at every save; whether only unittest is used hangs on what the tests say."""
        if any(spec.kind == "unittest" for spec in self._specs) or entries.keys() != self._entries.keys():
            return False
        changed = (path for path, entry in entries.items() if self._entries[path] is not entry)
        return not any(path.rpartition("/")[2] in DECISIVE for path in changed)
