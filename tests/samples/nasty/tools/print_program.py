"""A program that a test starts; imports nothing."""

from pathlib import Path

print((Path(__file__).parents[1] / "data" / "program.txt").read_text().strip())
