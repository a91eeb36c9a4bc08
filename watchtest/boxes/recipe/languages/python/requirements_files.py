"""Find the requirements files of a project and read what they require. A compiled `.txt` stands for its `.in`."""

from __future__ import annotations

import functools
import posixpath
import re
from collections.abc import Iterable, Iterator

from watchtest.boxes.recipe.languages.python.requirement_lists import FILE, RequirementList
from watchtest.boxes.recipe.project_files import ProjectFiles

IN_ROOT = tuple(
    f"{stem}.{suffix}"
    for stem in ("requirements*", "*-requirements", "*_requirements", "requirements/*")
    for suffix in ("txt", "in")
)
FOLDERS = ("tests", "test", "testing", "reqs", "ci", "dev", "tools")
FILES = tuple(
    f"{stem}.{suffix}"
    for stem in (
        *("requirements", "requirements-test", "requirements-tests", "requirements_test", "requirements-dev"),
        *("test-requirements", "test_requirements", "dev-requirements", "test", "tests", "dev"),
    )
    for suffix in ("txt", "in")
)
NESTED = tuple(f"{folder}/{file}" for folder in FOLDERS for file in FILES)
BASE = re.compile(r"(base|common|core|main|default|all|requirements)")
INCLUDE = re.compile(r"(?:-r|--requirement)(?:\s*=\s*|\s*)(?P<path>\S+)")


def requirements_files(files: ProjectFiles, named: Iterable[str] = ()) -> list[RequirementList]:
    """Return the requirements files in the root and in folders that usually have some, and those with these names."""
    elsewhere = (path for path in (*NESTED, *map(posixpath.normpath, named)) if files.has(path))
    paths = list(dict.fromkeys((*files.matching(IN_ROOT), *elsewhere)))
    known = set(paths)
    compiled = [path for path in paths if not (path.endswith(".in") and f"{path.removesuffix('.in')}.txt" in known)]
    return [RequirementList(FILE, path, path, tuple(included_requirements(files, path))) for path in compiled]


def uncompiled(files: ProjectFiles, path: str) -> list[str]:
    """Return the file that a requirements file was compiled from, if it is there."""
    source = f"{path.removesuffix('.txt')}.in"
    return [source] if path.endswith(".txt") and files.has(source) else []


def is_base(path: str) -> bool:
    """Return whether a file has what the project itself needs: `requirements.txt`, `requirements/base.txt`."""
    folder, _, name = path.rpartition("/")
    stem = posixpath.splitext(name)[0]
    return stem == "requirements" if folder != "requirements" else BASE.fullmatch(stem) is not None


def is_production(path: str) -> bool:
    return path.startswith("requirements/prod")


def included_requirements(files: ProjectFiles, path: str) -> Iterator[str]:
    """Yield the requirements of a file and of the files that it includes, without options and comments."""
    for _, text in _lines(files, path):
        if not text.startswith("-"):
            yield text


def included_files(files: ProjectFiles, path: str) -> Iterator[str]:
    """Yield the requirements files that a file includes, directly or not."""
    yield from (
        included_path(where, found["path"]) for where, text in _lines(files, path) if (found := INCLUDE.match(text))
    )


def included_path(path: str, named: str) -> str:
    """Return the path that a requirements file means by a relative path."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(path), named))


def _lines(files: ProjectFiles, path: str) -> Iterator[tuple[str, str]]:
    """Yield the lines that count, with the path of the file that has them."""
    waiting, seen = [path], set[str]()
    while waiting:
        where = waiting.pop(0)
        if where in seen:
            continue
        seen.add(where)
        for line in _lines_of_text(files.text(where)):
            if found := INCLUDE.match(line):
                waiting.append(included_path(where, found["path"]))
            yield where, line


@functools.lru_cache(maxsize=256)
def _lines_of_text(text: str) -> tuple[str, ...]:
    lines = text.replace("\\\n", " ").splitlines()
    return tuple(filter(None, (re.sub(r"(^|\s)#.*|\s--hash\S*", "", line).strip() for line in lines)))
