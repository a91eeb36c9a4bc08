"""Makes a process fit for forking runs from it: pytest, its plugins and the modules of the last run, and nothing else.

A run that is forked from it has to be what a fresh process would have been. So whatever could tell the two apart makes
the process unfit, with the modules to leave out next time: a module of the project, one that warns when it is imported
(the project's filters would have decided about that), one that leaves more behind than its definitions, a thread that
does not take part in a fork, a module that pytest would have rewritten. What can only be seen when the project is
there, `Held.doubt` looks for then.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import linecache
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from types import FrameType
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

from ..jobs import supervisor as supervise
from ..module_origins import is_below, is_of, is_rewritten, places_of, spec_of
from .preloaded_state import ALL_NAMES, NO_PLUGIN, Held, Preloaded, libraries
from .side_effects import LOOKING, created, is_in, taken, threads, traces

TINY = """\
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_watchtest_warm_up(number, request):
    assert [number] == [1]
"""
KEPT_OUT = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "DJANGO_SETTINGS_MODULE", "DJANGO_CONFIGURATION")
"""Variables by which a session would load the project, or start what only a real one needs."""


class Unfit(Exception):
    """`avoid`: the modules without which another process may be fit."""

    def __init__(self, reason: str, avoid: Set[str]) -> None:
        super().__init__(reason)
        self.reason = reason
        self.avoid = avoid


def warm_up(settings: Dict[str, Any]) -> Held:
    """`settings`: modules ([name, is_rewritten] each), avoid, root."""
    root = os.path.realpath(settings["root"])
    from ..in_pytest import pytest_plugin  # noqa: F401  brings pytest; every run needs both

    supervise.become_subreaper()  # by a library that a supervisor would have to load else

    loader = _Preloader(settings["modules"], settings["avoid"], root)
    with _everything_put_back(), _seeds_noted() as unseeded:
        try:
            code = _tiny_session(loader, root, settings["avoid"])
        finally:
            loader.note_no_more()
    if code != 1 or not loader.has_run:
        raise Unfit("a session of pytest with one failing test of ours ended with {}".format(code), set())
    loader.check()
    return Held(Preloaded(loader.readers, loader.libraries, unseeded, loader.plugins), root)


# -- the session -----------------------------------------------------------------------------------


def _tiny_session(loader: _Preloader, root: str, avoid: List[str]) -> int:
    """Plugins have to come by a real session: only then do they come through pytest's assertion rewriting."""
    import pytest

    with tempfile.TemporaryDirectory(prefix="watchtest-warm-up-") as folder:
        test, settings = os.path.join(folder, "test_watchtest_warm_up.py"), os.path.join(folder, "pytest.ini")
        for file, content in ((test, TINY), (settings, "[pytest]\n")):
            with open(file, "w") as stream:
                stream.write(content)
        os.chdir(folder)
        for name in KEPT_OUT:
            os.environ.pop(name, None)
        without = ["no:cacheprovider", *(name for name in avoid if name.startswith(NO_PLUGIN)), *_own_plugins(root)]
        args = ["-q", "-c", settings, "--rootdir", folder, *(word for name in without for word in ("-p", name)), test]
        return int(pytest.main(args, plugins=[loader]))


def _own_plugins(root: str) -> Iterator[str]:
    """A project may be a plugin of pytest itself; then it is installed, and must not be loaded here."""
    for distribution in importlib.metadata.distributions():
        for entry in distribution.entry_points:
            if entry.group == "pytest11":
                spec = spec_of(entry.value.partition(":")[0].strip().partition(".")[0])
                if any(is_below(place, root) for place in places_of(spec)):
                    yield NO_PLUGIN + entry.name


class _everything_put_back:
    """What a session leaves behind in its process, undone; but for the modules."""

    def __enter__(self) -> None:
        self._path, self._argv, self._folder = list(sys.path), list(sys.argv), os.getcwd()
        self._environ = dict(os.environ)

    def __exit__(self, *_: object) -> None:
        os.chdir(self._folder)
        sys.path[:], sys.argv[:] = self._path, self._argv
        for name in set(os.environ) - set(self._environ):
            del os.environ[name]
        os.environ.update(self._environ)
        sys.modules.pop("test_watchtest_warm_up", None)
        linecache.clearcache()


