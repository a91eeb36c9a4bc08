"""Exit in good order on SIGTERM and SIGHUP, so that a command in the box does not outlive us."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

EXIT_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def exit_on_signals(is_deferred: bool = False) -> Iterator[Callable[[], None]]:
    """Turn a closed terminal or a `kill` into SystemExit, so that `finally` blocks can end what they started.

    With `is_deferred`, signals wait until the caller calls the yielded function: once its process can be ended.
    """
    received: list[int] = []
    is_ready = not is_deferred

    def on_signal(number: int, _frame: FrameType | None) -> None:
        received.append(number)
        if is_ready:
            sys.exit(128 + number)

    def accept_signals() -> None:
        nonlocal is_ready
        is_ready = True
        if received:
            sys.exit(128 + received[0])

    before = {number: signal.signal(number, on_signal) for number in EXIT_SIGNALS}
    try:
        yield accept_signals
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
