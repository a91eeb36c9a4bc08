"""The agent's source as a zip, and the command that starts it. Built once a process."""

from __future__ import annotations

import io
import zipfile
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable

PACKAGE = "watchtest_agent"


@cache
def agent_zip() -> bytes:
    """Every module of watchtest.agent, under the name it has inside the box."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, resources.files("watchtest.agent"), PACKAGE)
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, folder: Traversable, name: str) -> None:
    for file in sorted(folder.iterdir(), key=lambda file: file.name):
        if file.is_dir():
            _add(archive, file, f"{name}/{file.name}")
        elif file.name.endswith(".py"):
            archive.writestr(f"{name}/{file.name}", file.read_bytes())


def start_command(python: str, home: str, root: str, agent: bytes) -> list[str]:
    """Isolated mode: neither the workspace nor the user's environment can shadow what the agent imports."""
    bootstrap = resources.files("watchtest.agent").joinpath("bootstrap.py").read_text(encoding="utf-8")
    return [python, "-I", "-c", bootstrap, home, root, str(len(agent))]
