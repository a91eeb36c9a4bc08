"""Which functions change what everybody finds, and leave it so when they have ended: told from instructions.

They set or remove something in an object that a global name holds: a setting, a registry, the environment. Who changes
such a function may change what later tests find, though they never enter it.
"""

from __future__ import annotations

import builtins
from types import CodeType

from .caching import PUTTING
from .instructions import LOAD_ATTR, LOAD_GLOBAL, STORE_ATTR, STORE_ITEM, Body, attribute_of, indexes
from .zz_agent_origins import Origin, origin_of

TAKING = frozenset({"clear", "discard", "pop", "popitem", "popleft", "remove", "__delitem__"})
"""Methods by which something is taken out of a container."""
ELSEWHERE = frozenset(dir(builtins))
"""Names of functions and classes that nobody changes."""


def leaves_something(code: CodeType) -> bool:
    body = Body.of(code)
    if LOAD_GLOBAL.isdisjoint(body.operations):
        return False
    for stores, depth in ((STORE_ATTR, 1), (STORE_ITEM, 2)):
        for store in stores:
            if any(_is_for_all(origin_of(body, index, depth)) for index in indexes(body, store)):
                return True
    if (PUTTING | TAKING).isdisjoint(code.co_names):
        return False
    return any(
        _is_container_for_all(origin_of(body, index, 1))
        for load in LOAD_ATTR
        for index in indexes(body, load)
        if attribute_of(body, index) in PUTTING or attribute_of(body, index) in TAKING
    )


def _is_container_for_all(origin: Origin) -> bool:
    is_system = origin.name == "os" and not origin.attributes  # os.remove(path) takes nothing out of it
    return _is_for_all(origin) and not is_system


def _is_for_all(origin: Origin) -> bool:
    return origin.operation in LOAD_GLOBAL and origin.name not in ELSEWHERE and not origin.is_called
