"""The agent's side of a run that was begun ahead and waits: what it is for, whether it is there, letting it go."""

from __future__ import annotations

import os
import select
import socket
from typing import Any, Dict, List, Tuple

from ..jobs import job_process as launch
from ..jobs import supervisor as supervise
from ..messages import hear, say
from .prestart import DEEP

ANSWER_LIMIT_S = 2.0


class Parked:
    """`plugin_order`: what it was begun with. `for_what`: all that makes another one necessary."""

    def __init__(
        self,
        channel: socket.socket,
        own: launch.Ends,
        point: str,
        plugin_order: Dict[str, Any],
        for_what: Tuple[Any, ...],
    ) -> None:
        self.own = own
        channel.settimeout(ANSWER_LIMIT_S)
        self._channel = channel
        self.for_what = for_what
        self._point = point
        self._fixed = fixed(plugin_order, point)
        self._is_there = False
        self.was_noticeable = False

    def goes(self, plugin_order: Dict[str, Any]) -> bool:
        """Let it go with this order. If it does not, it is gone for good."""
        try:
            if fixed(plugin_order, self._point) == self._fixed and not self.hear_of_its_end() and self._is_there:
                say(self._channel, {"order": plugin_order})
                words, _ = hear(self._channel)
                if words.get("going") is True:
                    os.write(self.own.control, supervise.GO)
                    self._channel.close()
                    return True
        except (EOFError, OSError, ValueError):
            pass
        self.discard()
        return False

    def hear_of_its_end(self) -> bool:
        """Take note of what it said so far, without waiting; whether it has ended."""
        while not self._is_there and select.select([self._channel], [], [], 0)[0]:
            try:
                words, _ = hear(self._channel)
            except (EOFError, OSError, ValueError):
                return True
            self._is_there = "parked" in words
            self.was_noticeable = "noticeable" in words
        return False

    def discard(self) -> None:
        """Its supervisor sees the pipe close, and ends all of it."""
        self._channel.close()
        self.own.close()


def fixed(plugin_order: Dict[str, Any], point: str) -> List[Any]:
    """What cannot change any more once a session has begun; nor, once it collects, which files it does that from."""
    parts = [plugin_order["args"], plugin_order["record"]]
    if point == DEEP:
        tests = plugin_order["tests"]
        files = None if tests is None else sorted({test.partition("::")[0] for test in tests})
        parts += [files, plugin_order["collects_all"]]
    return parts
