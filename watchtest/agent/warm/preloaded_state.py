"""What a process that runs are forked from holds, and what would tell such a run apart from a fresh process.

Files are looked at before every fork; what depends on the project, by the run itself when it has collected its tests.

What runs have imported, by interpreter, and what a warm process has to do without; kept for the next agent.
"""

from __future__ import annotations

import importlib
import json
import linecache
import mmap
import os
import random
import sys
from typing import Any, Dict, FrozenSet, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..module_origins import is_below, is_rewriter, origin_of, spec_of

ALL_NAMES = "*"
"""Among the names of variables that were read: all of them were looked at."""
OFTEN_PATCHED = (
    *("builtins", "datetime", "os", "queue", "select", "signal", "socket", "ssl", "subprocess", "threading", "time"),
)
"""Modules whose functions a project replaces before it imports others (gevent): those would have taken the new ones."""
NO_PLUGIN = "no:"
"""Before the name of a plugin of pytest, among the modules to avoid; as pytest itself spells it."""
PATCHED_BY_PYTEST = frozenset({"excepthook", "__import__"})

Stamp = Optional[Tuple[int, int, int]]


class Doubt(NamedTuple):
    """Why a fresh process might hold other modules than this one, and those without which it would not matter."""

    why: str
    avoid: List[str]


class Preloaded(NamedTuple):
    """What was found out while modules were imported that a run might have imported itself, at another moment."""

    readers: Dict[str, Set[str]]
    """By environment variable: the modules that read it at their import."""
    libraries: FrozenSet[str]
    """Shared objects that came in; what these read of the environment, nobody sees."""
    unseeded: List[random.Random]
    """Generators of random numbers that a fresh process would have seeded by chance."""
    plugins: FrozenSet[str]
    """Those of pytest that are installed, by their names."""


class Held:
    def __init__(self, preloaded: Preloaded, root: str) -> None:
        self.modules = frozenset(sys.modules)
        self._root = root
        self._preloaded = preloaded
        self._environ = dict(os.environ)
        self._path = list(sys.path)
        self._finders = list(sys.meta_path)
        self._tops = {name for name in self.modules if "." not in name}
        self._functions = _functions()
        self._stamps = {file: stamp(file) for file in _files(root)}

    def first_change(self) -> str:
        """A file that is no longer what was imported, or a folder in which packages came or went."""
        return next((file for file, was in self._stamps.items() if stamp(file) != was), "")

    def freshen(self, root: str) -> None:
        """In the forked process: forget what may be outdated, and see the project."""
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, root)
        importlib.invalidate_caches()
        linecache.clearcache()
        # Python's own generator and its like seed themselves; those that others have made do not.
        for generator in self._preloaded.unseeded:
            generator.seed()
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed()
        processes: Any = sys.modules.get("multiprocessing.process")
        if processes is not None:
            processes.ORIGINAL_DIR = root  # where it was imported; the processes that it starts go by that

    def doubt(self, plugins: Set[str]) -> Optional[Doubt]:
        """When the project has been loaded, before the first test; `plugins`: those that take part, by their names."""
        return self._of_plugins(plugins) or self._of_environment() or self._of_names() or self._of_functions()

    def _of_plugins(self, plugins: Set[str]) -> Optional[Doubt]:
        missing = sorted(self._preloaded.plugins - plugins) if plugins else []
        if not missing:
            return None
        why = "the project does without the plugin {}, which is preloaded".format(missing[0])
        return Doubt(why, [NO_PLUGIN + name for name in missing])

    def _of_environment(self) -> Optional[Doubt]:
        names = {*self._environ, *os.environ}
        changed = sorted(name for name in names if self._environ.get(name) != os.environ.get(name))
        for name in changed:
            if name.startswith("PYTEST_"):
                continue
            why = "the project sets {}, which a preloaded module has read".format(name)
            readers = self._preloaded.readers.get(name) or self._preloaded.readers.get(ALL_NAMES)
            if readers:
                return Doubt(why, sorted(readers))
            for library in self._preloaded.libraries:
                if _holds(library, name.encode("utf-8", "surrogateescape")):
                    return Doubt(why + " ({})".format(os.path.basename(library)), self._owners_of(library))
        return None

    def _owners_of(self, library: str) -> List[str]:
        """The packages that bring it; all that bring libraries, where its folder does not tell."""
        folders = (
            library.replace("dist-packages", "site-packages").rpartition("site-packages" + os.sep)[2].split(os.sep)
        )
        package = folders[0].partition(".")[0]
        return [package] if package in self._tops else sorted(self._tops - set(sys.builtin_module_names))

    def _of_names(self) -> Optional[Doubt]:
        suspects = self._tops if self._has_new_finders() else self._tops & self._names_on_new_path()
        for name in sorted(suspects):
            if origin_of(spec_of(name)) != origin_of(getattr(sys.modules.get(name), "__spec__", None)):
                why = "the project has a module named {}, and another one is preloaded".format(name)
                return Doubt(why, [name])
        return None

    def _has_new_finders(self) -> bool:
        return any(finder not in self._finders for finder in sys.meta_path if not is_rewriter(finder))

    def _names_on_new_path(self) -> Set[str]:
        """The project's own folders are always new: what is in them may have come after the modules (PYTHONPATH)."""
        names: Set[str] = set()
        for folder in sys.path:
            if folder not in self._path or _is_of_project(folder, self._root):
                try:
                    names.update(name.partition(".")[0] for name in os.listdir(folder or "."))
                except OSError:
                    continue
        return names

    def _of_functions(self) -> Optional[Doubt]:
        for (module, name), function in self._functions.items():
            if getattr(sys.modules.get(module), name, None) is not function:
                return Doubt("the project replaces {}.{}, which preloaded modules use".format(module, name), [])
        return None


