"""Shared test helpers, imported as `support.<module>`."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
"""The folder that a child process needs on its import path to import `support` and `engine`."""
