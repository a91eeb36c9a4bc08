"""Finds the JavaScript tests that a change can affect, from what Jest and Vitest know about imports.

They know nothing but imports. So they are queried for each changed JavaScript source; any other file may be read by any
test, and so may a source that no test is known to import.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from watchtest.core.model import Only
from watchtest.core.supersede import is_text
from watchtest.runners.runner import Change, Undecidable, is_below, proof
from watchtest.runners.untrusted import inside, tables

FILE_LIMIT = 10
"""For more files than this, running everything is faster than the queries."""
SUFFIXES = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
SNAPSHOTS = "__snapshots__"
SNAPSHOT = ".snap"
MOCKS = "__mocks__"
PACKAGES = "node_modules"
SETTINGS = re.compile(r"(^\.)|(\.config\.[cm]?[jt]sx?$)|(^(jest|vitest|vite|babel)\b)")
"""The names of files that configure a tool."""
GLOB_CHARACTER = re.compile(r"([][(){}*?!+@|])")
ESCAPED = r"\\\1"


def sources_and_snapshots(change: Change, folder: str) -> tuple[list[str], dict[str, str]]:
    """Return the changed sources to query, and the changed snapshots with their tests. Raises Undecidable."""
    sources: list[str] = []
    snapshots: dict[str, str] = {}
    for path in change.paths:
        where = PurePosixPath(path)
        if path in change.removed and not is_text(where):
            raise Undecidable(f"{path} was removed, and it is unknown what imported it")
        if where.suffix == SNAPSHOT and (test := _test_of(where)) in change.known_files:
            snapshots[path] = test
        elif where.name.endswith(SUFFIXES):
            _check_plain(where, folder)
            sources.append(path)
        elif not is_text(where):
            raise Undecidable(f"{path} may be read by any test")
    if len(sources) > FILE_LIMIT:
        raise Undecidable(f"{len(sources)} files changed")
    return sources, snapshots


def _test_of(snapshot: PurePosixPath) -> str:
    """Return `src/a.test.js` for `src/__snapshots__/a.test.js.snap`; "" for a snapshot elsewhere."""
    is_usual = snapshot.parent.name == SNAPSHOTS
    return str(snapshot.parent.parent / snapshot.name.removesuffix(SNAPSHOT)) if is_usual else ""


def _check_plain(where: PurePosixPath, folder: str) -> None:
    if not is_below(str(where), folder):
        raise Undecidable(f"{where} is outside of {folder}/")
    if SETTINGS.search(where.name) or MOCKS in where.parts or PACKAGES in where.parts:
        raise Undecidable(f"{where} may affect every test")


def affected(related: Mapping[str, object], snapshots: Mapping[str, str], folder: str, change: Change) -> Only:
    """Return the affected tests. `related` lists for each source the test files that import it. Raises Undecidable."""
    tests: set[str] = set(snapshots.values())
    reasons = [f"{path} is a snapshot of {test}" for path, test in snapshots.items()]
    for path, importers in related.items():
        files = [inside(str(file), change.root, folder) for file in importers] if isinstance(importers, list) else []
        if not files:
            raise Undecidable(f"no test is known to import {path}, so any may read it")
        if None in files:
            raise Undecidable(f"{path} is imported by a test outside of the workspace")
        tests.update(file for file in files if file is not None)
        reasons.append(f"{path} is a test" if files == [path] else f"{path} is imported")
    return proof(tests, reasons, change)


def read(report: bytes) -> Any:
    try:
        return json.loads(report)
    except (ValueError, RecursionError) as error:
        raise Undecidable("the list of related tests cannot be read") from error


# -- jest ------------------------------------------------------------------------------------------


def check_visible(sources: Iterable[str], configs: Sequence[Mapping[str, Any]], change: Change) -> None:
    """Raise Undecidable for sources that Jest does not see: only its roots and configured suffixes count."""
    for config in configs:
        try:
            ignored = [re.compile(pattern) for pattern in config["modulePathIgnorePatterns"]]
            suffixes = tuple(f".{suffix}" for suffix in config["moduleFileExtensions"])
            roots = tuple(f"{root.rstrip('/')}/" for root in config["roots"])
        except (KeyError, TypeError, AttributeError, re.error) as error:
            raise Undecidable("jest's settings cannot be read") from error
        for source in sources:
            path = f"{change.root.rstrip('/')}/{source}"
            is_visible = path.startswith(roots) and path.endswith(suffixes)
            if not is_visible or any(pattern.search(path) for pattern in ignored):
                raise Undecidable(f"jest does not look at {source}")


def configs_of(settings: object) -> list[dict[str, Any]]:
    """Return the settings of each project from `jest --showConfig`. Raises Undecidable."""
    configs = tables(settings.get("configs")) if isinstance(settings, dict) else []
    if not configs:
        raise Undecidable("jest does not show its settings")
    return configs


def files_in_settings(settings: object, root: str) -> frozenset[str]:
    """Return the project's own files that its settings mention anywhere: setup, environments, transformers."""
    paths = (path for path in _strings(settings) if path.startswith("/") and f"/{PACKAGES}/" not in path)
    inner = (inside(path, root, "") for path in paths)
    return frozenset(path for path in inner if path is not None and path.endswith(SUFFIXES))


