"""What tells objects apart while they live. As id(), of which the interpreter makes an event each time: the recorder
listens to those, and would hear half a million times of itself in a suite of a thousand tests.
"""

from __future__ import annotations

from typing import Callable

identity: Callable[[object], int] = object.__hash__
