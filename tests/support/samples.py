"""The sample projects of other languages: their paths, and the mark of the tool that runs each."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

SAMPLES = Path(__file__).parents[1] / "samples"


def tool_of(sample: str) -> str:
    """Return the tool that runs a sample, which is also the mark of the tests that need it."""
    return {"go": "go", "rust": "cargo"}.get(sample, "npm")


def marked(cases: Iterable[tuple[Any, ...]], default: frozenset[str] | None = None) -> list[Any]:
    """Return the cases of a parametrized test, which begin with the name of a sample, each marked with its tool.

    Only the first case of each sample in `default` is part of the default session; without `default`, all are.
    """
    seen: set[str] = set()
    params = []
    for case in cases:
        name = str(case[0])
        marks = [getattr(pytest.mark, tool_of(name))]
        if default is not None and (name in seen or name not in default):
            marks.append(pytest.mark.thorough)
        seen.add(name)
        params.append(pytest.param(*case, marks=marks))
    return params
