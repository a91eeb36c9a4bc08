"""Being ended from outside while a command of the user runs in the box: in good order, so that it does not run on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

ENDS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def leaving_in_order() -> Iterator[None]:
    """A terminal that closes, or a `kill`, becomes a SystemExit here: whoever has something to end, ends it."""
    before = {number: signal.signal(number, _leave) for number in ENDS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _frame: FrameType | None) -> NoReturn:
    sys.exit(128 + number)
