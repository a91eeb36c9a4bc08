"""The exception that the agent reports to its host, and what file errors mean for it."""

from __future__ import annotations

import errno
import os
from typing import Optional

ROOM_NEEDED = 64 * 1024


class AgentError(Exception):
    """A request that the agent cannot carry out. `code` is a stable word that the host understands."""

    def __init__(self, code: str, message: str) -> None:
        Exception.__init__(self, message)
        self.code = code


def write_error(error: OSError, path: str) -> AgentError:
    message = "{} cannot be written in the box: {}".format(path, error.strerror or error)
    return AgentError(error_code(error, "sync"), message)


def error_code(error: OSError, otherwise: str) -> str:
    return "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else otherwise


def full_disk(*folders: str) -> Optional[str]:
    """Return the first of these folders whose file system has no room left."""
    for folder in folders:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue  # a missing folder cannot be full
        if found.f_bavail * found.f_frsize < ROOM_NEEDED or (found.f_files and not found.f_favail):
            return folder
    return None