def _functions() -> Dict[Tuple[str, str], Any]:
    return {
        (module, name): value
        for module in OFTEN_PATCHED
        for name, value in vars(sys.modules.get(module, object)).items()
        if module in sys.modules and callable(value) and name not in PATCHED_BY_PYTEST
    }


def _files(root: str) -> Iterator[str]:
    """All that the modules of this process were read from, and the folders that packages are installed in."""
    for module in list(sys.modules.values()):
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.has_location and spec.origin:
            yield spec.origin
    for folder in sys.path:
        if folder and not _is_of_project(folder, root):
            yield folder


def _is_of_project(folder: str, root: str) -> bool:
    return is_below(folder, root) or os.path.realpath(folder) == root


def stamp(file: str) -> Stamp:
    """What changes when the file does, or its absence."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def libraries() -> FrozenSet[str]:
    """The shared objects of installed packages that this process has loaded."""
    try:
        with open("/proc/self/maps") as stream:
            files = {line.split(None, 5)[-1].strip() for line in stream}
    except OSError:
        return frozenset()
    return frozenset(file for file in files if ".so" in os.path.basename(file) and "-packages" + os.sep in file)


def _holds(file: str, word: bytes) -> bool:
    try:
        with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(word) >= 0
    except (OSError, ValueError):
        return True  # gone or empty: nobody can say


class Learned:
    def __init__(self, file: str) -> None:
        self._file = file
        self._modules: Dict[str, List[Tuple[str, bool]]] = {}
        self._avoid: List[str] = []
        try:
            with open(file) as stream:
                kept = json.load(stream)
            self._modules = {
                str(python): [(str(n), bool(r)) for n, r in rows] for python, rows in kept["modules"].items()
            }
            self._avoid = [str(name) for name in kept["avoid"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # nothing yet, or damaged: it is learned anew

    def of(self, python: str) -> Dict[str, Any]:
        return {"modules": self._modules.get(python, []), "avoid": self._avoid}

    def add(self, python: str, names: List[Any]) -> None:
        known = self._modules.setdefault(python, [])
        there = {name for name, _ in known}
        fresh = [(row[0], bool(row[1])) for row in names if _is_name(row) and row[0] not in there]
        # What could not be had in the warm process is told by every run again.
        fresh = [row for row in fresh if not any(row[0] == one or row[0].startswith(one + ".") for one in self._avoid)]
        if fresh:
            known += fresh
            self._keep()

    def avoid(self, names: List[Any], python: str = "") -> bool:
        """Whether that makes a difference: one of them is a plugin, or was learned from runs of this interpreter."""
        fresh = {str(name) for name in names} - set(self._avoid)
        learned = {name for name, _ in self._modules.get(python, [])}
        if python and not any(name in learned or name.startswith(NO_PLUGIN) for name in fresh):
            return False
        self._avoid = sorted({*self._avoid, *fresh})
        self._keep()
        return True

    def is_bare(self, python: str) -> bool:
        return not self._modules.get(python)

    def give_up(self, python: str) -> None:
        self._avoid = sorted({*self._avoid, *(name.partition(".")[0] for name, _ in self._modules.get(python, []))})
        self._modules[python] = []
        self._keep()

    def _keep(self) -> None:
        try:
            with open(self._file + ".new", "w") as stream:
                json.dump({"modules": self._modules, "avoid": self._avoid}, stream)
            os.replace(self._file + ".new", self._file)
        except OSError:
            pass  # a full disk: the next agent learns anew


def _is_name(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and len(row[0]) < 500
