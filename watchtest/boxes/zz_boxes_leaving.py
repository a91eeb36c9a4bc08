"""Being ended from outside while a command of the user runs in the box: in good order, so that it does not run on."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

ENDS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


@contextmanager
def leaving_in_order(is_held: bool = False) -> Iterator[Callable[[], None]]:
    """A terminal that closes, or a `kill`, becomes a SystemExit here: whoever has something to end, ends it.

    With `is_held` only from when the function that it gives is called: what is being started can be ended by then.
    """
    came: list[int] = []
    is_open = not is_held

    def leave(number: int, _frame: FrameType | None) -> None:
        came.append(number)
        if is_open:
            sys.exit(128 + number)

    def let_go() -> None:
        nonlocal is_open
        is_open = True
        if came:
            sys.exit(128 + came[0])

    before = {number: signal.signal(number, leave) for number in ENDS}
    try:
        yield let_go
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
