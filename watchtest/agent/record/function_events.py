"""The two ways to hear of functions that are entered and left: sys.monitoring from Python 3.12 on, else sys.setprofile.

They know which code is listened to; what it means is the recorder's.
"""

from __future__ import annotations

import sys
import threading
from sys import _getframe
from types import CodeType, FrameType
from typing import Any, Callable, Dict, Protocol, Set

from .scopes import Scopes, identity


class Recorder(Protocol):
    """Who is told, by the identity of the code."""

    scopes: Scopes
    attended: Set[int]
    """Code of which more is wanted than that it was entered."""
    ends: Dict[int, Callable[[Any], Any]]
    """By code: what is to be done at its end."""

    def on_start(self, one: int, frame: FrameType) -> bool: ...

    def on_end(self, one: int) -> bool: ...

    def on_call(self, function: Any, argument: Any) -> None: ...


class Monitoring:
    """sys.monitoring: events of single code objects, switched off after the first until the scope changes."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._tool = -1
        self._calling: Set[int] = set()
        self._wanted: Dict[int, int] = {}
        """By code: the events that it is listened to for."""
        self._is_spent = False
        """Something was heard of that is not heard of again before a restart, which all code that runs has to pay."""
        monitoring: Any = sys.monitoring  # type: ignore[attr-defined, unused-ignore]
        self._monitoring = monitoring
        self._restart = monitoring.restart_events

    def start(self) -> bool:
        monitoring = self._monitoring
        for tool in (4, 3):  # those that nobody is meant to have
            if monitoring.get_tool(tool) is None:
                monitoring.use_tool_id(tool, "watchtest")
                self._tool = tool
                break
        else:
            return False
        self._register(self._on_start(self._recorder.scopes.entered.append))
        return True

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
        events = self._monitoring.events
        wanted = events.PY_START | (events.PY_RETURN if has_end else 0 if is_special else events.PY_RESUME)
        wanted |= events.CALL if identity(code) in self._calling else 0
        self._wanted[identity(code)] = wanted
        self._monitoring.set_local_events(self._tool, code, wanted)

    def listen_to_calls(self, code: CodeType) -> bool:
        """As well: it may be one that is listened to already."""
        self._calling.add(identity(code))
        wanted = self._wanted.get(identity(code), 0) | self._monitoring.events.CALL
        self._monitoring.set_local_events(self._tool, code, wanted)
        return True

    def renew(self) -> None:
        if self._is_spent:
            self._is_spent = False
            self._restart()

    def _on_start(self, enter: Callable[[int], None]) -> Callable[[CodeType, int], Any]:
        attended, disable, recorder = self._recorder.attended, self._monitoring.DISABLE, self._recorder

        def on_start(code: CodeType, offset: int) -> Any:
            one = identity(code)
            if one not in attended:
                enter(one)
                self._is_spent = True  # as the last thing: a scope may end in another thread in between
                return disable
            if recorder.on_start(one, _getframe(1)):
                return None
            self._is_spent = True
            return disable

        return on_start

    def _on_return(self, code: CodeType, offset: int, value: Any) -> Any:
        if self._recorder.on_end(identity(code)):
            return None
        self._is_spent = True
        return self._monitoring.DISABLE

    def _on_call(self, code: CodeType, offset: int, function: Any, argument: Any) -> None:
        self._recorder.on_call(function, argument)

    def go_on_in_child(self) -> None:
        self._register(self._on_start(self._recorder.scopes.enter))
        self._restart()


class Profiling:
    """sys.setprofile: hears of every call, and looks away as fast as it can."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._wanted: Set[int] = set()
        self._waiting: Set[int] = set()
        """Those of which nothing was heard yet in this scope."""
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
        self._wanted.add(identity(code))
        self._waiting.add(identity(code))

    def listen_to_calls(self, code: CodeType) -> bool:
        return False  # it hears of them, but not what they are called with

    def renew(self) -> None:
        self._waiting.clear()
        self._waiting |= self._wanted

    def _make(self) -> Any:
        waiting, ends, recorder = self._waiting, self._recorder.ends, self._recorder

        def profile(frame: FrameType, event: str, argument: Any) -> None:
            if event == "call":
                one = identity(frame.f_code)
                if one in waiting and not recorder.on_start(one, frame):
                    waiting.discard(one)
            elif event == "return" and identity(frame.f_code) in ends:
                recorder.on_end(identity(frame.f_code))

        return profile

    def go_on_in_child(self) -> None:
        self.renew()
        sys.setprofile(self._profile)
