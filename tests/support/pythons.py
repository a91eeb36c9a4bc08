"""The Python interpreters of this machine, for tests of code that runs in a box."""

from __future__ import annotations

import shutil
import subprocess
import sys


def pythons() -> list[str]:
    """Return this Python, and one of every other version on the path that the agent supports."""
    found = [sys.executable]
    for minor in range(8, 16):
        path = shutil.which(f"python3.{minor}")
        if path is not None and minor != sys.version_info.minor and _works(path):
            found.append(path)
    return found


def _works(python: str) -> bool:
    """Return False for a version manager's shim without an installed Python."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0
