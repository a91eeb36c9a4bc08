"""Finds functions that cache results, or that change global state, from their instructions. Runs nothing.

A caching function writes a global name, an item of a container in a global name or a class, a variable or an item of
the enclosing function, or an attribute after checking whether it is there. Its second caller depends on what ran for
the first one, without running it.

A function that changes global state sets or removes something in an object that a global name holds: a setting, a
registry, the environment. A change of such a function may affect later tests that never enter it.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import re
from types import CodeType
from typing import Dict, FrozenSet, Iterator, List, NamedTuple

from ..record.scopes import identity
from . import opcodes
from .instructions import IN_CLOSURE, IN_INSTANCE, IN_SHARED, NOT_CACHED, Body, Origin

BUILTINS = frozenset(dir(builtins))
COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
CACHING_DECORATOR = re.compile(r"cache|memo(?!ry)|lazy|singleton|^once|once$|jit$")
"""Matches names of decorators that do not call the decorated function each time."""
NON_CACHING_DECORATORS = frozenset({"never_cache", "cache_control"})
CACHE_WORDS = ("cache", "memo")
"""Parts of the names of caches."""
INITIALIZERS = ("__init__", "__new__", "__post_init__")
"""In these methods, nothing is cached in the object yet."""
WHEN_MISSING = ("__getattr__", "__missing__")
"""Methods that are only called for a missing value, so they need not check for it."""
NEVER_CACHES = BUILTINS - {"globals", "vars", "type"} | {"os", "sys"}
"""Names that are used everywhere and never hold a cache."""
ADDING_METHODS = frozenset(
    {"add", "append", "appendleft", "extend", "insert", "put", "set", "setdefault", "update", "__setitem__"}
)
"""Methods that add something to a container."""
SETATTR_NAMES = frozenset({"setattr", "__setattr__"})


# -- what the enclosing code tells -------------------------------------------------------------------


class Hint(NamedTuple):
    """What the enclosing code tells about a function."""

    where: str = NOT_CACHED
    """Where its decorator caches results, judged by the decorator's name."""
    has_container_default: bool = False
    """A parameter defaults to an empty container."""


NO_HINT = Hint()


def hints(enclosing: CodeType) -> Dict[int, Hint]:
    """Return what a code object tells about the functions in it, by their identities; without empty hints."""
    body = Body.of(enclosing)
    if opcodes.NEW_CONTAINERS.isdisjoint(body.operations) and not any(map(_is_caching_decorator, enclosing.co_names)):
        return {}
    found: Dict[int, Hint] = {}
    for load in opcodes.CONSTANT:
        for index in body.indexes(load):
            inner = enclosing.co_consts[body.argument(index)]
            if isinstance(inner, CodeType) and inner.co_name not in COMPREHENSIONS:
                hint = _hint(body, index)
                if hint != NO_HINT:
                    found[identity(inner)] = hint
    return found


def _hint(body: Body, index: int) -> Hint:
    """Return the hint for the function whose code is loaded there, after its decorators, defaults and annotations."""
    count = _count_extras(body, index)
    start = body.span(index, count)[0] if count else index
    if start is None:
        return NO_HINT
    words = []
    for before in range(start - 1, -1, -1):
        if body.operations[before] in opcodes.STATEMENT_ENDS:
            break
        words.append(body.loaded_name(before))
    has_container_default = any(
        body.operations[at] in opcodes.NEW_CONTAINERS and body.argument(at) == 0 for at in range(start, index)
    )
    return Hint(_cached_by(words), has_container_default)


def _count_extras(body: Body, index: int) -> int:
    """Return how many values are on the stack for a function before its code: defaults, annotations, variables."""
    following = iter(range(index + 1, len(body.operations)))
    make = next((at for at in following if body.operations[at] in opcodes.MAKE_FUNCTION), None)
    if make is None:
        return 0
    if not opcodes.SET_ATTRIBUTE:
        return bin(body.argument(make) & 15).count("1")
    count = 0
    for at in following:
        if body.operations[at] in opcodes.SET_ATTRIBUTE:
            count += 1
        elif body.operations[at] != opcodes.EXTENDED:
            break
    return count


@functools.lru_cache(maxsize=None)
def _is_caching_decorator(name: str) -> bool:
    return CACHING_DECORATOR.search(name.lower()) is not None


