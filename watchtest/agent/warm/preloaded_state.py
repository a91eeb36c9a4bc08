"""What the zygote has preloaded, and how a forked run finds out that a fresh process would be different.

Files are checked before every fork; what depends on the project is checked by the run itself after its collection.
`LearnedModules` keeps on disk, per interpreter, which modules are worth preloading and which must be avoided.
"""

from __future__ import annotations

import importlib
import json
import linecache
import mmap
import os
import random
import sys
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, NamedTuple, Optional, Set, Tuple

from ..module_origins import find_spec, is_below, is_rewriter, spec_origin

ALL_NAMES = "*"
"""Among the names of environment variables that a module read: it read all of them."""
OFTEN_PATCHED = (
    *("builtins", "datetime", "os", "queue", "select", "signal", "socket", "ssl", "subprocess", "threading", "time"),
)
"""Modules whose functions a project may replace before it imports others, which then use the new ones (gevent)."""
NO_PLUGIN = "no:"
"""The prefix of a pytest plugin among the modules to avoid, as in pytest's own option -p."""
PATCHED_BY_PYTEST = frozenset({"excepthook", "__import__"})

Stamp = Optional[Tuple[int, int, int]]


class Mismatch(NamedTuple):
    """Why a fresh process might differ from this one, and the modules that a zygote must avoid so that it does not."""

    why: str
    avoid: List[str]


class WarmupFindings(NamedTuple):
    """What was observed while the modules were imported, which a run might import at another moment."""

    readers: Dict[str, Set[str]]
    """By environment variable: the modules that read it when they are imported."""
    libraries: FrozenSet[str]
    """The shared objects that were loaded; we cannot see which environment variables they read."""
    unseeded: List[random.Random]
    """The random number generators that a fresh process would seed randomly."""
    plugins: FrozenSet[str]
    """The names of the installed pytest plugins."""


class PreloadedState:
    """The state of a zygote after its warm-up, compared with the present by `first_change` and `find_mismatch`."""

    def __init__(self, findings: WarmupFindings, root: str) -> None:
        self.modules = frozenset(sys.modules)
        self._root = root
        self._findings = findings
        self._environ = dict(os.environ)
        self._path = list(sys.path)
        self._finders = list(sys.meta_path)
        self._tops = {name for name in self.modules if "." not in name}
        self._functions = _functions()
        self._stamps = {file: stamp(file) for file in _files(root)}

    def first_change(self) -> str:
        """Return a file that has changed since it was imported, or a folder with other packages; "" if none has."""
        return next((file for file, was in self._stamps.items() if stamp(file) != was), "")

    def freshen(self, root: str) -> None:
        """In the forked process: drop what may be outdated, and make the project importable."""
        if not getattr(sys.flags, "safe_path", False):
            sys.path.insert(0, root)
        importlib.invalidate_caches()
        linecache.clearcache()
        # Python reseeds only its own generator after a fork.
        for generator in self._findings.unseeded:
            generator.seed()
        numpy_random = sys.modules.get("numpy.random")
        if numpy_random is not None:
            numpy_random.seed()
        processes: Any = sys.modules.get("multiprocessing.process")
        if processes is not None:
            processes.ORIGINAL_DIR = root  # the folder at its import, in which its processes start

    def find_mismatch(self, plugins: Set[str]) -> Optional[Mismatch]:
        """Compare with a fresh process, after the project is loaded and before the first test.

        `plugins`: the names of the active pytest plugins.
        """
        return (
            self._plugin_mismatch(plugins)
            or self._environment_mismatch()
            or self._name_mismatch()
            or self._function_mismatch()
        )

    def _plugin_mismatch(self, plugins: Set[str]) -> Optional[Mismatch]:
        missing = sorted(self._findings.plugins - plugins) if plugins else []
        if not missing:
            return None
        why = "the project disables the plugin {}, which is preloaded".format(missing[0])
        return Mismatch(why, [NO_PLUGIN + name for name in missing])

    def _environment_mismatch(self) -> Optional[Mismatch]:
        names = {*self._environ, *os.environ}
        changed = sorted(name for name in names if self._environ.get(name) != os.environ.get(name))
        for name in changed:
            if name.startswith("PYTEST_"):
                continue
            why = "the project sets {}, which a preloaded module has read".format(name)
            readers = self._findings.readers.get(name) or self._findings.readers.get(ALL_NAMES)
            if readers:
                return Mismatch(why, sorted(readers))
            for library in self._findings.libraries:
                if _contains(library, name.encode("utf-8", "surrogateescape")):
                    return Mismatch(why + " ({})".format(os.path.basename(library)), self._owners_of(library))
        return None

    def _owners_of(self, library: str) -> List[str]:
        """Return the package that a library belongs to; all packages if its folder does not tell."""
        path = library.replace("dist-packages", "site-packages").rpartition("site-packages" + os.sep)[2]
        package = path.partition(os.sep)[0].partition(".")[0]
        return [package] if package in self._tops else sorted(self._tops - set(sys.builtin_module_names))

    def _name_mismatch(self) -> Optional[Mismatch]:
        has_new_finders = any(finder not in self._finders for finder in sys.meta_path if not is_rewriter(finder))
        suspects = self._tops if has_new_finders else self._tops & self._names_on_new_path()
        for name in sorted(suspects):
            if spec_origin(find_spec(name)) != spec_origin(getattr(sys.modules.get(name), "__spec__", None)):
                why = "the project has a module named {}, but another one is preloaded".format(name)
                return Mismatch(why, [name])
        return None

    def _names_on_new_path(self) -> Set[str]:
        """Return the top-level names in folders that are new on sys.path.

        The project's own folders always count as new: a module may have been added after the warm-up (PYTHONPATH).
        """
        names: Set[str] = set()
        for folder in sys.path:
            if folder not in self._path or _is_of_project(folder, self._root):
                try:
                    names.update(name.partition(".")[0] for name in os.listdir(folder or "."))
                except OSError:
                    continue
        return names

    def _function_mismatch(self) -> Optional[Mismatch]:
        for (module, name), function in self._functions.items():
            if getattr(sys.modules.get(module), name, None) is not function:
                return Mismatch("the project replaces {}.{}, which preloaded modules use".format(module, name), [])
        return None