def _strings(value: object) -> Iterator[str]:
    match value:
        case str():
            yield value
        case list():
            for item in value:
                yield from _strings(item)
        case dict():
            for item in value.values():
                yield from _strings(item)


def as_tests(files: Iterable[str], config: Mapping[str, Any], root: str) -> tuple[str, ...]:
    """Return arguments that make Jest treat these files as its tests."""
    paths = [f"{root.rstrip('/')}/{file}" for file in sorted(files)]
    everywhere = f"--testPathIgnorePatterns=/{PACKAGES}/"
    if config.get("testRegex"):
        return (*(f"--testRegex=^{re.escape(path)}$" for path in paths), everywhere)
    return (*(f"--testMatch={GLOB_CHARACTER.sub(ESCAPED, path)}" for path in paths), everywhere)


# -- vitest ----------------------------------------------------------------------------------------

VITEST = """\
import { writeFileSync } from 'node:fs'
import { resolve } from 'node:path'
import { createVitest, parseCLI } from 'vitest/node'
const [report, count, ...words] = process.argv.slice(1)
const files = words.splice(0, Number(count))
const { options } = parseCLI(['vitest', ...words])
const vitest = await createVitest('test', { ...options, watch: false, run: true, related: [] })
const tests = await vitest.globTestSpecifications()
const own = (project) => [project.config.setupFiles, project.config.globalSetup, project.config.snapshotSerializers]
  .flat().filter((file) => typeof file === 'string' && file.startsWith('/') && !file.includes('/node_modules/'))
const around = vitest.projects.flatMap((project) => own(project).map((file) => project.createSpecification(file)))
const settings = [vitest.vite, ...vitest.projects.map((project) => project.vite)]
  .flatMap((vite) => vite.config.configFileDependencies)
const isText = (path) => vitest.projects.some((project) =>
  [...project.vite.moduleGraph.getModulesByFile(path) ?? []]
    .some((module) => module.id !== path && !/[?](vue|svelte)&/.test(module.id)))
const found = {}
for (const file of files) {
  const path = resolve(file)
  vitest.config.related = [path]
  const concernsAll = settings.includes(path) || tests.some((test) => test.pool === 'typescript')
    || (await vitest.specifications.filterTestsBySource(around)).length > 0
  const related = await vitest.specifications.filterTestsBySource(tests)
  found[file] = (concernsAll || isText(path) ? tests : related).map((test) => test.moduleId)
}
writeFileSync(report, JSON.stringify(found))
await vitest.close()
process.exit(0)
"""
"""`vitest related` would run what it finds. Dependencies of types are not among the imports, nor are files that are
imported as something else, like `./a.ts?raw`."""
