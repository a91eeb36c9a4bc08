"""Runs code and reads data while it is imported."""

from pathlib import Path


def _build():
    return {"one": _one()}


def _one():
    return 1


TABLE = _build()
WORDS = (Path(__file__).parents[1] / "data" / "words.txt").read_text().split()
