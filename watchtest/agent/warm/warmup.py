"""Prepares the zygote: preloads pytest, its plugins and the third-party modules of the last run.

A forked run must be indistinguishable from a fresh process. Whatever could make a difference makes the process unfit,
and names the modules to avoid next time: a module of the project, one that warns when it is imported (the project's
warning filters would apply), one that leaves more behind than definitions, a thread that does not survive a fork, a
module that pytest would have rewritten. What depends on the project is checked later by
`PreloadedState.find_mismatch`.
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
from contextlib import contextmanager
from types import FrameType
from typing import Any, Dict, FrozenSet, Iterator, List, Optional, Set, Tuple

from ..jobs import supervisor
from ..module_origins import find_spec, is_below, is_of_project, is_rewritten, paths_of
from .preloaded_state import ALL_NAMES, NO_PLUGIN, PreloadedState, WarmupFindings, is_within, libraries
from .side_effects import LOOKING, bound_address, created, is_in, process_state, threads

TEST_SOURCE = """\
import pytest

@pytest.mark.parametrize("number", [1, 2])
def test_watchtest_warm_up(number, request):
    assert [number] == [1]
"""
REMOVED_VARIABLES = ("PYTEST_ADDOPTS", "PYTEST_PLUGINS", "DJANGO_SETTINGS_MODULE", "DJANGO_CONFIGURATION")
"""Environment variables that make a session load the project, or start what only a real session needs."""


class UnfitProcess(Exception):
    """Runs cannot be forked from this process. `avoid`: the modules without which another process may be fit."""

    def __init__(self, reason: str, avoid: Set[str]) -> None:
        super().__init__(reason)
        self.avoid = avoid


def warm_up(settings: Dict[str, Any]) -> PreloadedState:
    """Preload modules into this process. `settings`: modules (each [name, is_rewritten]), avoid, root."""
    root = os.path.realpath(settings["root"])
    from ..in_pytest import pytest_plugin  # noqa: F401  every run needs it and pytest

    supervisor.become_subreaper()  # loads ctypes here instead of in every supervisor

    preloader = _Preloader(settings["modules"], settings["avoid"], root)
    with _process_state_restored(), _seeds_observed() as unseeded:
        try:
            code = _run_session(preloader, root, settings["avoid"])
        finally:
            preloader.stop_observing()
    if code != 1 or not preloader.has_run:
        raise UnfitProcess("our pytest session with one failing test exited with {}".format(code), set())
    preloader.check()
    generators = list(unseeded.values())
    return PreloadedState(WarmupFindings(preloader.readers, preloader.libraries, generators, preloader.plugins), root)


# -- the session -----------------------------------------------------------------------------------


def _run_session(preloader: _Preloader, root: str, avoid: List[str]) -> int:
    """Run a pytest session with a small test of ours: only a real session loads plugins with assertion rewriting."""
    import pytest

    with tempfile.TemporaryDirectory(prefix="watchtest-warm-up-") as folder:
        test, settings = os.path.join(folder, "test_watchtest_warm_up.py"), os.path.join(folder, "pytest.ini")
        for file, content in ((test, TEST_SOURCE), (settings, "[pytest]\n")):
            with open(file, "w") as stream:
                stream.write(content)
        os.chdir(folder)
        for name in REMOVED_VARIABLES:
            os.environ.pop(name, None)
        avoided = [name for name in avoid if name.startswith(NO_PLUGIN)]
        disabled = [NO_PLUGIN + "cacheprovider", *avoided, *_project_plugins(root)]
        args = ["-q", "-c", settings, "--rootdir", folder, *(word for name in disabled for word in ("-p", name)), test]
        return int(pytest.main(args, plugins=[preloader]))


def _project_plugins(root: str) -> Iterator[str]:
    """Yield the options that disable the project's own plugins: a project may itself be an installed pytest plugin."""
    for distribution in importlib.metadata.distributions():
        for entry in distribution.entry_points:
            if entry.group == "pytest11":
                spec = find_spec(entry.value.partition(":")[0].strip().partition(".")[0])
                if any(is_below(place, root) for place in paths_of(spec)):
                    yield NO_PLUGIN + entry.name


@contextmanager
def _process_state_restored() -> Iterator[None]:
    """Restore what a session changes in its process, except for the modules."""
    path, argv, folder, environ = list(sys.path), list(sys.argv), os.getcwd(), dict(os.environ)
    try:
        yield
    finally:
        os.chdir(folder)
        sys.path[:], sys.argv[:] = path, argv
        for name in set(os.environ) - set(environ):
            del os.environ[name]
        os.environ.update(environ)
        sys.modules.pop("test_watchtest_warm_up", None)
        linecache.clearcache()


