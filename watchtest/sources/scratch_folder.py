"""Scratch folders of the git commands; what a killed process left behind is removed by the next one."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from pathlib import Path

PREFIX = "watchtest-git-"


def make_scratch_folder() -> Path:
    """Create a folder that names this process, after removing those of processes that have been killed."""
    if os.name == "posix":  # elsewhere there is no harmless way to ask for a process
        for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
            if _is_abandoned(folder):
                shutil.rmtree(folder, ignore_errors=True)
    return Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))


def _is_abandoned(folder: Path) -> bool:
    """Return whether this user's process that made the folder is gone; a process with its pid may be another one."""
    found = re.fullmatch(rf"{PREFIX}(\d{{1,9}})-\w+", folder.name)
    try:
        if found is None or folder.lstat().st_uid != os.getuid():
            return False
        os.kill(int(found[1]), 0)
    except ProcessLookupError:
        return True
    except OSError:
        return False
    return False
