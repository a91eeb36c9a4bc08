"""What Jest and Vitest share: detection, launching, selecting tests, and finding locations in JavaScript stacks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import quote

from watchtest.core.model import Location
from watchtest.runners.project_tree import DetectedProject, ProjectTree, in_folder
from watchtest.runners.runner import FILTER_LIMIT, is_below
from watchtest.runners.untrusted import COLUMNS, location, number

MANIFEST = "package.json"
TOOLS = ("vitest", "jest")
TEST_FILE = re.compile(r"(\.(test|spec)\.[cm]?[jt]sx?$)|(^|/)__tests__/[^/]+\.[cm]?[jt]sx?$")
SUFFIXES = (".js", ".jsx", ".mjs", ".cjs", ".ts", ".tsx", ".mts", ".cts", ".vue", ".svelte")
SEPARATOR = " > "
LAUNCHER = (
    'tool=$1; shift; folder=$PWD; while :; do [ -x "$folder/node_modules/.bin/$tool" ] && '
    'exec "$folder/node_modules/.bin/$tool" "$@"; [ -n "$folder" ] || break; folder=${folder%/*}; done; '
    '[ -f .pnp.cjs ] && exec yarn run "$tool" "$@"; '
    'echo "$tool is not in node_modules of $PWD or above" >&2; exit 127'
)
"""Does the same as `npx --no-install`, without the half second that npm takes to start."""
MARK = "\x01"
"""Replaces the path of the workspace while a text is parsed, because that path may contain any character."""
FRAME = re.compile(
    rf"^\s*(?:at|\u276f) (?:[^{MARK}\n]*{MARK}(?P<own>[^{MARK}\n]+?)|"
    rf"(?:[^{MARK}\n]*[( ])?(?P<near>[^\s():/{MARK}][^():\s{MARK}]*))"
    r":(?P<line>\d{1,9}):(?P<column>\d{1,9})\)?\s*$",
    re.MULTILINE,
)
PARSER_ERROR = re.compile(
    rf"(?:{MARK}(?P<own>[^:\n{MARK}]+)|(?:^|[\s\[(])(?P<near>[^\s:()\[\]/{MARK}][^\s:()\[\]{MARK}]*\.[cm]?[jt]sx?))"
    r":(?P<line>\d{1,9}):(?P<column>\d{1,9})"
)
BABEL = re.compile(rf"{MARK}(?P<own>[^:\n{MARK}]+)(?P<near>(?!))?: .*\((?P<line>\d{{1,9}}):(?P<column>\d{{1,9}})\)")
NOT_OWN = "node_modules/"
STACK = re.compile(r"\n\s+(?:at|\u276f) |\n\s*(?:> *)?\d+ ?\| ")
"""Where a message ends: at its stack, or at the excerpt of the source."""
KIND = re.compile(r"^(?:Uncaught )?([A-Z]\w*(?:Error|Exception)|Error)(?: \[[^\]]*\])?(?:: |$)")


def detect(tree: ProjectTree, tool: str) -> Iterator[DetectedProject]:
    """Yield the packages that use this tool, without those below another one."""
    found: list[str] = []
    for folder in tree.folders_with(MANIFEST):
        is_inner = any(is_below(folder, parent) for parent in found)
        if not is_inner and _tool_of(tree.read(in_folder(folder, MANIFEST))) == tool:
            found.append(folder)
            named = (path for path in tree.below(folder) if "test" in path or "spec" in path)
            has_tests = any(TEST_FILE.search(path) and "node_modules/" not in path for path in named)
            yield DetectedProject(folder, has_tests)


def _tool_of(manifest: bytes) -> str:
    """Return the tool that a package depends on; of two, the one that its test script starts."""
    try:
        found = json.loads(manifest.decode("utf-8-sig", "replace"))
    except (ValueError, RecursionError):
        return ""
    package: dict[str, Any] = found if isinstance(found, dict) else {}
    tables = [package.get(name) for name in ("devDependencies", "dependencies")]
    used = [tool for tool in TOOLS if any(isinstance(table, dict) and tool in table for table in tables)]
    scripts = package.get("scripts")
    script = scripts.get("test") if isinstance(scripts, dict) else None
    started = [tool for tool in used if isinstance(script, str) and re.search(rf"\b{tool}\b", script)]
    return next(iter(started or used), "")


def launched(tool: str, *words: str) -> tuple[str, ...]:
    return ("sh", "-c", LAUNCHER, "watchtest", tool, *words)


def is_file_of(folder: str, test: str) -> bool:
    """Tell whether an id names a JavaScript file below `folder`."""
    file = test.partition("::")[0]
    return file.endswith(SUFFIXES) and (not folder or file.startswith(folder + "/"))


def selected(tests: Sequence[str]) -> tuple[list[str], str]:
    """Return the files of these ids, and a regular expression for the names in them; "" if whole files are meant."""
    files = sorted({test.partition("::")[0] for test in tests})
    names = [test.partition("::")[2] for test in tests]
    if not all(names):
        return files, ""
    quoted = sorted({_quoted(name) for name in names})
    expression = f"^({'|'.join(quoted)})$"
    return files, expression if len(expression) < FILTER_LIMIT else ""


def _quoted(name: str) -> str:
    """Quote a name. The tools join suite and test by one space; a title may contain our separator and line breaks."""
    parts = [re.sub(r"([\\.+*?()|\[\]{}^$/-])", r"\\\1", part) for part in name.split(SEPARATOR)]
    return "( | > )".join(parts).replace(" ", r"\s")


def frames(stack: str, root: str, folder: str) -> list[tuple[Location, int | None]]:
    """Return the locations in the workspace's own files, deepest first, each with its column."""
    found = [_location(frame, folder) for frame in FRAME.finditer(_marked(stack, root))]
    return [(at, number(column, COLUMNS)) for at, column in found if at is not None]


def parser_error(message: str, root: str, folder: str) -> tuple[Location, int | None] | None:
    """Return the location that a parser reports, outside of any stack. Babel counts columns from 0."""
    for expression, first in ((PARSER_ERROR, 1), (BABEL, 0)):
        for found in expression.finditer(_marked(message, root)):
            at, column = _location(found, folder)
            if at is not None:
                return at, number(int(column) + 1 - first, COLUMNS)
    return None


def _marked(message: str, root: str) -> str:
    base = root.rstrip("/") + "/"
    clean = message.replace(MARK, "")
    return clean.replace(f"file://{quote(base)}", MARK).replace(f"file://{base}", MARK).replace(base, MARK)


def _location(found: re.Match[str], folder: str) -> tuple[Location | None, str]:
    path, base = (found["own"], "") if found["own"] else (found["near"], folder)
    return (None if NOT_OWN in path else location(path, found["line"], "", base)), found["column"]


def split(error: str) -> tuple[str, str]:
    """Return the kind and the message of an error, without its stack."""
    message = STACK.split(error, maxsplit=1)[0].strip()
    kind = KIND.match(message)
    if kind is None:
        return "Error", message
    return kind[1], message[kind.end() :].strip() or message