@contextmanager
def _seeds_observed() -> Iterator[Dict[int, random.Random]]:
    """Collect, by id, the random number generators that are seeded randomly."""
    seed = random.Random.seed
    unseeded: Dict[int, random.Random] = {}

    def observed_seed(generator: random.Random, a: Any = None, version: int = 2) -> None:
        unseeded.pop(id(generator), None)
        if a is None:
            unseeded[id(generator)] = generator
        seed(generator, a, version)

    random.Random.seed = observed_seed  # type: ignore[method-assign,assignment]
    try:
        yield unseeded
    finally:
        random.Random.seed = seed  # type: ignore[method-assign]


# -- the modules -----------------------------------------------------------------------------------


class _Preloader:
    """A plugin of our session: imports the modules while pytest's rewriting hook is active, as in a real session."""

    def __init__(self, modules: List[Tuple[str, bool]], avoid: List[str], root: str) -> None:
        self._modules = modules
        self._already_avoided = avoid
        self._root = root
        self._reason = ""
        self._avoid: Set[str] = set()
        self._threaded: Set[str] = set()
        self._imported_before: Set[str] = set()
        """The modules that were present before the current import."""
        self._environ_class = type(os.environ)
        self._libraries_before: FrozenSet[str] = frozenset()
        self.readers: Dict[str, Set[str]] = {}
        self.libraries: FrozenSet[str] = frozenset()
        self.plugins: FrozenSet[str] = frozenset()
        self.has_run = False

    def pytest_load_initial_conftests(self) -> None:
        """Start observing: so far only plugins were loaded, as in a real session before any code of the project."""
        self._libraries_before = libraries()
        os.environ.__class__ = _observed_environ(self._environ_class, self.readers)

    def stop_observing(self) -> None:
        os.environ.__class__ = self._environ_class
        self.libraries = libraries() - self._libraries_before

    def pytest_sessionfinish(self, session: Any) -> None:
        self.has_run = True
        manager = session.config.pluginmanager
        self.plugins = frozenset(str(manager.get_name(plugin)) for plugin, _ in manager.list_plugin_distinfo())
        wanted = [name for name, _ in self._modules if not is_within(name, self._already_avoided)]
        for name, effect in _import_side_effects(wanted).items():
            self._reject({name}, "{} " + effect + " when it is imported", name)
        for name in wanted if not self._avoid else ():
            if name not in sys.modules:
                self._import(name)

    def _import(self, name: str) -> None:
        self._imported_before, state_before, threads_before = set(sys.modules), process_state(), threads()
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            filters_before = list(warnings.filters)
            warnings.showwarning = lambda *_args, **_options: self._reject(_being_imported(), "{} warns", name)
            try:
                importlib.import_module(name)
            except BaseException as error:  # noqa: BLE001  the project may never import it, so any error is ours
                self._reject({name}, "{} cannot be imported: " + repr(error)[:200], name)
            if any(entry not in filters_before and _is_general(entry) for entry in warnings.filters):
                self._reject({name}, "{} changes the warning filters", name)
        if threads() > threads_before:
            self._threaded.add(name)
        new = set(sys.modules) - self._imported_before
        own = [other for other in new if is_of_project(sys.modules[other], self._root)]
        if own:
            self._reject({name}, "{} imports " + own[0] + " of the project", name)
        changed = [what for what, value in process_state().items() if value != state_before[what]]
        if changed:
            self._reject({name}, "{} changes " + changed[0] + " when it is imported", name)

    def _reject(self, names: Set[str], reason: str, name: str) -> None:
        """Avoid these modules, and the packages that were imported together with them: those may be the cause."""
        self._reason = self._reason or reason.format(name)
        parts = name.split(".")
        packages = {".".join(parts[:count]) for count in range(1, len(parts))} - self._imported_before
        self._avoid |= names | {name} | packages

    def check(self) -> None:
        """Raise UnfitProcess unless runs can be forked from this process."""
        own = [name for name, module in list(sys.modules.items()) if is_of_project(module, self._root)]
        if own and not self._avoid:
            raise UnfitProcess("a plugin of pytest imports {} of the project".format(own[0]), set())
        for name, was_rewritten in self._modules:
            if name in sys.modules and is_rewritten(sys.modules[name]) != was_rewritten:
                self._imported_before = set(sys.modules)
                self._reject({name}, "pytest rewrites {} only at the request of the project", name)
        if self._avoid:
            raise UnfitProcess(self._reason, self._avoid)
        if sys.gettrace() is not None or sys.getprofile() is not None:
            raise UnfitProcess("the interpreter is traced from its start", set())
        if threads() > 1 and not _threads_survive_forks():
            raise UnfitProcess("a fork would not be safe: the warm process has threads", self._threaded)


