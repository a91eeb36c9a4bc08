"""The files from which pytest reads its settings. Pure; the one table for detection, recipes and impact rules."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

CONFTEST = "conftest.py"
PYTEST_FILES = ("pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml")
"""Files that only pytest reads."""
PYTEST_TABLES: Mapping[str, bytes] = MappingProxyType(
    {"pyproject.toml": b"[tool.pytest", "setup.cfg": b"[tool:pytest]", "tox.ini": b"[pytest]"}
)
"""Files of several tools, and how the header of pytest's table begins in each."""
SETTINGS_FILES = frozenset({*PYTEST_FILES, *PYTEST_TABLES})
