"""The one exception of the agent that its host is told of."""

from __future__ import annotations

import errno
import os
from typing import Optional

ROOM_NEEDED = 64 * 1024


class MirrorError(Exception):
    """The mirror cannot be what was asked for. `code` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        Exception.__init__(self, message)
        self.code = code


def explained(error: OSError, path: str) -> MirrorError:
    code = code_of(error, "sync")
    return MirrorError(code, "{} cannot be written in the box: {}".format(path, error.strerror or error))


def code_of(error: OSError, otherwise: str) -> str:
    return "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else otherwise


def full_disk(*folders: str) -> Optional[str]:
    """The first of these folders where nothing can be written any more for want of room."""
    for folder in folders:
        try:
            found = os.statvfs(folder)
        except OSError:
            continue  # not there: then nothing of ours is
        if found.f_bavail * found.f_frsize < ROOM_NEEDED or (found.f_files and not found.f_favail):
            return folder
    return None