def _import_side_effects(modules: List[str]) -> Dict[str, str]:
    """Describe, by module, what its import leaves on disk, which address it binds, or that it reads the current folder.

    A forked process finds out with an audit hook: hooks cannot be removed, and would slow down all tests.
    """
    ours, theirs = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            supervisor.become_subreaper()
            os.write(theirs, json.dumps(_observe_imports(modules)).encode("ascii"))
        finally:
            supervisor.kill_descendants()
            os._exit(0)
    os.close(theirs)
    with os.fdopen(ours, "rb") as stream:
        answer = stream.read()
    os.waitpid(pid, 0)
    effects: Dict[str, str] = json.loads(answer.decode("ascii")) if answer else {}
    return effects


def _observe_imports(modules: List[str]) -> Dict[str, str]:
    made: List[str] = []
    addresses: List[str] = []
    looked_up: List[str] = []
    here = os.getcwd()
    effects: Dict[str, str] = {}

    def on_event(event: str, arguments: Tuple[Any, ...]) -> None:
        if event in LOOKING and is_in(here, arguments[0]):
            looked_up.append(str(arguments[0]))
        path = created(event, arguments)
        if path is not None:
            made.append(path)
        address = bound_address(event, arguments)
        if address is not None:
            addresses.append(address)
            raise OSError("a run beside us may need this address")

    sys.addaudithook(on_event)
    _observe_lookups(here, looked_up)
    for name in modules:
        if name not in sys.modules:
            try:
                importlib.import_module(name)
            except BaseException:  # noqa: BLE001  the real import fails again, and is judged then
                pass
            effects.update((name, "looks for {} in the current folder".format(path)) for path in looked_up)
            effects.update((name, "leaves {} behind".format(path)) for path in made if os.path.lexists(path))
            effects.update((name, "takes the address {}".format(address)) for address in addresses)
            for observed in (made, addresses, looked_up):
                observed.clear()
    return effects


def _observe_lookups(here: str, looked_up: List[str]) -> None:
    """Replace the functions of `os` that make no audit events, for the rest of this process.

    A module that looks for settings in the current folder (matplotlibrc) must not be preloaded from another one.
    """

    def observed(function: Any) -> Any:
        def look_up(path: Any, *more: Any, **options: Any) -> Any:
            if options.get("dir_fd") is None and is_in(here, path):
                looked_up.append(str(path))
            return function(path, *more, **options)

        return look_up

    for name in ("stat", "lstat", "access"):
        setattr(os, name, observed(getattr(os, name)))


def _is_general(entry: Any) -> bool:
    """Return whether a warning filter also applies to warnings of other libraries."""
    _, message, category, module, _ = entry
    return message is None and module is None and category.__module__ == "builtins"


def _observed_environ(environ_class: type, readers: Dict[str, Set[str]]) -> type:
    """Return a class for os.environ that records which names modules read while they are imported."""

    def note(name: str) -> None:
        modules = _being_imported()
        if modules:
            readers.setdefault(name, set()).update(modules)

    class ObservedEnviron(environ_class):  # type: ignore[misc]
        def __getitem__(self, name: Any) -> Any:
            note(str(name))
            return super().__getitem__(name)

        def __iter__(self) -> Any:
            note(ALL_NAMES)
            return super().__iter__()

    return ObservedEnviron


def _being_imported() -> Set[str]:
    """Return the modules whose top-level code is running."""
    names = set()
    frame: Optional[FrameType] = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name == "<module>" and not frame.f_globals.get("__name__", "").startswith("watchtest_"):
            names.add(str(frame.f_globals.get("__name__")))
        frame = frame.f_back
    return names - {"__main__", "test_watchtest_warm_up"}


# -- threads ---------------------------------------------------------------------------------------


def _threads_survive_forks() -> bool:
    """Return whether the threads end at a fork: some libraries (OpenBLAS) stop them and restart them on demand."""
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
