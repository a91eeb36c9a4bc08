"""How long a failed service waits before it is restarted, and when its failures are forgotten.

The host sends these values with the definition of a service.
"""

from __future__ import annotations

from typing import NamedTuple


class RestartBackoff(NamedTuple):
    backoff_s: float = 0.5
    longest_backoff_s: float = 30.0
    settled_s: float = 60.0
    """A service that was ready for this long gets all its restarts back."""
    slack_s: float = 15.0
    """How much longer a run waits than the limits that the service manager enforces."""

    def wait_s(self, restarts: int) -> float:
        return min(self.backoff_s * 2.0 ** min(restarts, 30), self.longest_backoff_s)
