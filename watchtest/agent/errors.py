"""The one exception of the agent that its host is told of."""

from __future__ import annotations

import errno


class MirrorError(Exception):
    """The mirror cannot be what was asked for. `code` is a stable word."""

    def __init__(self, code: str, message: str) -> None:
        Exception.__init__(self, message)
        self.code = code


def explained(error: OSError, path: str) -> MirrorError:
    code = "disk_full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else "sync"
    return MirrorError(code, "{} cannot be written in the box: {}".format(path, error.strerror or error))