class _seeds_noted:
    """Takes down the generators of random numbers that are seeded by chance."""

    def __enter__(self) -> List[random.Random]:
        self._seed = seed = random.Random.seed
        unseeded: Dict[int, random.Random] = {}

        def noting(generator: random.Random, a: Any = None, version: int = 2) -> None:
            unseeded.pop(id(generator), None)
            if a is None:
                unseeded[id(generator)] = generator
            seed(generator, a, version)

        random.Random.seed = noting  # type: ignore[method-assign,assignment]
        self._unseeded = unseeded
        self._found: List[random.Random] = []
        return self._found

    def __exit__(self, *_: object) -> None:
        random.Random.seed = self._seed  # type: ignore[method-assign]
        self._found += self._unseeded.values()


# -- the modules -----------------------------------------------------------------------------------


class _Preloader:
    """A plugin of the tiny session: imports while pytest's rewriting hook is at work, as it would be in a real one."""

    def __init__(self, modules: List[Tuple[str, bool]], avoid: List[str], root: str) -> None:
        self._modules = modules
        self._avoided = tuple(avoid)
        self._root = root
        self._reason = ""
        self._avoid: Set[str] = set()
        self._threaded: Set[str] = set()
        self._known: Set[str] = set()
        """The modules that were there before the one that is being imported."""
        self._kind_of_environ = type(os.environ)
        self._libraries_before: FrozenSet[str] = frozenset()
        self.readers: Dict[str, Set[str]] = {}
        self.libraries: FrozenSet[str] = frozenset()
        self.plugins: FrozenSet[str] = frozenset()
        self.has_run = False

    def pytest_load_initial_conftests(self) -> None:
        """Plugins are there, as they are before a project can do anything; what comes now would come later there."""
        self._libraries_before = libraries()
        os.environ.__class__ = _noting(self._kind_of_environ, self.readers)

    def note_no_more(self) -> None:
        os.environ.__class__ = self._kind_of_environ
        self.libraries = libraries() - self._libraries_before

    def pytest_sessionfinish(self, session: Any) -> None:
        self.has_run = True
        manager = session.config.pluginmanager
        self.plugins = frozenset(str(manager.get_name(plugin)) for plugin, _ in manager.list_plugin_distinfo())
        wanted = [name for name, _ in self._modules if not self._is_avoided(name)]
        for name, what in _tied_to_a_place(wanted).items():
            self._leave_out({name}, "{} " + what + " when it is imported", name)
        for name in wanted if not self._avoid else ():
            if name not in sys.modules:
                self._import(name)

    def _is_avoided(self, name: str) -> bool:
        return any(name == other or name.startswith(other + ".") for other in self._avoided)

    def _import(self, name: str) -> None:
        self._known, traces_before, threads_before = set(sys.modules), traces(), threads()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            before = list(warnings.filters)
            warnings.showwarning = lambda *_args, **_options: self._leave_out(_being_imported(), "{} warns", name)
            try:
                importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001  whatever it is, the project may never meet it
                self._leave_out({name}, "{} cannot be imported: " + repr(error)[:200], name)
            if any(entry not in before and _is_wide(entry) for entry in warnings.filters):
                self._leave_out({name}, "{} changes the filters of warnings", name)
        if threads() > threads_before:
            self._threaded.add(name)
        own = [other for other in set(sys.modules) - self._known if is_of(sys.modules[other], self._root)]
        if own:
            self._leave_out({name}, "{} imports " + own[0] + " of the project", name)
        left = [trace for trace, value in traces().items() if value != traces_before[trace]]
        if left:
            self._leave_out({name}, "{} changes " + left[0] + " when it is imported", name)

    def _leave_out(self, names: Set[str], reason: str, name: str) -> None:
        """With the packages that it lies in, if they came with it: it may be they."""
        self._reason = self._reason or reason.format(name)
        parts = name.split(".")
        packages = {".".join(parts[:count]) for count in range(1, len(parts))} - self._known
        self._avoid |= names | {name} | packages

    def check(self) -> None:
        """After the session. Raises unless the process is fit."""
        own = [name for name, module in list(sys.modules.items()) if is_of(module, self._root)]
        if own and not self._avoid:
            raise Unfit("a plugin of pytest imports {} of the project".format(own[0]), set())
        for name, was_rewritten in self._modules:
            if name in sys.modules and is_rewritten(sys.modules[name]) != was_rewritten:
                self._known = set(sys.modules)
                self._leave_out({name}, "{} is rewritten by pytest only where the project asks for it", name)
        if self._avoid:
            raise Unfit(self._reason, self._avoid)
        if sys.gettrace() is not None or sys.getprofile() is not None:
            raise Unfit("something traces the interpreter from its start", set())
        if threads() > 1 and not _threads_go_along_with_forks():
            raise Unfit("threads run in it: a fork would not be safe", self._threaded)


