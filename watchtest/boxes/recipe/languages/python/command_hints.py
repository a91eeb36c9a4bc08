"""Find commands that install for tests in workflows, Makefiles and justfiles: hints for what tests need, no more.

They are read line by line. A line counts if it runs pytest or names a list that is for tests.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

from watchtest.boxes.recipe.languages.python.install_requests import InstallRequest, split
from watchtest.boxes.recipe.languages.python.requirement_lists import Purpose, purpose_of
from watchtest.boxes.recipe.project_files import ProjectFiles

PLACES = (".github/workflows/*.yml", ".github/workflows/*.yaml", "Makefile", "makefile", "Justfile", "justfile")
COMMAND = re.compile(r"\b(?P<tool>pip3?|uv|poetry|pdm)\s+(?P<verb>install|sync|run|pip install)\s+(?P<rest>[^\n|;]*)")
TEXT_LIMIT = 256 * 1024


def command_hints(files: ProjectFiles) -> list[InstallRequest]:
    return [hint for path in files.matching(PLACES) for hint in _hints(path, files.text(path)[:TEXT_LIMIT])]


@functools.lru_cache(maxsize=64)
def _hints(path: str, text: str) -> tuple[InstallRequest, ...]:
    return tuple(_read(path, text))


def _read(path: str, text: str) -> Iterator[InstallRequest]:
    for found in COMMAND.finditer(text.replace("\\\n", " ")):
        rest = found["rest"].partition("&&")[0]
        runs_pytest = re.search(r"\bpytest\b", rest) is not None
        if found["verb"] == "run" and not runs_pytest:
            continue
        request = InstallRequest(path)
        request.add(_options(rest) if found["verb"] == "run" else split(rest))
        named = [*request.extras, *request.groups, *request.files]
        if runs_pytest or any(purpose_of(name) is Purpose.TESTS for name in named):
            yield request


def _options(rest: str) -> list[str]:
    """Return the words of `uv run` before the program that it runs."""
    words = split(rest.partition("pytest")[0])
    return [word for word in words if word not in ("coverage", "python", "run", "-m", "{{", "}}")]