def _cached_by(words: List[str]) -> str:
    telling = [word for word in words if word not in NON_CACHING_DECORATORS and _is_caching_decorator(word)]
    if not telling:
        return NOT_CACHED
    return IN_INSTANCE if any("property" in word.lower() for word in telling) else IN_SHARED


# -- where a function stores -------------------------------------------------------------------------


def cache_location(code: CodeType, hint: Hint = NO_HINT) -> str:
    """Return where the function caches what others may get without entering it."""
    if hint.where:
        return hint.where
    body = Body.of(code)
    found = opcodes.ALL_STORES.intersection(body.operations)
    names = frozenset(code.co_names)
    if found & opcodes.GLOBAL_WRITES:
        return IN_SHARED
    if not (found or names & ADDING_METHODS or names & SETATTR_NAMES):
        return NOT_CACHED
    if code.co_flags & inspect.CO_GENERATOR or code.co_name in COMPREHENSIONS:
        return NOT_CACHED  # generators usually restore what they set
    places = {
        _by_setattr(body, names),
        *_stores(body, found, hint),
        *(_additions(body) if names & ADDING_METHODS else ()),
    }
    if code.co_name in INITIALIZERS:
        places.discard(IN_INSTANCE)
    return next((place for place in (IN_SHARED, IN_CLOSURE, IN_INSTANCE) if place in places), NOT_CACHED)


def _stores(body: Body, found: FrozenSet[int], hint: Hint) -> Iterator[str]:
    for store in found:
        for index in body.indexes(store):
            if store in opcodes.STORE_ITEM:
                yield _in_container(body, index, hint)
            else:
                yield _in_closure(body, index) if store in opcodes.STORE_FREE else _in_attribute(body, index)


def _in_closure(body: Body, index: int) -> str:
    """`nonlocal x`, and it is loaded."""
    name = body.variable(body.argument(index))
    return IN_CLOSURE if name in body.code.co_freevars and body.count_loads(opcodes.LOAD_FREE, name) else NOT_CACHED


def _in_container(body: Body, index: int, hint: Hint) -> str:
    """Find `G[x] = …`, `cls.x[y] = …`, `if y not in self.x: self.x[y] = …`."""
    origin = body.origin(index, 2)
    kind = body.storage(origin)
    names = [origin.name, *origin.attributes]
    has_cache_name = "__dict__" in names or any(word in name.lower() for name in names for word in CACHE_WORDS)
    if kind == IN_CLOSURE:
        is_cache = body.count_loads(opcodes.LOAD_FREE, origin.name) > 1
    elif kind == IN_SHARED:
        is_cache = origin.operation not in opcodes.LOAD_GLOBAL or origin.name not in NEVER_CACHES
    elif kind == IN_INSTANCE:
        is_cache = has_cache_name or body.code.co_name in WHEN_MISSING or _is_container_tested(body, origin)
    else:
        is_default = hint.has_container_default and body.is_parameter(origin.name)
        is_cache = has_cache_name or (is_default and body.count_loads(opcodes.LOAD_FAST, origin.name) > 1)
        kind = IN_SHARED
    return kind if is_cache else NOT_CACHED


def _in_attribute(body: Body, index: int) -> str:
    """Find `if self.x is None: self.x = …`, `if not hasattr(G, "x"): G.x = …`, `cls.x = …`."""
    origin = body.origin(index, 1)
    kind = body.storage(origin)
    if kind == IN_SHARED and (origin.operation not in opcodes.LOAD_GLOBAL or origin.name == "type"):
        return IN_SHARED
    if kind == NOT_CACHED or (kind == IN_SHARED and origin.name in NEVER_CACHES):
        return NOT_CACHED
    value, _, _ = body.span(index, 2)
    if value is not None and body.is_none(value):
        return NOT_CACHED  # storing None caches nothing
    name = body.name(body.argument(index))
    is_missing = kind == IN_INSTANCE and body.code.co_name in WHEN_MISSING
    return kind if is_missing or _is_attribute_tested(body, name) else NOT_CACHED


def _additions(body: Body) -> Iterator[str]:
    """Find `if not G: G.update(…)`, `if x not in self.x: self.x.add(…)`."""
    for load in opcodes.LOAD_ATTR:
        for index in body.indexes(load):
            if body.loaded_name(index) in ADDING_METHODS:
                origin = body.origin(index, 1)
                if not origin.is_called:
                    yield _addition(body, origin)


