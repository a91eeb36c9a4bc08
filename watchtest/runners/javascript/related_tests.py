"""Which JavaScript tests a change can affect: what Jest and Vitest say of who imports what, asked and read.

They know imports and nothing else. So only sources of JavaScript are asked about, one by one; anything else may be read
by any test, and so may a source that nobody is known to import.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePosixPath
from typing import Any

from watchtest.core.model import Only
from watchtest.core.supersede import is_text
from watchtest.runners.javascript.javascript_tools import LAUNCHER, SUFFIXES
from watchtest.runners.runner import Change, Undecidable, is_below, proof
from watchtest.runners.untrusted import inside, tables

FILE_LIMIT = 10
"""More are asked about in less time by running everything."""
SNAPSHOTS = "__snapshots__"
SNAPSHOT = ".snap"
MOCKS = "__mocks__"
PACKAGES = "node_modules"
SETTINGS = re.compile(r"(^\.)|(\.config\.[cm]?[jt]sx?$)|(^(jest|vitest|vite|babel)\b)")
"""By their names, files that tell a tool what to do."""
GLOB_SIGN = re.compile(r"([][(){}*?!+@|])")
QUOTED_SIGN = r"\\\1"
TO_REPORT = f'exec >"$1"; shift; {LAUNCHER}'
"""Starts a tool whose stdout is the report."""


def asked_of(change: Change, folder: str) -> tuple[list[str], dict[str, str]]:
    """The sources that the tool has to be asked about, and the tests of snapshots by these. Raises Undecidable."""
    sources: list[str] = []
    snapshots: dict[str, str] = {}
    for path in change.paths:
        where = PurePosixPath(path)
        if path in change.removed and not is_text(where):
            raise Undecidable(f"{path} is gone, and nobody can tell who imported it")
        if where.suffix == SNAPSHOT and (test := _test_of(where)) in change.known_files:
            snapshots[path] = test
        elif where.name.endswith(SUFFIXES):
            _must_be_plain(where, folder)
            sources.append(path)
        elif not is_text(where):
            raise Undecidable(f"{path} may be read by any test")
    if len(sources) > FILE_LIMIT:
        raise Undecidable(f"{len(sources)} files changed")
    return sources, snapshots


def _test_of(snapshot: PurePosixPath) -> str:
    """`src/__snapshots__/a.test.js.snap` is of `src/a.test.js`; "" where it lies elsewhere."""
    is_usual = snapshot.parent.name == SNAPSHOTS
    return str(snapshot.parent.parent / snapshot.name.removesuffix(SNAPSHOT)) if is_usual else ""


def _must_be_plain(where: PurePosixPath, folder: str) -> None:
    if not is_below(str(where), folder):
        raise Undecidable(f"{where} lies outside of {folder}/")
    if SETTINGS.search(where.name) or MOCKS in where.parts or PACKAGES in where.parts:
        raise Undecidable(f"{where} may matter to every test")


def affected(related: Mapping[str, object], snapshots: Mapping[str, str], folder: str, change: Change) -> Only:
    """`related`: the files of tests that import each source, as the tool names them. Raises Undecidable."""
    tests: set[str] = set(snapshots.values())
    reasons = [f"{path} is a snapshot of {test}" for path, test in snapshots.items()]
    for path, said in related.items():
        files = [inside(str(file), change.root, folder) for file in said] if isinstance(said, list) else []
        if not files:
            raise Undecidable(f"no test is known to import {path}, and any may read it")
        tests.update(_sure(file, path) for file in files)
        reasons.append(f"{path} is a test" if files == [path] else f"{path} is imported")
    return proof(tests, reasons, change)


def _sure(file: str | None, path: str) -> str:
    if file is None:
        raise Undecidable(f"{path} is imported by a test outside of the workspace")
    return file


def read(report: bytes) -> Any:
    try:
        return json.loads(report)
    except (ValueError, RecursionError) as error:
        raise Undecidable("what the tool says of related tests cannot be read") from error


# -- jest ------------------------------------------------------------------------------------------


def must_be_in_view(sources: Iterable[str], configs: Sequence[Mapping[str, Any]], change: Change) -> None:
    """Jest sees only files of its roots, and of the suffixes that it is report_of. Raises Undecidable for others."""
    for config in configs:
        try:
            ignored = [re.compile(pattern) for pattern in config["modulePathIgnorePatterns"]]
            suffixes = tuple(f".{suffix}" for suffix in config["moduleFileExtensions"])
            roots = tuple(f"{root.rstrip('/')}/" for root in config["roots"])
        except (KeyError, TypeError, AttributeError, re.error) as error:
            raise Undecidable("the settings of jest cannot be read") from error
        for source in sources:
            path = f"{change.root.rstrip('/')}/{source}"
            is_seen = path.startswith(roots) and path.endswith(suffixes)
            if not is_seen or any(pattern.search(path) for pattern in ignored):
                raise Undecidable(f"jest does not look at {source}")


def configs_of(said: object) -> list[dict[str, Any]]:
    """What `jest --showConfig` tells of each project. Raises Undecidable."""
    configs = tables(said.get("configs")) if isinstance(said, dict) else []
    if not configs:
        raise Undecidable("jest does not tell its settings")
    return configs


def machinery(said: object, root: str) -> frozenset[str]:
    """The project's own files that its settings name, wherever they do: setup, environments, transformers."""
    inner = (inside(word, root, "") for word in _words(said) if word.startswith("/") and f"/{PACKAGES}/" not in word)
    return frozenset(path for path in inner if path is not None and path.endswith(SUFFIXES))


def _words(said: object) -> Iterator[str]:
    match said:
        case str():
            yield said
        case list():
            for one in said:
                yield from _words(one)
        case dict():
            for one in said.values():
                yield from _words(one)


def as_tests(files: Iterable[str], config: Mapping[str, Any], root: str) -> tuple[str, ...]:
    """Arguments that have Jest take these files for its tests."""
    paths = [f"{root.rstrip('/')}/{file}" for file in sorted(files)]
    everywhere = f"--testPathIgnorePatterns=/{PACKAGES}/"
    if config.get("testRegex"):
        return (*(f"--testRegex=^{re.escape(path)}$" for path in paths), everywhere)
    return (*(f"--testMatch={GLOB_SIGN.sub(QUOTED_SIGN, path)}" for path in paths), everywhere)


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
"""Its command line has `related`, which runs what it finds. What types depend on is not among imports, nor is what is
imported as something else, like `./a.ts?raw`."""
