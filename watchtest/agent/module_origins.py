"""Where the modules of this process come from: of the project, installed beside it, or made up."""

from __future__ import annotations

import functools
import os
import sys
from os.path import realpath
from typing import Any, Callable, Dict, FrozenSet, List, Optional, Tuple


def third_party(known: FrozenSet[str], root: str) -> List[Tuple[str, bool]]:
    """The modules of this process that are neither known nor of the project, as `modules` of a later warm-up."""
    own_files = os.path.dirname(os.path.abspath(__file__))
    found = []
    for name, module in list(sys.modules.items()):
        if name in known or name.startswith(("watchtest_", "__main__", "__mp_main__")):
            continue
        places = places_of(getattr(module, "__spec__", None))
        # What has no file may have been made up by the project; a real import would not find it.
        if places and not any(is_below(place, root) or is_below(place, own_files) for place in places):
            found.append((name, is_rewritten(module)))
    return found


def of_project(own: Callable[[str], str]) -> Dict[str, Any]:
    """A row: where the modules of the project lie, and how all modules that there are begin. `own`: "" for others."""
    modules = {}
    for name, module in list(sys.modules.items()):
        spec = getattr(module, "__spec__", None)
        for place in places_of(spec)[:1] if spec is not None and spec.has_location else ():
            path = own(place)
            if path:
                modules[name] = path
    tops = sorted({name.partition(".")[0] for name in list(sys.modules)})
    return {"k": "modules_of_project", "modules": modules, "tops": tops}


def is_rewritten(module: Any) -> bool:
    return is_rewriter(getattr(getattr(module, "__spec__", None), "loader", None))


def is_rewriter(finder: Any) -> bool:
    return type(finder).__name__ == "AssertionRewritingHook"


def is_of(module: Any, root: str) -> bool:
    return any(is_below(place, root) for place in places_of(getattr(module, "__spec__", None)))


def places_of(spec: Any) -> List[str]:
    """The files and folders that a module comes from."""
    if spec is None:
        return []
    places = [spec.origin] if spec.has_location and spec.origin else []
    try:
        return places + [str(place) for place in spec.submodule_search_locations or ()]
    except Exception:  # noqa: BLE001  a namespace of somebody's own making
        return places


def is_below(place: str, root: str) -> bool:
    return (real_folder(os.path.dirname(place)) + os.sep).startswith(root + os.sep)


@functools.lru_cache(maxsize=None)
def real_folder(folder: str) -> str:
    """Hundreds of modules come from a few folders."""
    return realpath(folder)


def know_folders() -> None:
    """Of all modules that there are, ahead of time: who is forked from here need not ask again."""
    for module in list(sys.modules.values()):
        for place in places_of(getattr(module, "__spec__", None)):
            real_folder(os.path.dirname(place))


def spec_of(name: str) -> Any:
    """The spec of a top-level module, as if it were not imported yet."""
    for finder in sys.meta_path:
        if not is_rewriter(finder) and hasattr(finder, "find_spec"):
            try:
                spec = finder.find_spec(name, None)
            except Exception:  # noqa: BLE001  a finder of the project's
                continue
            if spec is not None:
                return spec
    return None


def origin_of(spec: Any) -> Optional[Tuple[str, ...]]:
    return None if spec is None else tuple(sorted(places_of(spec))) or (str(spec.origin),)
