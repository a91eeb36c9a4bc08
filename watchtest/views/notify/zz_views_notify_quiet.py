"""Hours of the day in which nobody is told. Pure."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class QuietHours:
    """From one minute of the local day to another, which may lie on the next day. Both the same: never."""

    start: int = 0
    end: int = 0

    @classmethod
    def read(cls, text: str) -> Self:
        """`22:00-07:00`, as the config has checked it; nothing is never."""
        if not text:
            return cls()
        start, _, end = text.partition("-")
        return cls(_minute(start), _minute(end))

    def holds(self, local: time.struct_time) -> bool:
        minute = local.tm_hour * 60 + local.tm_min
        if self.start <= self.end:
            return self.start <= minute < self.end
        return minute >= self.start or minute < self.end


def _minute(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * 60 + int(minute)
