"""Listens to what the code of the project does, and tells `scopes` of it: functions entered, modules executed and
looked for, files read, folders listed, paths asked for, programs started.

Each function is heard of once a scope, and costs nothing after that (but for `listeners.Profiling`, which is slower).
Changes nothing about what it listens to; what goes wrong in here makes a scope opaque.
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
from os import PathLike, curdir, fsdecode, readlink, sep
from os.path import basename, isabs
from sys import _getframe
from types import BuiltinFunctionType, CodeType, FrameType, FunctionType
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from ..code.caching import keeps
from ..code.code_objects import UNHEARD, blind_spot, units
from ..code.decorators import NO_HINT, Hint, hints
from ..code.instructions import IN_ALL, IN_CLOSURE, IN_ITSELF, NOWHERE
from .callers import IMPORTING, is_heard_through_another, is_ignored, is_of_pytest, is_passing, is_standard, library
from .forked_children import Forks
from .function_events import Monitoring, Profiling
from .opened_files import LOST, Opened
from .scopes import IMPORT, LIBRARY, MEMO, SESSION, Scopes, Send, identity

WRITES_ONLY = os.O_WRONLY
DEEPEST = 100
"""So many callers of whoever opens a file are looked at."""
PROBES: Tuple[Tuple[Any, str], ...] = (
    *((genericpath, name) for name in ("exists", "isfile", "isdir", "getsize", "getmtime", "getatime", "getctime")),
    *((posixpath, name) for name in ("lexists", "islink", "ismount")),
    *((pathlib.Path, name) for name in ("stat", "lstat")),
    *(
        (pathlib.Path, name)
        for name in ("exists", "is_file", "is_dir", "is_symlink")
        if not is_heard_through_another(pathlib.Path, name)
    ),
)
"""Functions that ask whether there is a path, or what it is like: their first argument."""
BESIDE = {
    os.path.join("multiprocessing", "util.py"): "spawnv_passfds",
    os.path.join("multiprocessing", "forkserver.py"): "connect_to_new_process",
    os.path.join("loky", "process_executor.py"): "submit",
}
"""By file: the function by which others are made to run code in processes that nobody hears of."""
PACKAGE_SETUPS = frozenset({"setUpModule", "setup_module", "tearDownModule", "teardown_module"})
"""Functions of a package that pytest calls once for all tests in it, in the middle of the first or of the last."""
HARMLESS = frozenset({"ldconfig", "gcc", "cc", "ld", "uname", "lsb_release", "git", "hg", "stty", "tput"})
"""Programs that libraries ask for what the machine is like, or which version this is, before there is any test."""
READ_BY_C = ("sqlite3.connect", "ctypes.dlopen")
STARTS = ("subprocess.Popen", "os.posix_spawn", "os.system", "os.exec", "os.spawn", "os.startfile", "pty.spawn")

Handler = Callable[[FrameType], Any]
"""Says whether that is enough for the scope that is on."""


class Recorder:
    """From `start` to `stop`. `scopes` is where everything goes; who runs tests begins and ends scopes there."""

    def __init__(self, root: str, send: Send) -> None:
        self._special: Dict[int, Handler] = {}
        self.ends: Dict[int, Callable[[Any], Any]] = {}
        self._makers: Dict[int, CodeType] = {}
        """By method: the __init__ of its class."""
        self._methods: Dict[int, List[CodeType]] = {}
        """The other way round, until it is entered."""
        self._unseen: Dict[int, CodeType] = {}
        """Functions that nobody has entered yet."""
        self._around: Dict[int, CodeType] = {}
        """By function within another: that one."""
        self._hints: Dict[int, Hint] = {}
        self._births: Set[int] = set()
        self.attended: Set[int] = set()
        """Code of which more is wanted than that it was entered: `_unseen` and `_special`."""
        self._outside: Dict[int, List[Callable[[], Any]]] = {}
        """By an __init__: what it has made elsewhere than in tests, as long as that lives."""
        self._heard: Set[int] = set()
        """Functions of the project."""
        self._listener = Monitoring(self) if hasattr(sys, "monitoring") else Profiling(self)
        self.scopes = Scopes(root, send, self._listener.renew)
        self._forks = Forks(self.scopes, self._listener.go_on_in_child)
        self._opened = Opened(os.path.realpath(root))
        self._events: Dict[str, Callable[[Tuple[Any, ...]], None]] = {}

    def start(self) -> bool:
        """Whether it can: somebody else may have taken all there is to listen with."""
        if not self._listener.start():
            return False
        for owner, name in PROBES:
            self._hear(getattr(owner, name, None), self._on_path("probes"))
        self._hear(linecache.getlines, self._on_path("files"))
        for module in list(sys.modules.values()):
            self._know(module)
        self._hear(getattr(sys.modules.get("_pytest.monkeypatch"), "resolve", None), self._on_dotted_name)
        self._hear(functools.cached_property.__init__, self._on_cache("func", IN_ITSELF))
        self._hear(importlib.import_module, self._on_name)
        self._hear(importlib.util.find_spec, self._on_name)
        self._hear(functools.lru_cache, self._on_cache("maxsize", IN_ALL))
        for code in functools.lru_cache.__code__.co_consts:
            if isinstance(code, CodeType) and code.co_name == "decorating_function":
                self._hear_code(code, self._on_cache("user_function", IN_ALL))
        self._forks.start()
        self.scopes.gather = self._gather
        self._events.update(self._handlers())
        sys.addaudithook(self._hook())
        return True

    def _know(self, module: Any) -> None:
        """One that was there before."""
        file = getattr(module, "__file__", None)
        if not isinstance(file, str):
            return
        if file.endswith(".so") and library(file):
            self._opened.start()
        name = BESIDE.get(_tail(file), "")
        for owner in (module, *vars(module).values()) if name else ():
            self._hear(getattr(owner, "__dict__", {}).get(name), self._on_spawn)

    def stop(self) -> None:
        self._events.clear()
        self._opened.stop()
        self._listener.stop()

    def _gather(self) -> None:
        """What others have heard since the last time: of children, and of libraries in machine code."""
        self._forks.gather()
        for path in self._opened.gather():
            if path == LOST:
                self.scopes.touch("opaque", "opens more files than can be followed")
            elif self.scopes.top.key != SESSION:  # whoever looks at files there does so for reasons of its own
                self.scopes.touch("files", path)

    @property
    def is_undisturbed(self) -> bool:
        """Nobody has taken its place."""
        return self._listener.is_on

    # -- functions ---------------------------------------------------------------------------------

    def _hear(self, function: Any, handler: Handler) -> None:
        code = getattr(function, "__code__", None)
        if code is not None:
            self._hear_code(code, handler)

    def _hear_code(self, code: CodeType, handler: Handler, at_end: Optional[Callable[[Any], Any]] = None) -> None:
        self._special[identity(code)] = handler
        self.attended.add(identity(code))
        if at_end is not None:
            self.ends[identity(code)] = at_end
        self.scopes.known_code[identity(code)] = code
        self._listener.listen_to(code, is_special=True, has_end=identity(code) in self.ends)

    def _adopt(self, module: CodeType) -> None:
        """A file of the project is about to be executed."""
        path = self.scopes.own(module.co_filename)
        if not path:
            return
        self.scopes.touch("imports", path)
        if self.scopes.top.is_test and self._is_for_all():
            self.scopes.touch("imports", path, SESSION)
        makers: Dict[str, CodeType] = {}
        found = list(units(module))
        for code, name, _ in found:
            if name.endswith(".__init__"):
                makers[name.rpartition(".")[0]] = code
        for code, name, is_shell in found:
            self.scopes.known_code[identity(code)] = code
            if is_shell:
                self._hints.update(hints(code))
                self._look_for_blind_spots(code, module)
                continue
            self._around.update((identity(one), code) for one in code.co_consts if isinstance(one, CodeType))
            maker = makers.get(name.rpartition(".")[0])
            if maker is not None:
                self._makers[identity(code)] = maker
                self._methods.setdefault(identity(maker), []).append(code)
            self._heard.add(identity(code))
            if identity(code) not in self._special:
                self._unseen[identity(code)] = code
                self.attended.add(identity(code))
                self._listener.listen_to(code)
        if module.co_name == "<module>":
            self._hear_code(module, self._on_import_of(IMPORT + path), lambda _: self.scopes.end(IMPORT + path) is None)

    def examine(self, code: CodeType) -> None:
        """A function is entered for the first time; most never are. With the first object of a class, all of it."""
        if self._unseen.pop(identity(code), None) is None:
            return
        if identity(code) not in self._special:
            self.attended.discard(identity(code))
        self._look_for_blind_spots(code, code)
        around = self._around.get(identity(code))
        said = self._hints if around is None else hints(around)
        where = keeps(code, said.get(identity(code), NO_HINT))
        if code.co_name in PACKAGE_SETUPS and basename(code.co_filename) == "__init__.py":
            where = IN_ALL
        if where == IN_CLOSURE:  # what a test has made for itself is nothing to others
            where = IN_ALL if around is not None and identity(around) in self.scopes.shared else NOWHERE
        if where != NOWHERE and identity(code) not in self._special:
            self._remember(code, where)
        for method in self._methods.pop(identity(code), ()):
            self.examine(method)

    def _look_for_blind_spots(self, code: CodeType, owner: CodeType) -> None:
        blind = blind_spot(code)
        if blind and not self._listener.listen_to_calls(code):
            self.scopes.blind[identity(owner)] = blind

    def _on_import_of(self, key: str) -> Handler:
        def on_start(frame: FrameType) -> None:
            self.scopes.begin(key)
            self.scopes.enter(identity(frame.f_code))

        return on_start

    def _remember(self, code: CodeType, where: str) -> None:
        """What it finds out once is used by those who come later: they depend on it, too."""
        path = self.scopes.own(code.co_filename)
        if not path:
            return
        key = "{}{}:{}:{}".format(MEMO, code.co_firstlineno, code.co_name, path)
        maker = self._makers.get(identity(code)) if where == IN_ITSELF else None
        if maker is not None:
            self._hear_births(maker)
        scopes, one, itself = self.scopes, identity(code), code.co_varnames[:1] if where == IN_ITSELF else ()

        def on_start(frame: FrameType) -> bool:
            if maker is not None and not self._is_any_outside(maker):
                scopes.enter(one)
                return True
            if itself and self._is_of_test(frame.f_locals.get(itself[0])):
                scopes.pass_over(key)
            else:
                scopes.begin_keeping(key)
            scopes.enter(one)
            return False

        self._hear_code(code, on_start, lambda _: scopes.end_keeping(key))

    def _is_of_test(self, thing: Any) -> bool:
        """What a test has made for itself is nothing to others; they cannot find what is kept in it."""
        if identity(thing) in self.scopes.born:
            return True
        maker = getattr(type(thing).__init__, "__code__", None)  # may be that of another class
        return (
            self.scopes.top.is_test
            and maker is not None
            and identity(maker) in self._heard
            and identity(maker) not in self.scopes.shared
        )

    def _is_any_outside(self, maker: CodeType) -> bool:
        """Whether there is one that was not made by the test which is on for itself."""
        alive = self._outside.get(identity(maker), [])
        alive[:] = [reference for reference in alive if reference() is not None]
        return bool(alive)

    def _hear_births(self, maker: CodeType) -> None:
        if identity(maker) in self._births:
            return
        self._births.add(identity(maker))
        scopes, before, itself = self.scopes, self._special.get(identity(maker)), maker.co_varnames[0]
        outside = self._outside.setdefault(identity(maker), [])

        def on_start(frame: FrameType) -> None:
            if scopes.top.is_test:  # not in a fixture that outlives it, nor for somebody who remembers
                scopes.born.add(identity(frame.f_locals.get(itself)))
            else:
                thing = frame.f_locals.get(itself)
                scopes.born.discard(identity(thing))  # where something of the test's own was before
                outside.append(_reference(thing))
            if before is None:
                scopes.enter(identity(maker))
            else:
                before(frame)

        self._hear_code(maker, on_start)

    def _on_cache(self, argument: str, where: str) -> Handler:
        def on_start(frame: FrameType) -> None:
            code = getattr(frame.f_locals.get(argument), "__code__", None)
            if code is not None:
                self._remember(code, where)

        return on_start

    def _on_path(self, kind: str) -> Handler:
        def on_start(frame: FrameType) -> None:
            asker = None if is_of_pytest(frame.f_back, self.scopes.own) else self._asker(frame.f_back)
            if asker is None:  # most of them: pytest looks around a lot
                return
            path = frame.f_locals.get(frame.f_code.co_varnames[0])
            if self.scopes.own(path):
                self.scopes.touch_path(kind, fsdecode(path), self._owner(asker))  # type: ignore[arg-type]

        return on_start

    def _on_name(self, frame: FrameType) -> None:
        """A module that is asked for by its name, be it there already."""
        name, package = frame.f_locals.get("name"), frame.f_locals.get("package")
        if isinstance(name, str):
            try:
                self.scopes.touch("missing", resolve_name(name, package))
            except (ImportError, ValueError):
                pass  # will fail in a moment, for all to see

    def _on_dotted_name(self, frame: FrameType) -> None:
        self._look_for(frame.f_locals.get("name"))

    def _look_for(self, name: Any) -> None:
        """A module, or something in one, by the name of both."""
        parts = name.split(".") if isinstance(name, str) else []
        for count in range(1, len(parts) + 1):
            self.scopes.touch("missing", ".".join(parts[:count]))

    def on_call(self, function: Any, argument: Any) -> None:
        """Of code that calls what else cannot be heard."""
        self._safely(self._on_called, (function, argument))

    def _on_called(self, call: Tuple[Any, Any]) -> None:
        function, argument = call
        name = _plain_name(function)
        if name == "__import__":
            self._look_for(argument)
        elif name in UNHEARD:
            self._ask_for(argument)
        elif _plain_name(argument) in UNHEARD:  # map(os.stat, paths)
            self.scopes.touch("opaque", "hands on os." + argument.__name__)

    def _ask_for(self, path: Any) -> None:
        if self.scopes.own(path):
            self.scopes.touch_path("probes", fsdecode(path))

    def _on_spawn(self, frame: FrameType) -> None:
        self.scopes.touch("opaque", "spawns a process")

    def on_start(self, one: int, frame: FrameType) -> bool:
        """Whether it wants to hear of it again; a plain function is heard of once a scope."""
        unseen = self._unseen.get(one)
        if unseen is not None:
            self._safely(self.examine, unseen)
        handler = self._special.get(one)
        if handler is None:
            self.scopes.enter(one)
            return False
        return not self._safely(handler, frame)

    def on_end(self, one: int) -> bool:
        """The same of its end."""
        at_end = self.ends.get(one)
        return at_end is None or not self._safely(at_end, None)

    def _safely(self, action: Callable[[Any], Any], argument: Any) -> Any:
        try:
            return action(argument)
        except Exception as error:  # noqa: BLE001  nothing of ours may reach the tests
            self.scopes.touch("opaque", "recording failed: {!r}".format(error)[:200])
            return None

    # -- events of the interpreter -----------------------------------------------------------------

    def _hook(self) -> Callable[[str, Tuple[Any, ...]], None]:
        events, safely = self._events, self._safely

        # Who once listens does so for ever: as little as possible, most events are nothing to us.
        def on_event(event: str, arguments: Tuple[Any, ...]) -> None:
            handler = events.get(event)
            if handler is not None:
                safely(handler, arguments)

        return on_event

    def _handlers(self) -> Dict[str, Callable[[Tuple[Any, ...]], None]]:
        return {
            "exec": self._on_exec,
            "import": self._on_import,
            "open": self._on_open,
            "os.listdir": self._on_list,
            "os.scandir": self._on_list,
            "pickle.find_class": self._on_pickled,
            "code.__new__": self._on_code,
            **dict.fromkeys(READ_BY_C, self._on_file_of_c),
            **{event: self._starts(event) for event in STARTS},
        }

    def _on_exec(self, arguments: Tuple[Any, ...]) -> None:
        code = arguments[0]
        if isinstance(code, CodeType) and code.co_filename[:1] != "<":
            self._adopt(code)
            name = BESIDE.get(_tail(code.co_filename), "")
            for inner in units(code) if name else ():
                if inner.code.co_name == name:
                    self._hear_code(inner.code, self._on_spawn)

    def _on_import(self, arguments: Tuple[Any, ...]) -> None:
        self.scopes.touch("missing", str(arguments[0]))
        if arguments[1] is not None:  # a library in machine code
            self._on_file_of_c(arguments[1:])
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
        asker = self._asker(_getframe(3), own.endswith((".py", ".pyc")))
        if asker is not None:
            self.scopes.touch_path("files", fsdecode(path))
            self._suspect(asker, own)

    def _on_open_somewhere(self, frame: FrameType) -> None:
        """By os.open, which does not tell in which folder; the kernel knows."""
        if frame.f_globals.get("__name__") == "shutil":
            return  # it removes a tree, or copies one that it has listed
        if self._asker(frame) is not None and not self._opened.start():
            self.scopes.touch("opaque", "opens a file from a folder")

    def _on_file_of_c(self, arguments: Tuple[Any, ...]) -> None:
        if isinstance(arguments[0], (str, bytes, PathLike)):
            self.scopes.touch_path("files", fsdecode(arguments[0]))

    def _on_list(self, arguments: Tuple[Any, ...]) -> None:
        path = curdir if arguments[0] is None else arguments[0]
        if isinstance(path, int):
            path = readlink("/proc/self/fd/{}".format(path))
        asker = self._asker(_getframe(3)) if self.scopes.own(path) else None
        if asker is not None:
            self.scopes.touch_path("folders", fsdecode(path), self._owner(asker))

    def _on_code(self, arguments: Tuple[Any, ...]) -> None:
        """Code that is made of other code, by whatever means, will run unheard."""
        if self.scopes.own(arguments[1]):
            self.scopes.touch_path("files", arguments[1])

    def _on_pickled(self, arguments: Tuple[Any, ...]) -> None:
        """The class of an object that is read: its module may be there already."""
        self._look_for(arguments[0])

    # -- who asks ----------------------------------------------------------------------------------

    def _asker(self, frame: Optional[FrameType], is_code: bool = True) -> Optional[FrameType]:
        """The project, or a library on its behalf; None: nobody of interest. `is_code`: imports are heard of anyway."""
        while frame is not None and is_passing(frame.f_code):
            frame = frame.f_back
        if frame is None:
            return None
        file = frame.f_code.co_filename
        if file.startswith(IMPORTING):
            return None if is_code else frame
        return frame if not is_ignored(file) or self.scopes.own(file) else None

    def _owner(self, asker: FrameType) -> str:
        """Where no test is on, plugins look for many things; the project's own code looks for what it needs."""
        own = self.scopes.own(asker.f_code.co_filename) if self.scopes.top.key == SESSION else ""
        return IMPORT + own if own else ""

    def _is_for_all(self) -> bool:
        """Whether it is a library that imports a module now, in the middle of a test: it will not do so again."""
        frame: Optional[FrameType] = _getframe(5)
        while frame is not None and is_standard(frame.f_code.co_filename):
            frame = frame.f_back
        file = frame.f_code.co_filename if frame is not None else ""
        return bool(library(file)) and not self.scopes.own(file) and not is_ignored(file)

    def _suspect(self, asker: FrameType, path: str) -> None:
        """A library reads a file, and may keep it: whoever calls the functions that led there may get what was kept."""
        frame: Optional[FrameType] = asker
        while frame is not None and is_standard(frame.f_code.co_filename):
            frame = frame.f_back
        name = library(frame.f_code.co_filename) if frame is not None else ""
        if not name or self.scopes.top.key == SESSION:
            return
        key = LIBRARY + name
        self.scopes.touch("files", path, key)
        self.scopes.touch("uses", key)
        for _ in range(DEEPEST):
            if frame is None or self.scopes.own(frame.f_code.co_filename) or is_ignored(frame.f_code.co_filename):
                return
            if library(frame.f_code.co_filename) and identity(frame.f_code) not in self._special:
                self._hear_code(frame.f_code, self._on_use_of(key))
            frame = frame.f_back

    def _on_use_of(self, key: str) -> Handler:
        def on_start(frame: FrameType) -> bool:
            self.scopes.touch("uses", key)
            return True

        return on_start

    def _starts(self, event: str) -> Callable[[Tuple[Any, ...]], None]:
        def on_start(arguments: Tuple[Any, ...]) -> None:
            program = arguments[0]
            if basename(str(program)) in HARMLESS and not self.scopes.top.is_test:
                return
            words = fsdecode(program) if isinstance(program, (str, bytes, PathLike)) else event
            self.scopes.touch("opaque", "starts " + words[:200])

        return on_start


def _reference(thing: Any) -> Callable[[], Any]:
    """Gives it, or None when it is no more; of what cannot be referred to, nobody knows."""
    try:
        return weakref.ref(thing)
    except TypeError:
        return lambda: True


def _plain_name(thing: Any) -> str:
    """Of a function; nothing else is asked, for it might do something about that."""
    return thing.__name__ if type(thing) in (BuiltinFunctionType, FunctionType) else ""


def _tail(file: str) -> str:
    """With the folder that it lies in."""
    return sep.join(file.rsplit(sep, 2)[-2:])