def _addition(body: Body, origin: Origin) -> str:
    kind = body.storage(origin)
    if kind == IN_CLOSURE:
        is_cache = body.count_loads(opcodes.LOAD_FREE, origin.name) > 1
    elif kind == IN_SHARED and origin.operation in opcodes.LOAD_GLOBAL:
        is_cache = origin.name not in NEVER_CACHES and body.count_loads(opcodes.LOAD_GLOBAL, origin.name) > 1
    else:
        is_cache = _is_container_tested(body, origin)
    return kind if is_cache else NOT_CACHED


def _by_setattr(body: Body, names: FrozenSet[str]) -> str:
    """Find `if not hasattr(self, name): setattr(self, name, …)`."""
    is_of_object = body.code.co_varnames[:1] == ("self",)
    if not names & SETATTR_NAMES or not (body.code.co_name in WHEN_MISSING or names & {"hasattr", "AttributeError"}):
        return NOT_CACHED
    return IN_INSTANCE if is_of_object else IN_SHARED if body.code.co_name in WHEN_MISSING else NOT_CACHED


# -- whether a value is checked first ----------------------------------------------------------------


def _is_attribute_tested(body: Body, name: str) -> bool:
    """Return whether the function checks anywhere if there is such an attribute, or tests its value."""
    names = body.code.co_names
    if ("hasattr" in names or "getattr" in names) and name in body.code.co_consts:
        return True
    if name not in names:
        return False
    is_tried = "AttributeError" in names or "KeyError" in names
    for load in opcodes.LOAD_ATTR:
        for index in body.indexes(load):
            if body.loaded_name(index) == name and (is_tried or _is_value_tested(body, index)):
                return True
    return False


def _is_container_tested(body: Body, origin: Origin) -> bool:
    """Return whether the function checks the contents of this container."""
    if origin.alias:
        return body.count_loads(opcodes.LOAD_FAST, origin.alias) > 1
    return any(_is_attribute_tested(body, name) for name in origin.attributes[:1])


def _is_value_tested(body: Body, index: int) -> bool:
    """Return whether the value that is loaded there is tested by the next instructions."""
    following = [
        at
        for at in range(index + 1, min(index + 24, len(body.operations)))
        if body.operations[at] != opcodes.CACHE and body.operations[at] != opcodes.EXTENDED
    ]
    if len(following) < 2:
        return False
    first, second = (body.operations[at] for at in following[:2])
    if first in opcodes.COPY:
        first, second = second, opcodes.CACHE
    if first in opcodes.TESTS or (
        first in opcodes.COMPARISONS and body.argument(following[0]) in (opcodes.IN, opcodes.NOT_IN)
    ):
        return True
    if first in opcodes.LOAD_ATTR:
        return body.loaded_name(following[0]) == "get"
    return first in opcodes.CONSTANT and second in opcodes.COMPARISONS and body.is_none(following[0])


REMOVING_METHODS = frozenset({"clear", "discard", "pop", "popitem", "popleft", "remove", "__delitem__"})
"""Methods that remove something from a container."""


def changes_global_state(code: CodeType) -> bool:
    """Return whether the function changes an object that a global name holds."""
    body = Body.of(code)
    if opcodes.LOAD_GLOBAL.isdisjoint(body.operations):
        return False
    for stores, depth in ((opcodes.STORE_ATTR, 1), (opcodes.STORE_ITEM, 2)):
        for store in stores:
            if any(_is_shared(body.origin(index, depth)) for index in body.indexes(store)):
                return True
    if (ADDING_METHODS | REMOVING_METHODS).isdisjoint(code.co_names):
        return False
    return any(
        _is_shared_container(body.origin(index, 1))
        for load in opcodes.LOAD_ATTR
        for index in body.indexes(load)
        if body.loaded_name(index) in ADDING_METHODS or body.loaded_name(index) in REMOVING_METHODS
    )


def _is_shared_container(origin: Origin) -> bool:
    is_system = origin.name == "os" and not origin.attributes  # os.remove(path) is no method of a container
    return _is_shared(origin) and not is_system


def _is_shared(origin: Origin) -> bool:
    return origin.operation in opcodes.LOAD_GLOBAL and origin.name not in BUILTINS and not origin.is_called
