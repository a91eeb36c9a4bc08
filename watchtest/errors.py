"""Every expected failure of watchtest, in one tree.

    WatchtestError            printed as one line with a hint; `exit_code` is what the shell receives
    ├── UsageError            2   wrong flags or arguments
    ├── ConfigError           2   a config file, key or value
    ├── WorkspaceError        2   the folder is missing, unreadable or already watched
    │   ├── SourceMoved       2   a file changed after the snapshot was taken; a new snapshot helps
    │   └── SourceShrank      2   the sync would delete more than half of the box; the user has to confirm
    ├── EngineError           4   no container engine is running, or it refuses the connection
    │   ├── NoEngine          4   none answers at the usual addresses, and the user has named no other
    │   └── ImageError        4   the image is missing and cannot be pulled or built
    ├── BoxError              4   the box cannot be created, or is broken
    │   ├── DiskFull          4   the disk of the box is full
    │   ├── BoxDamaged        4   tests have changed or removed what the box itself depends on
    │   ├── ChannelLost       4   the connection to the agent was lost; the outcome of its jobs is unknown
    │   │   └── RunOverdue    4   a run did not end, although agent and supervisor should have stopped it
    │   ├── ServiceError      4   a service that the tests need is not ready
    │   └── BoxGone           4   the container disappeared or stopped
    ├── RunnerError           4   the tests could not be started (no pytest in the box, no Python)
    └── ControlError          4   no watcher is running, or it does not answer

A red test is data, never an exception. Any other exception is a bug: exit code 3 and a crash file.
"""

from __future__ import annotations

from watchtest import exit_codes

BY_ITSELF = "it is tried again automatically"
"""The hint for problems that a watcher retries; other commands replace it."""


class WatchtestError(Exception):
    """An expected failure: a message, a hint what to do, and a stable `code` for programs."""

    exit_code = exit_codes.BROKEN
    code = "error"
    is_transient = False
    """The problem may disappear by itself, so another attempt is worthwhile."""
    retries_forever = False
    """Retry without a limit: the cause lies outside of watchtest, and an attempt is cheap."""

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  {self.hint}" if self.hint else self.message


class UsageError(WatchtestError):
    exit_code = exit_codes.USAGE
    code = "usage"


class ConfigError(WatchtestError):
    exit_code = exit_codes.USAGE
    code = "config"


class WorkspaceError(WatchtestError):
    exit_code = exit_codes.USAGE
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


class NoEngine(EngineError):
    pass


class ImageError(EngineError):
    code = "image"
    is_transient = False
    retries_forever = False


class BoxError(WatchtestError):
    code = "box"


class DiskFull(BoxError):
    code = "disk_full"
    is_transient = True


class BoxDamaged(BoxError):
    code = "damaged"
    is_transient = True


class ChannelLost(BoxError):
    code = "channel"
    is_transient = True


class RunOverdue(ChannelLost):
    pass


class ServiceError(BoxError):
    code = "service"


class BoxGone(BoxError):
    code = "gone"
    is_transient = True


class RunnerError(WatchtestError):
    code = "runner"


class ControlError(WatchtestError):
    code = "control"
