"""Where the modules of this process come from: the project, an installed package, or created at run time."""

from __future__ import annotations

import functools
import os
import sys
from os.path import realpath
from typing import Any, Callable, FrozenSet, List, Optional, Tuple

from .rows import ProjectModulesRow, RowKind


def third_party(known: FrozenSet[str], root: str) -> List[Tuple[str, bool]]:
    """Return the imported modules that are neither in `known` nor of the project, with whether pytest rewrote them."""
    own_files = os.path.dirname(os.path.abspath(__file__))
    found = []
    for name, module in list(sys.modules.items()):
        if name in known or name.startswith(("watchtest_", "__main__", "__mp_main__")):
            continue
        paths = paths_of(getattr(module, "__spec__", None))
        # The project may have created a module without a file at run time; a real import would not find it.
        if paths and not any(is_below(path, root) or is_below(path, own_files) for path in paths):
            found.append((name, is_rewritten(module)))
    return found


def project_modules_row(own: Callable[[str], str]) -> ProjectModulesRow:
    """Return a row with the files of the project's modules and the top-level names of all modules.

    `own` returns a path relative to the project, or "" for a path outside it.
    """
    modules = {}
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        for path in paths_of(spec)[:1] if spec is not None and spec.has_location else ():
            own_path = own(path)
            if own_path:
                modules[name] = own_path
    tops = sorted({name.partition(".")[0] for name in list(sys.modules)})
    return ProjectModulesRow(k=RowKind.PROJECT_MODULES, modules=modules, tops=tops)


def is_rewritten(module: Any) -> bool:
    return is_rewriter(getattr(getattr(module, "__spec__", None), "loader", None))


def is_rewriter(finder: Any) -> bool:
    return type(finder).__name__ == "AssertionRewritingHook"


def is_of_project(module: Any, root: str) -> bool:
    return any(is_below(path, root) for path in paths_of(getattr(module, "__spec__", None)))


def paths_of(spec: Any) -> List[str]:
    """Return the files and folders that a module comes from."""
    if spec is None:
        return []
    paths = [spec.origin] if spec.has_location and spec.origin else []
    try:
        return paths + [str(path) for path in spec.submodule_search_locations or ()]
    except Exception:  # noqa: BLE001  a custom namespace object may raise anything
        return paths


def is_below(path: str, root: str) -> bool:
    return (real_folder(os.path.dirname(path)) + os.sep).startswith(root + os.sep)


@functools.lru_cache(maxsize=None)
def real_folder(folder: str) -> str:
    """Resolve a folder, cached: hundreds of modules come from a few folders."""
    return realpath(folder)


def cache_folders() -> None:
    """Resolve the folders of all imported modules ahead of time, so that forked processes find them in the cache."""
    for module in list(sys.modules.values()):
        for path in paths_of(getattr(module, "__spec__", None)):
            real_folder(os.path.dirname(path))


def find_spec(name: str) -> Any:
    """Return the spec of a top-level module, as if it were not imported yet."""
    for finder in sys.meta_path:
        if not is_rewriter(finder) and hasattr(finder, "find_spec"):
            try:
                spec = finder.find_spec(name, None)
            except Exception:  # noqa: BLE001  a finder of the project may raise anything
                continue
            if spec is not None:
                return spec
    return None


def spec_origin(spec: Any) -> Optional[Tuple[str, ...]]:
    return None if spec is None else tuple(sorted(paths_of(spec))) or (str(spec.origin),)
