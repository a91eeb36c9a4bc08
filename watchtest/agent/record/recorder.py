"""Observes what the code of the project does, and reports it to `scopes`.

That is: functions entered, modules executed and looked up, files read, folders listed, paths checked for existence,
programs started.

Each function is reported once per scope and costs nothing after that, except with `ProfileListener`. The recorder does
not change what it observes; an error of its own makes the scope opaque.
"""

from __future__ import annotations

import functools
import genericpath
import importlib
import importlib.util
import linecache
import os
import pathlib
import posixpath
import sys
import weakref
from importlib.util import resolve_name
from os import curdir, getpid, readlink, sep
from os.path import basename, isabs
from sys import _getframe
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..code.caching import NO_HINT, Hint, cache_location, hints
from ..code.code_objects import UNOBSERVABLE, blind_spot, units
from ..code.instructions import IN_CLOSURE, IN_INSTANCE, IN_SHARED, NOT_CACHED
from ..module_origins import project_modules_row
from .callers import IMPORTLIB, calls_observed_method, is_ignored, is_pass_through, is_pytest, is_standard, library
from .child_processes import PROCESS_STARTS, SPAWN_FUNCTIONS, ForkedChildren, note_program
from .function_events import MonitoringListener, ProfileListener
from .opened_files import LOST, OpenedFiles
from .scopes import IMPORT, LIBRARY, MEMO, SESSION, Scopes, Send, identity

WRITES_ONLY = os.O_WRONLY
MAX_FRAMES = 100
"""How many callers of a function that reads a file are examined."""
PROBE_FUNCTIONS: Tuple[Tuple[Any, str], ...] = (
    *((genericpath, name) for name in ("exists", "isfile", "isdir", "getsize", "getmtime", "getatime", "getctime")),
    *((posixpath, name) for name in ("lexists", "islink", "ismount")),
    *((pathlib.Path, name) for name in ("stat", "lstat")),
    *(
        (pathlib.Path, name)
        for name in ("exists", "is_file", "is_dir", "is_symlink")
        if not calls_observed_method(pathlib.Path, name)
    ),
)
"""Functions that check whether a path exists, or its attributes; it is their first argument."""
PACKAGE_SETUPS = frozenset({"setUpModule", "setup_module", "tearDownModule", "teardown_module"})
"""Functions of a package that pytest calls once for all its tests, during the first or the last of them."""
NATIVE_READS = ("sqlite3.connect", "ctypes.dlopen")

Handler = Callable[[FrameType], Any]
"""Called when its code is entered; returns True if it need not be called again in this scope."""


def start_recording(root: str, send: Send) -> Optional[Recorder]:
    """Return a recorder that observes this process; None if another tool occupies what it needs to listen."""
    recorder = Recorder(root, send)
    return recorder if recorder.start() else None


