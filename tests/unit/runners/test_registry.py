"""Runners whose tools an official image of another language cannot have."""

from __future__ import annotations

import pytest

from watchtest.runners.registry import lacking_tools
from watchtest.runners.runner import RunnerSpec


@pytest.mark.parametrize(
    ("kind", "toolchain", "is_lacking"),
    [
        *(("cargo", "python", True), ("vitest", "python", True), ("go", "node", True), ("jest", "node", False)),
        *(("pytest", "go", False), ("cargo", "", False), ("command", "python", False), ("unittest", "rust", False)),
    ],
)
def test_a_runner_that_needs_the_tools_of_another_language_is_remarked(
    kind: str, toolchain: str, is_lacking: bool
) -> None:
    assert bool(lacking_tools(RunnerSpec(kind), toolchain)) == is_lacking
