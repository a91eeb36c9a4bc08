"""Packages of one module that pip installs from the workspace, so that no test needs a package index."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable

from support.watcher_process import Project

FOLDER = "wheels"
OPTIONS = f"--no-index\n--find-links {FOLDER}\n"


def wheel(name: str, version: str = "1.0") -> tuple[str, bytes]:
    """Return the file name and the content of a wheel whose module has its version as `version`."""
    about = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": f"version = {version!r}\n",
        f"{about}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,\n" for path in (*files, f"{about}/RECORD"))
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", content.getvalue()


def save_wheels(project: Project, *names: str) -> None:
    for name in names:
        file, content = wheel(name)
        project.save(f"{FOLDER}/{file}", content)


def requirements(names: Iterable[str]) -> str:
    return OPTIONS + "".join(f"{name}\n" for name in names)


def install_requirements(project: Project) -> None:
    """Let setup install requirements.txt: in a container it does by itself, the local box has a setup of its own."""
    if setup := project.environ.get("WATCHTEST_BOX_SETUP"):
        project.environ["WATCHTEST_BOX_SETUP"] = setup.removesuffix("]") + ", 'pip install -r requirements.txt']"