def _functions() -> Dict[Tuple[str, str], Any]:
    return {
        (module, name): value
        for module in OFTEN_PATCHED
        for name, value in vars(sys.modules.get(module, object)).items()
        if module in sys.modules and callable(value) and name not in PATCHED_BY_PYTEST
    }


def _files(root: str) -> Iterator[str]:
    """Yield the files that the modules of this process were read from, and the folders of installed packages."""
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
    """Return a value that changes when the file does; None if there is no file."""
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def libraries() -> FrozenSet[str]:
    """Return the shared objects of installed packages that this process has loaded."""
    try:
        with open("/proc/self/maps") as stream:
            files = {line.split(None, 5)[-1].strip() for line in stream}
    except OSError:
        return frozenset()
    return frozenset(file for file in files if ".so" in os.path.basename(file) and "-packages" + os.sep in file)


def _contains(file: str, word: bytes) -> bool:
    try:
        with open(file, "rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as content:
            return content.find(word) >= 0
    except (OSError, ValueError):
        return True  # gone or empty: assume the worst


class LearnedModules:
    """The modules that runs have imported, by interpreter, and those that a zygote must avoid."""

    def __init__(self, file: str) -> None:
        self._file = file
        self._modules: Dict[str, List[Tuple[str, bool]]] = {}
        self._avoid: List[str] = []
        try:
            with open(file) as stream:
                stored = json.load(stream)
            self._modules = {
                str(python): [(str(name), bool(is_rewritten)) for name, is_rewritten in rows]
                for python, rows in stored["modules"].items()
            }
            self._avoid = [str(name) for name in stored["avoid"]]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # missing or damaged: it is learned again

    def of(self, python: str) -> Dict[str, Any]:
        return {"modules": self._modules.get(python, []), "avoid": self._avoid}

    def add(self, python: str, names: List[Any]) -> None:
        known = self._modules.setdefault(python, [])
        known_names = {name for name, _ in known}
        new = [(row[0], bool(row[1])) for row in names if _is_name(row) and row[0] not in known_names]
        # Every run reports avoided modules again, because they are never preloaded.
        new = [row for row in new if not is_within(row[0], self._avoid)]
        if new:
            known += new
            self._save()

    def avoid(self, names: List[Any], python: str = "") -> bool:
        """Avoid these modules from now on.

        With `python`, do so only if it makes a difference: one of them is a plugin, or was learned from runs of that
        interpreter. Return whether they are avoided.
        """
        new = {str(name) for name in names} - set(self._avoid)
        learned = {name for name, _ in self._modules.get(python, [])}
        if python and not any(name in learned or name.startswith(NO_PLUGIN) for name in new):
            return False
        self._avoid = sorted({*self._avoid, *new})
        self._save()
        return True

    def is_empty(self, python: str) -> bool:
        return not self._modules.get(python)

    def avoid_all(self, python: str) -> None:
        self._avoid = sorted({*self._avoid, *(name.partition(".")[0] for name, _ in self._modules.get(python, []))})
        self._modules[python] = []
        self._save()

    def _save(self) -> None:
        try:
            with open(self._file + ".new", "w") as stream:
                json.dump({"modules": self._modules, "avoid": self._avoid}, stream)
            os.replace(self._file + ".new", self._file)
        except OSError:
            pass  # a full disk: the next agent learns it again


def is_within(name: str, modules: Iterable[str]) -> bool:
    """Return whether the module is one of these, or part of one."""
    return any(name == other or name.startswith(other + ".") for other in modules)


def _is_name(row: Any) -> bool:
    return isinstance(row, list) and len(row) == 2 and isinstance(row[0], str) and len(row[0]) < 500