class Recorder:
    """Observes this process until `stop`. The test runner's plugin begins and ends the `scopes`."""

    def __init__(self, root: str, send: Send) -> None:
        self._handlers_by_code: Dict[int, Handler] = {}
        self.end_handlers: Dict[int, Callable[[Any], Any]] = {}
        self._makers: Dict[int, CodeType] = {}
        """By method: the __init__ of its class."""
        self._methods: Dict[int, List[CodeType]] = {}
        """By __init__: the methods of its class, until it is entered."""
        self._unexamined: Dict[int, CodeType] = {}
        """Functions that have not been entered yet."""
        self._enclosing: Dict[int, CodeType] = {}
        """By nested function: the one that contains it."""
        self._hints: Dict[int, Hint] = {}
        self.needs_attention: Set[int] = set()
        """All code in `_unexamined` and `_handlers_by_code`: it is not enough to know that it was entered."""
        self._shared_objects: Dict[int, List[Callable[[], Any]]] = {}
        """By observed __init__: weak references to the objects that it has initialized outside of tests."""
        self._project_code: Set[int] = set()
        """Functions of the project."""
        self._listener = MonitoringListener(self) if hasattr(sys, "monitoring") else ProfileListener(self)
        self.scopes = Scopes(root, send, self._listener.renew)
        self._send = send
        self._pid = getpid()
        self._children = ForkedChildren(self.scopes, self._listener.listen_in_child)
        self._opened = OpenedFiles(os.path.realpath(root))
        self._events: Dict[str, Callable[[Tuple[Any, ...]], None]] = {}

    def start(self) -> bool:
        if not self._listener.start():
            return False
        for owner, name in PROBE_FUNCTIONS:
            self._observe(getattr(owner, name, None), self._on_path("probes"))
        self._observe(linecache.getlines, self._on_path("files"))
        for module in list(sys.modules.values()):
            self._observe_module(module)
        resolve = getattr(sys.modules.get("_pytest.monkeypatch"), "resolve", None)
        self._observe(resolve, lambda frame: self._note_lookup(frame.f_locals.get("name")))
        self._observe(functools.cached_property.__init__, self._on_cache("func", IN_INSTANCE))
        self._observe(importlib.import_module, self._on_name)
        self._observe(importlib.util.find_spec, self._on_name)
        self._observe(functools.lru_cache, self._on_cache("maxsize", IN_SHARED))
        for code in functools.lru_cache.__code__.co_consts:
            if isinstance(code, CodeType) and code.co_name == "decorating_function":
                self._observe_code(code, self._on_cache("user_function", IN_SHARED))
        self._children.start()
        self.scopes.collect = self._collect
        self._listen_to_audit_events()
        return True

    def _observe_module(self, module: Any) -> None:
        """Observe a module that was imported before."""
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            return
        if file.endswith(".so") and library(file):
            self._opened.start()
        name = SPAWN_FUNCTIONS.get(_tail(file), "")
        for owner in (module, *vars(module).values()) if name else ():
            self._observe(getattr(owner, "__dict__", {}).get(name), self._on_spawn)

    def stop(self) -> None:
        """Stop observing, and report what has not been reported yet."""
        self._events.clear()
        self._opened.stop()
        self._listener.stop()
        self.scopes.report()
        self._send(project_modules_row(self.scopes.own))

    def _collect(self) -> None:
        """Add what children and native libraries have touched since the last time."""
        self._children.collect()
        for path in self._opened.collect():
            if path == LOST:
                self.scopes.touch("opaque", "opens more files than can be followed")
            elif self.scopes.top.key != SESSION:  # outside of other scopes, plugins read files for their own purposes
                self.scopes.touch("files", path)

    def end_test(self, key: str) -> None:
        """End and report the scope of a test. It is opaque if the test has installed a trace function of its own."""
        if not self._listener.is_on:
            self.scopes.touch("opaque", "replaces the listener of the recorder", key)
        self.scopes.end(key)
        if getpid() == self._pid:
            self.scopes.report(key)

    # -- functions ---------------------------------------------------------------------------------

    def _observe(self, function: Any, handler: Handler) -> None:
        code = getattr(function, "__code__", None)
        if code is not None:
            self._observe_code(code, handler)

    def _observe_code(self, code: CodeType, handler: Handler, at_end: Optional[Callable[[Any], Any]] = None) -> None:
        self._handlers_by_code[identity(code)] = handler
        self.needs_attention.add(identity(code))
        if at_end is not None:
            self.end_handlers[identity(code)] = at_end
        self.scopes.known_code[identity(code)] = code
        self._listener.listen_to(code, is_special=True, has_end=identity(code) in self.end_handlers)

    def _adopt(self, module: CodeType) -> None:
        """Observe a file of the project that is about to be executed."""
        path = self.scopes.own(module.co_filename)
        if not path:
            return
        self.scopes.touch("imports", path)
        if self.scopes.top.is_test and self._is_library_import():
            self.scopes.touch("imports", path, SESSION)
        found = list(units(module))
        makers = {name.rpartition(".")[0]: code for code, name, _ in found if name.endswith(".__init__")}
        for code, name, is_shell in found:
            self.scopes.known_code[identity(code)] = code
            if is_shell:
                self._hints.update(hints(code))
                self._note_blind_spot(code, module)
                continue
            self._enclosing.update((identity(one), code) for one in code.co_consts if isinstance(one, CodeType))
            maker = makers.get(name.rpartition(".")[0])
            if maker is not None:
                self._makers[identity(code)] = maker
                self._methods.setdefault(identity(maker), []).append(code)
            self._project_code.add(identity(code))
            if identity(code) not in self._handlers_by_code:
                self._unexamined[identity(code)] = code
                self.needs_attention.add(identity(code))
                self._listener.listen_to(code)
        if module.co_name == "<module>":
            self._observe_code(
                module, self._on_import_of(IMPORT + path), lambda _: self.scopes.end(IMPORT + path) is None
            )

    def examine(self, code: CodeType) -> None:
        """Analyse a function when it is first entered, because most never are; for an __init__, the whole class."""
        if self._unexamined.pop(identity(code), None) is None:
            return
        if identity(code) not in self._handlers_by_code:
            self.needs_attention.discard(identity(code))
        self._note_blind_spot(code, code)
        enclosing = self._enclosing.get(identity(code))
        known_hints = self._hints if enclosing is None else hints(enclosing)
        where = cache_location(code, known_hints.get(identity(code), NO_HINT))
        if code.co_name in PACKAGE_SETUPS and basename(code.co_filename) == "__init__.py":
            where = IN_SHARED
        if where == IN_CLOSURE:  # other tests cannot find a closure that a test has created
            where = IN_SHARED if enclosing is not None and identity(enclosing) in self.scopes.shared else NOT_CACHED
        if where != NOT_CACHED and identity(code) not in self._handlers_by_code:
            self._observe_cache(code, where)
        for method in self._methods.pop(identity(code), ()):
            self.examine(method)

    def _note_blind_spot(self, code: CodeType, owner: CodeType) -> None:
        blind = blind_spot(code)
        if blind and not self._listener.listen_to_calls(code):
            self.scopes.blind[identity(owner)] = blind

    def _on_import_of(self, key: str) -> Handler:
        def on_start(frame: FrameType) -> None:
            self.scopes.begin(key)
            self.scopes.enter(identity(frame.f_code))

        return on_start

    def _observe_cache(self, code: CodeType, where: str) -> None:
        """Give this function a scope of its own: those who use what it has cached depend on it, too."""
        path = self.scopes.own(code.co_filename)
        if not path:
            return
        key = "{}{}:{}:{}".format(MEMO, code.co_firstlineno, code.co_name, path)
        maker = self._makers.get(identity(code)) if where == IN_INSTANCE else None
        if maker is not None:
            self._observe_births(maker)
        scopes, code_id, self_name = self.scopes, identity(code), code.co_varnames[:1] if where == IN_INSTANCE else ()

        def on_start(frame: FrameType) -> bool:
            if maker is not None and not self._has_shared_object(maker):
                scopes.enter(code_id)
                return True
            if self_name and self._is_of_test(frame.f_locals.get(self_name[0])):
                scopes.ignore_call(key)
            else:
                scopes.begin_caching(key)
            scopes.enter(code_id)
            return False

        self._observe_code(code, on_start, lambda _: scopes.end_caching(key))

    def _is_of_test(self, instance: Any) -> bool:
        """Return whether the current test has created this object, so that other tests cannot find its cache."""
        if identity(instance) in self.scopes.born:
            return True
        maker = getattr(type(instance).__init__, "__code__", None)  # may be inherited
        return (
            self.scopes.top.is_test
            and maker is not None
            and identity(maker) in self._project_code
            and identity(maker) not in self.scopes.shared
        )

    def _has_shared_object(self, maker: CodeType) -> bool:
        """Return whether an object lives that was initialized by this __init__ outside of tests."""
        alive = self._shared_objects[identity(maker)]
        alive[:] = [reference for reference in alive if reference() is not None]
        return bool(alive)

    def _observe_births(self, maker: CodeType) -> None:
        if identity(maker) in self._shared_objects:
            return
        scopes, handler, self_name = self.scopes, self._handlers_by_code.get(identity(maker)), maker.co_varnames[0]
        shared_objects = self._shared_objects[identity(maker)] = []

        def on_start(frame: FrameType) -> None:
            instance = frame.f_locals.get(self_name)
            if scopes.top.is_test:  # not in a wider fixture, nor in a caching function
                scopes.born.add(identity(instance))
            else:
                scopes.born.discard(identity(instance))  # an object of the test may have had this identity before
                shared_objects.append(_reference(instance))
            if handler is None:
                scopes.enter(identity(maker))
            else:
                handler(frame)

        self._observe_code(maker, on_start)

    def _on_cache(self, argument: str, where: str) -> Handler:
        def on_start(frame: FrameType) -> None:
            code = getattr(frame.f_locals.get(argument), "__code__", None)
            if code is not None:
                self._observe_cache(code, where)

        return on_start

    def _on_path(self, kind: str) -> Handler:
        def on_start(frame: FrameType) -> None:
            caller = None if is_pytest(frame.f_back, self.scopes.own) else self._caller(frame.f_back)
            if caller is None:  # the usual case: pytest checks many paths
                return
            self.scopes.touch_path(kind, frame.f_locals.get(frame.f_code.co_varnames[0]), self._owner(caller))

        return on_start

    def _on_name(self, frame: FrameType) -> None:
        """A module is requested by name, whether or not it is already imported."""
        name, package = frame.f_locals.get("name"), frame.f_locals.get("package")
        if isinstance(name, str):
            try:
                self.scopes.touch("missing", resolve_name(name, package))
            except (ImportError, ValueError):
                pass  # the import itself will fail

    def _note_lookup(self, name: Any) -> None:
        """Note the lookup of a dotted name: a module, or something in one."""
        parts = name.split(".") if isinstance(name, str) else []
        for count in range(1, len(parts) + 1):
            self.scopes.touch("missing", ".".join(parts[:count]))

    def on_call(self, function: Any, argument: Any) -> None:
        """Handle a call of code that may call functions which we cannot observe otherwise."""
        self._safely(self._on_called, (function, argument))

    def _on_called(self, call: Tuple[Any, Any]) -> None:
        function, argument = call
        name = _plain_name(function)
        if name == "__import__":
            self._note_lookup(argument)
        elif name in UNOBSERVABLE:
            self.scopes.touch_path("probes", argument)
        elif _plain_name(argument) in UNOBSERVABLE:  # map(os.stat, paths)
            self.scopes.touch("opaque", "passes on os." + argument.__name__)

    def _on_spawn(self, frame: FrameType) -> None:
        self.scopes.touch("opaque", "spawns a process")

    def on_start(self, code_id: int, frame: FrameType) -> bool:
        """Handle a function that is entered; return whether the next time in this scope matters, too."""
        unexamined = self._unexamined.get(code_id)
        if unexamined is not None:
            self._safely(self.examine, unexamined)
        handler = self._handlers_by_code.get(code_id)
        if handler is None:
            self.scopes.enter(code_id)
            return False
        return not self._safely(handler, frame)

    def on_end(self, code_id: int) -> bool:
        """Handle a function that is left; return whether the next time in this scope matters, too."""
        at_end = self.end_handlers.get(code_id)
        return at_end is None or not self._safely(at_end, None)

    def _safely(self, action: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return action(argument)
        except Exception as error:  # noqa: BLE001  no error of ours may reach the tests
            self.scopes.touch("opaque", "recording failed: {!r}".format(error)[:200])
            return None

    # -- audit events ------------------------------------------------------------------------------

    def _listen_to_audit_events(self) -> None:
        events, safely = self._events, self._safely
        events.update(self._event_handlers())

        # An audit hook cannot be removed and gets every event, so it does as little as possible.
        def on_event(event: str, arguments: Tuple[Any, ...]) -> None:
            handler = events.get(event)
            if handler is not None:
                safely(handler, arguments)

        sys.addaudithook(on_event)

    def _event_handlers(self) -> Dict[str, Callable[[Tuple[Any, ...]], None]]:
        return {
            "exec": self._on_exec,
            "import": self._on_import,
            "open": self._on_open,
            "os.listdir": self._on_list,
            "os.scandir": self._on_list,
            # The module of an unpickled object may already be imported.
            "pickle.find_class": lambda arguments: self._note_lookup(arguments[0]),
            # Code that is created from other code cannot be observed when it runs.
            "code.__new__": lambda arguments: self.scopes.touch_path("files", arguments[1]),
            **dict.fromkeys(NATIVE_READS, self._on_native_read),
            **{event: functools.partial(note_program, self.scopes, event) for event in PROCESS_STARTS},
        }

    def _on_exec(self, arguments: Tuple[Any, ...]) -> None:
        code = arguments[0]
        if isinstance(code, CodeType) and code.co_filename[:1] != "<":
            self._adopt(code)
            name = SPAWN_FUNCTIONS.get(_tail(code.co_filename), "")
            for inner in units(code) if name else ():
                if inner.code.co_name == name:
                    self._observe_code(inner.code, self._on_spawn)

    def _on_import(self, arguments: Tuple[Any, ...]) -> None:
        self.scopes.touch("missing", str(arguments[0]))
        if arguments[1] is not None:  # a native module
            self._on_native_read(arguments[1:])
            if library(arguments[1]):
                self._opened.start()

    def _on_open(self, arguments: Tuple[Any, ...]) -> None:
        path, mode, flags = arguments
        if mode is None and not isabs(path):
            self._on_open_somewhere(_getframe(3))
        own = self.scopes.own(path)
        if not own:
            return
        if mode is not None or isabs(path):
            self._opened.by_python.add(own)
        if isinstance(flags, int) and flags & WRITES_ONLY:
            return
        caller = self._caller(_getframe(3), own.endswith((".py", ".pyc")))
        if caller is not None:
            self.scopes.touch_path("files", path)
            self._suspect_library_cache(caller, own)

    def _on_open_somewhere(self, frame: FrameType) -> None:
        """os.open does not tell which folder a relative path refers to (dir_fd), but inotify does."""
        if frame.f_globals.get("__name__") == "shutil":
            return  # it removes a tree, or copies one that it has already listed
        if self._caller(frame) is not None and not self._opened.start():
            self.scopes.touch("opaque", "opens a file from a folder")

    def _on_native_read(self, arguments: Tuple[Any, ...]) -> None:
        self.scopes.touch_path("files", arguments[0])

    def _on_list(self, arguments: Tuple[Any, ...]) -> None:
        path = curdir if arguments[0] is None else arguments[0]
        if isinstance(path, int):
            path = readlink("/proc/self/fd/{}".format(path))
        caller = self._caller(_getframe(3)) if self.scopes.own(path) else None
        if caller is not None:
            self.scopes.touch_path("folders", path, self._owner(caller))

    # -- callers -----------------------------------------------------------------------------------

    def _caller(self, frame: Optional[FrameType], is_code: bool = True) -> Optional[FrameType]:
        """Return the frame that acts: of the project, or of a library; None if it does not matter.

        `is_code`: the file is a module, whose import is observed anyway.
        """
        while frame is not None and is_pass_through(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return None
        file = frame.f_code.co_filename
        if file.startswith(IMPORTLIB):
            return None if is_code else frame
        return frame if not is_ignored(file) or self.scopes.own(file) else None

    def _owner(self, caller: FrameType) -> str:
        """Return the scope to blame outside of all others: the calling module, if it is the project's; else ""."""
        own = self.scopes.own(caller.f_code.co_filename) if self.scopes.top.key == SESSION else ""
        return IMPORT + own if own else ""

    def _is_library_import(self) -> bool:
        """Return whether a library imports a module of the project during a test: it will not do so again."""
        frame: Optional[FrameType] = _getframe(5)
        while frame is not None and is_standard(frame.f_code.co_filename):
            frame = frame.f_back
        file = frame.f_code.co_filename if frame is not None else ""
        return bool(library(file)) and not self.scopes.own(file) and not is_ignored(file)

    def _suspect_library_cache(self, caller: FrameType, path: str) -> None:
        """A library reads a file and may cache it: all callers of the functions on the stack may get the cached one."""
        frame: Optional[FrameType] = caller
        while frame is not None and is_standard(frame.f_code.co_filename):
            frame = frame.f_back
        name = library(frame.f_code.co_filename) if frame is not None else ""
        if not name or self.scopes.top.key == SESSION:
            return
        key = LIBRARY + name
        self.scopes.touch("files", path, key)
        self.scopes.touch("uses", key)
        for _ in range(MAX_FRAMES):
            if frame is None or self.scopes.own(frame.f_code.co_filename) or is_ignored(frame.f_code.co_filename):
                return
            if library(frame.f_code.co_filename) and identity(frame.f_code) not in self._handlers_by_code:
                self._observe_code(frame.f_code, self._on_use_of(key))
            frame = frame.f_back

    def _on_use_of(self, key: str) -> Handler:
        def on_start(frame: FrameType) -> bool:
            self.scopes.touch("uses", key)
            return True

        return on_start


def _reference(instance: Any) -> Callable[[], Any]:
    """Return a weak reference; for an object that cannot have one, a reference that always seems alive."""
    try:
        return weakref.ref(instance)
    except TypeError:
        return lambda: True


def _plain_name(function: Any) -> str:
    """Return the name of a plain function; other objects are not touched, because their attributes may run code."""
    return function.__name__ if type(function) in (BuiltinFunctionType, FunctionType) else ""


def _tail(file: str) -> str:
    """Return the name of the file with that of its folder."""
    return sep.join(file.rsplit(sep, 2)[-2:])
