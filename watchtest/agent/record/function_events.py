"""Listens to functions that are entered and left: by sys.monitoring from Python 3.12 on, else by sys.setprofile.

The listeners know which code is observed; the recorder knows what it means. Code objects are passed to it by identity.
"""

from __future__ import annotations

import sys
import threading
from sys import _getframe
from types import CodeType, FrameType
from typing import TYPE_CHECKING, Any, Callable, Dict, Set

from .scopes import identity

if TYPE_CHECKING:
    from .recorder import Recorder


class MonitoringListener:
    """sys.monitoring: events of single code objects, disabled after the first one until the scope changes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tool = -1
        self._with_calls: Set[int] = set()
        self._events: Dict[int, int] = {}
        """By code: the events that are enabled for it."""
        self._has_disabled = False
        """An event was disabled since the last restart. A restart is expensive: all running code pays for it."""
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        self._monitoring = monitoring
        self._restart = monitoring.restart_events

    def start(self) -> bool:
        monitoring = self._monitoring
        for tool in (4, 3):  # the ids without a predefined use
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "watchtest")
                self._tool = tool
                self._register(self._on_start(self._recorder.scopes.entered.append))
                return True
        return False

    def _register(self, on_start: Callable[[CodeType, int], Any]) -> None:
        events = self._monitoring.events
        self._monitoring.register_callback(self._tool, events.PY_START, on_start)
        self._monitoring.register_callback(self._tool, events.PY_RESUME, on_start)
        self._monitoring.register_callback(self._tool, events.PY_RETURN, self._on_return)
        self._monitoring.register_callback(self._tool, events.CALL, self._on_call)

    def stop(self) -> None:
        if self.is_on:
            self._monitoring.free_tool_id(self._tool)

    @property
    def is_on(self) -> bool:
        return bool(self._monitoring.get_tool(self._tool) == "watchtest")

    def listen_to(self, code: CodeType, is_special: bool = False, has_end: bool = False) -> None:
        names = self._monitoring.events
        events = names.PY_START | (names.PY_RETURN if has_end else 0 if is_special else names.PY_RESUME)
        events |= names.CALL if identity(code) in self._with_calls else 0
        self._events[identity(code)] = events
        self._monitoring.set_local_events(self._tool, code, events)

    def listen_to_calls(self, code: CodeType) -> bool:
        """Listen to the calls that this code makes, in addition to its other events; return whether it is possible."""
        self._with_calls.add(identity(code))
        events = self._events.get(identity(code), 0) | self._monitoring.events.CALL
        self._monitoring.set_local_events(self._tool, code, events)
        return True

    def renew(self) -> None:
        """Enable all events again, because another scope has begun."""
        if self._has_disabled:
            self._has_disabled = False
            self._restart()

    def _on_start(self, enter: Callable[[int], None]) -> Callable[[CodeType, int], Any]:
        needs_attention, disable, recorder = self._recorder.needs_attention, self._monitoring.DISABLE, self._recorder

        def on_start(code: CodeType, offset: int) -> Any:
            code_id = identity(code)
            if code_id not in needs_attention:
                enter(code_id)
            elif recorder.on_start(code_id, _getframe(1)):
                return None
            self._has_disabled = True  # at the end: a scope may end in another thread meanwhile
            return disable

        return on_start

    def _on_return(self, code: CodeType, offset: int, value: Any) -> Any:
        if self._recorder.on_end(identity(code)):
            return None
        self._has_disabled = True
        return self._monitoring.DISABLE

    def _on_call(self, code: CodeType, offset: int, function: Any, argument: Any) -> None:
        self._recorder.on_call(function, argument)

    def listen_in_child(self) -> None:
        self._register(self._on_start(self._recorder.scopes.enter))
        self._restart()


class ProfileListener:
    """sys.setprofile: gets an event for every call, and ignores most of them as fast as it can."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._observed: Set[int] = set()
        self._not_yet_entered: Set[int] = set()
        """The observed code that has not been entered in this scope."""
        self._profile: Any = None

    def start(self) -> bool:
        if sys.getprofile() is not None:
            return False
        self._profile = self._make()
        sys.setprofile(self._profile)
        threading.setprofile(self._profile)
        return True

    def stop(self) -> None:
        if self.is_on:
            sys.setprofile(None)
        threading.setprofile(None)

    @property
    def is_on(self) -> bool:
        return sys.getprofile() is self._profile

    def listen_to(self, code: CodeType, is_special: bool = False, has_end: bool = False) -> None:
        self._observed.add(identity(code))
        self._not_yet_entered.add(identity(code))

    def listen_to_calls(self, code: CodeType) -> bool:
        return False  # profile events do not contain the arguments of a call

    def renew(self) -> None:
        self._not_yet_entered.clear()
        self._not_yet_entered |= self._observed

    def _make(self) -> Any:
        not_yet_entered, end_handlers, recorder = self._not_yet_entered, self._recorder.end_handlers, self._recorder

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call":
                code_id = identity(frame.f_code)
                if code_id in not_yet_entered and not recorder.on_start(code_id, frame):
                    not_yet_entered.discard(code_id)
            elif event == "return" and identity(frame.f_code) in end_handlers:
                recorder.on_end(identity(frame.f_code))

        return profile

    def listen_in_child(self) -> None:
        self.renew()
        sys.setprofile(self._profile)