def _tied_to_a_place(modules: List[str]) -> Dict[str, str]:
    """By module, in words: what its import leaves on disk, an address it takes, a look at the current folder.

    A fork finds out: it listens to audit events.

    Who once listens does so for ever, and every event takes longer; that must not happen to the tests.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            supervise.become_subreaper()
            os.write(theirs, json.dumps(_listen_to_imports(modules)).encode("ascii"))
        finally:
            supervise.sweep()
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        said = stream.read()
    os.waitpid(pid, 0)
    left: Dict[str, str] = json.loads(said.decode("ascii")) if said else {}
    return left


def _listen_to_imports(modules: List[str]) -> Dict[str, str]:
    made: List[str] = []
    addresses: List[str] = []
    looks: List[str] = []
    here = os.getcwd()
    left: Dict[str, str] = {}

    def on_event(event: str, arguments: Tuple[Any, ...]) -> None:
        if event in LOOKING and is_in(here, arguments[0]):
            looks.append(str(arguments[0]))
        path = created(event, arguments)
        if path is not None:
            made.append(path)
        address = taken(event, arguments)
        if address is not None:
            addresses.append(address)
            raise OSError("taken by a run, perhaps, that goes on beside us")

    sys.addaudithook(on_event)
    _listen_to_looks(here, looks)
    for name in modules:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except BaseException:  # noqa: BLE001  met again, and judged, when it counts
                pass
            left.update((name, "looks for {} in the current folder".format(path)) for path in looks)
            left.update((name, "leaves {} behind".format(path)) for path in made if os.path.lexists(path))
            left.update((name, "takes the address {}".format(address)) for address in addresses)
            for seen in (made, addresses, looks):
                seen.clear()
    return left


def _listen_to_looks(here: str, looks: List[str]) -> None:
    """The settings of a project may lie there (matplotlibrc), and a preloaded module has not seen them. For good."""

    def noting(function: Any) -> Any:
        def look(path: Any, *more: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None and is_in(here, path):
                looks.append(str(path))
            return function(path, *more, **options)

        return look

    for name in ("stat", "lstat", "access"):  # these make no audit events
        setattr(os, name, noting(getattr(os, name)))


def _is_wide(entry: Any) -> bool:
    """A filter of warnings that reaches others than those of its own library."""
    _, message, category, module, _ = entry
    return message is None and module is None and category.__module__ == "builtins"


def _noting(kind: type, readers: Dict[str, Set[str]]) -> type:
    """A kind of os.environ that takes down which names are read by modules that are being imported."""

    def note(name: str) -> None:
        modules = _being_imported()
        if modules:
            readers.setdefault(name, set()).update(modules)

    class Noting(kind):  # type: ignore[misc]
        def __getitem__(self, name: Any) -> Any:
            note(str(name))
            return super().__getitem__(name)

        def __iter__(self) -> Any:
            note(ALL_NAMES)
            return super().__iter__()

    return Noting


def _being_imported() -> Set[str]:
    """The modules whose code is running right now."""
    names = set()
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and not frame.f_globals.get("__name__", "").startswith("watchtest_"):
            names.add(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return names - {"__main__", "test_watchtest_warm_up"}


# -- threads ---------------------------------------------------------------------------------------


def _threads_go_along_with_forks() -> bool:
    """Some libraries (OpenBLAS) end their threads before every fork and start them again when they are needed."""
    if threading.active_count() > 1:
        return False
    pid = os.fork()
    if pid == 0:
        os._exit(0)
    os.waitpid(pid, 0)
    deadline = time.monotonic() + 0.5
    while threads() > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    return threads() == 1
