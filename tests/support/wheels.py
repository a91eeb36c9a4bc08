"""Packages that tests install without a package index."""

from __future__ import annotations

import zipfile
from pathlib import Path


def write_wheel(folder: Path, name: str = "till", code: str = "OPEN = True\n") -> None:
    """Write a wheel of version 1 with one module of the same name."""
    folder.mkdir(parents=True, exist_ok=True)
    facts = {
        "METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n",
        "WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "".join(f"{path},,\n" for path in (f"{name}.py", *(f"{name}-1.dist-info/{file}" for file in FILES))),
    }
    with zipfile.ZipFile(folder / f"{name}-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", code)
        for file, text in facts.items():
            wheel.writestr(f"{name}-1.dist-info/{file}", text)


FILES = ("METADATA", "WHEEL", "RECORD")

BACKEND = """
import os, zipfile


def build_editable(folder, settings=None, metadata=None):
    with zipfile.ZipFile(os.path.join(folder, "mine-1-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("mine.pth", os.path.join(os.getcwd(), "src") + chr(10))
        facts = ["Metadata-Version: 2.1", "Name: mine", "Version: 1", "Provides-Extra: test", "Provides-Extra: docs"]
        facts += ["Requires-Dist: till; extra == 'test'", "Requires-Dist: nothing; extra == 'docs'", ""]
        wheel.writestr("mine-1.dist-info/METADATA", chr(10).join(facts))
        wheel.writestr("mine-1.dist-info/WHEEL", "Wheel-Version: 1.0" + chr(10) + "Root-Is-Purelib: true" + chr(10))
        paths = ["mine.pth", "mine-1.dist-info/METADATA", "mine-1.dist-info/WHEEL", "mine-1.dist-info/RECORD"]
        wheel.writestr("mine-1.dist-info/RECORD", "".join(path + ",," + chr(10) for path in paths))
    return "mine-1-py3-none-any.whl"
"""
"""A build backend that needs no index, for a project `mine` with its code in src/ and the extras `test` and `docs`."""
