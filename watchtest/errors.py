"""Every expected failure of watchtest, in one tree.

    WatchtestError            said in one line, with what to do next; `exit_code` tells the shell which kind
    ├── UsageError            2   wrong flags or arguments
    ├── ConfigError           2   a config file, key or value
    ├── WorkspaceError        2   the folder is missing, unreadable or already watched
    │   ├── SourceMoved       2   a file is no longer what the snapshot says; a new snapshot helps
    │   └── SourceShrank      2   more than half of the box would be deleted: a question, not a deed
    ├── EngineError           4   no container engine, or it refuses us
    │   └── ImageError        4   the image is not there and cannot be had
    ├── BoxError              4   the box cannot be made or has broken
    │   ├── DiskFull          4   no room is left in the box; somebody may free some
    │   ├── ChannelLost       4   the connection to the agent has ended; the outcome of what ran is unknown
    │   ├── ServiceError      4   a service that the tests need is not ready
    │   └── BoxGone           4   the container vanished or stopped under our hands
    ├── RunnerError           4   the tests could not be started (no pytest in the box, no Python)
    └── ControlError          4   no watcher to speak with, or it does not answer

A red test is data, never an exception. Anything that is not a WatchtestError is a bug: exit code 3 and a crash file.
"""

from __future__ import annotations

BY_ITSELF = "it is tried again by itself"
"""The hint of what a watcher heals; a command that was typed once says so in its own words."""


class WatchtestError(Exception):
    """What went wrong, where, and (`hint`) what to do about it. `code` is a stable word for machines."""

    exit_code = 4
    code = "error"
    is_transient = False
    """It may be over by itself: worth another try."""
    retries_forever = False
    """Somebody else's to mend, and cheap to ask for: tried again without an end."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(WatchtestError):
    exit_code = 2
    code = "usage"


class ConfigError(WatchtestError):
    exit_code = 2
    code = "config"


class WorkspaceError(WatchtestError):
    exit_code = 2
    code = "workspace"


class SourceMoved(WorkspaceError):
    code = "moved"
    is_transient = True


class SourceShrank(WorkspaceError):
    code = "shrank"


class EngineError(WatchtestError):
    code = "engine"
    is_transient = True
    retries_forever = True


class ImageError(EngineError):
    code = "image"
    is_transient = False
    retries_forever = False


class BoxError(WatchtestError):
    code = "box"


class DiskFull(BoxError):
    code = "disk_full"
    is_transient = True


class ChannelLost(BoxError):
    code = "channel"
    is_transient = True


class ServiceError(BoxError):
    code = "service"


class BoxGone(BoxError):
    code = "gone"
    is_transient = True


class RunnerError(WatchtestError):
    code = "runner"


class ControlError(WatchtestError):
    code = "control"
