"""Which functions keep what they find out for those who come later: told from their instructions. Runs nothing.

They write a global name, an item of something that a global name or a class holds, a name or an item of the function
around them, or an attribute of which they ask first whether it is there. Whoever calls such a function second depends
on what ran for the first, and never runs it.

Which functions change what everybody finds, and leave it so when they have ended: told from instructions.

They set or remove something in an object that a global name holds: a setting, a registry, the environment. Who changes
such a function may change what later tests find, though they never enter it.
"""

from __future__ import annotations

import builtins
import inspect
from types import CodeType
from typing import FrozenSet, Iterator

from .decorators import COMPREHENSIONS, NO_HINT, Hint
from .instructions import (
    ALL_STORES,
    ASKS,
    CACHE,
    COMPARES,
    CONSTANT,
    COPY,
    EXTENDED,
    GLOBAL_WRITES,
    IN,
    IN_ALL,
    IN_CLOSURE,
    IN_ITSELF,
    LOAD_ATTR,
    LOAD_FAST,
    LOAD_FREE,
    LOAD_GLOBAL,
    NOT_IN,
    NOWHERE,
    STORE_ATTR,
    STORE_FREE,
    STORE_ITEM,
    Body,
    Origin,
    argument_of,
    attribute_of,
    indexes,
    is_none,
    is_parameter,
    kind_of,
    name_of,
    origin_of,
    span,
    times,
    variable,
)

TELLING = ("cache", "memo")
"""What such things are called."""
BEGINNINGS = ("__init__", "__new__", "__post_init__")
"""Where an object is made, nothing is kept in it yet."""
WHEN_MISSING = ("__getattr__", "__missing__")
"""Called when there is nothing yet: no need to ask."""
PLAIN = frozenset(dir(builtins)) - {"globals", "vars", "type"} | {"os", "sys"}
"""Names that everybody calls and nobody keeps anything in, but for a moment."""
PUTTING = frozenset(
    {"add", "append", "appendleft", "extend", "insert", "put", "set", "setdefault", "update", "__setitem__"}
)
"""Methods by which something is put into a container."""
SETTING = frozenset({"setattr", "__setattr__"})


def keeps(code: CodeType, hint: Hint = NO_HINT) -> str:
    """Where it keeps what others may see who never enter it."""
    if hint.where:
        return hint.where
    body = Body.of(code)
    found = ALL_STORES.intersection(body.operations)
    names = frozenset(code.co_names)
    if found & GLOBAL_WRITES:
        return IN_ALL
    if not (found or names & PUTTING or names & SETTING):
        return NOWHERE
    if code.co_flags & inspect.CO_GENERATOR or code.co_name in COMPREHENSIONS:
        return NOWHERE  # what generators set is mostly set back when they end
    places = {_by_name(body, names), *_stores(body, found, hint), *(_puts(body) if names & PUTTING else ())}
    if IN_ALL in places:
        return IN_ALL
    if IN_CLOSURE in places:
        return IN_CLOSURE
    return IN_ITSELF if IN_ITSELF in places and code.co_name not in BEGINNINGS else NOWHERE


def _stores(body: Body, found: FrozenSet[int], hint: Hint) -> Iterator[str]:
    for store in found:
        for index in indexes(body, store):
            if store in STORE_ITEM:
                yield _in_container(body, index, hint)
            else:
                yield _in_closure(body, index) if store in STORE_FREE else _in_attribute(body, index)


def _in_closure(body: Body, index: int) -> str:
    """`nonlocal x`, and it is asked for."""
    name = variable(body, argument_of(body, index))
    return IN_CLOSURE if name in body.code.co_freevars and times(body, LOAD_FREE, name) else NOWHERE


def _in_container(body: Body, index: int, hint: Hint) -> str:
    """`G[x] = …`, `cls.x[y] = …`, `if y not in self.x: self.x[y] = …`"""
    origin = origin_of(body, index, 2)
    kind = kind_of(body, origin)
    if kind == IN_CLOSURE:
        return IN_CLOSURE if times(body, LOAD_FREE, origin.name) > 1 else NOWHERE
    if kind == IN_ALL:
        return IN_ALL if origin.operation not in LOAD_GLOBAL or origin.name not in PLAIN else NOWHERE
    names = [origin.name, *origin.attributes]
    is_telling = "__dict__" in names or any(word in name.lower() for name in names for word in TELLING)
    if kind == IN_ITSELF:
        is_telling = is_telling or body.code.co_name in WHEN_MISSING
        return IN_ITSELF if is_telling or _is_looked_into(body, origin) else NOWHERE
    is_default = hint.has_fresh and is_parameter(body, origin.name) and times(body, LOAD_FAST, origin.name) > 1
    return IN_ALL if is_telling or is_default else NOWHERE


def _in_attribute(body: Body, index: int) -> str:
    """`if self.x is None: self.x = …`, `if not hasattr(G, "x"): G.x = …`, `cls.x = …`"""
    origin = origin_of(body, index, 1)
    kind = kind_of(body, origin)
    if kind == IN_ALL and (origin.operation not in LOAD_GLOBAL or origin.name == "type"):
        return IN_ALL
    if kind == NOWHERE or (kind == IN_ALL and origin.name in PLAIN):
        return NOWHERE
    value, _, _ = span(body, index, 2)
    if value is not None and is_none(body, value):
        return NOWHERE  # to store None keeps nothing
    name = name_of(body, argument_of(body, index))
    is_missing = kind == IN_ITSELF and body.code.co_name in WHEN_MISSING
    return kind if is_missing or _is_tested(body, name) else NOWHERE


def _puts(body: Body) -> Iterator[str]:
    """`if not G: G.update(…)`, `if x not in self.x: self.x.add(…)`"""
    for load in LOAD_ATTR:
        for index in indexes(body, load):
            if attribute_of(body, index) in PUTTING:
                origin = origin_of(body, index, 1)
                if not origin.is_called:
                    yield _put(body, origin)


def _put(body: Body, origin: Origin) -> str:
    kind = kind_of(body, origin)
    if kind == IN_CLOSURE:
        return IN_CLOSURE if times(body, LOAD_FREE, origin.name) > 1 else NOWHERE
    if kind == IN_ALL and origin.operation in LOAD_GLOBAL:
        return IN_ALL if origin.name not in PLAIN and times(body, LOAD_GLOBAL, origin.name) > 1 else NOWHERE
    return kind if kind and _is_looked_into(body, origin) else NOWHERE


def _by_name(body: Body, names: FrozenSet[str]) -> str:
    """`if not hasattr(self, name): setattr(self, name, …)`"""
    is_of_object = body.code.co_varnames[:1] == ("self",)
    if not names & SETTING or not (body.code.co_name in WHEN_MISSING or names & {"hasattr", "AttributeError"}):
        return NOWHERE
    return IN_ITSELF if is_of_object else IN_ALL if body.code.co_name in WHEN_MISSING else NOWHERE


# -- whether it is asked for first -------------------------------------------------------------------


def _is_tested(body: Body, name: str) -> bool:
    """Whether it is asked, anywhere, if there is such an attribute, or what it holds."""
    names = body.code.co_names
    if ("hasattr" in names or "getattr" in names) and name in body.code.co_consts:
        return True
    if name not in names:
        return False
    is_tried = "AttributeError" in names or "KeyError" in names
    for load in LOAD_ATTR:
        for index in indexes(body, load):
            if attribute_of(body, index) == name and (is_tried or _is_asked(body, index)):
                return True
    return False


def _is_looked_into(body: Body, origin: Origin) -> bool:
    """The same of an attribute or of a local name that holds a container."""
    if origin.alias:
        return times(body, LOAD_FAST, origin.alias) > 1
    return any(_is_tested(body, name) for name in origin.attributes[:1])


def _is_asked(body: Body, index: int) -> bool:
    """Whether what was loaded there is looked into at once."""
    following = [
        at
        for at in range(index + 1, min(index + 24, len(body.operations)))
        if body.operations[at] != CACHE and body.operations[at] != EXTENDED
    ]
    if len(following) < 2:
        return False
    first, second = (body.operations[at] for at in following[:2])
    if first in COPY:
        first, second = second, CACHE
    if first in ASKS or (first in COMPARES and argument_of(body, following[0]) in (IN, NOT_IN)):
        return True
    if first in LOAD_ATTR:
        return attribute_of(body, following[0]) == "get"
    return first in CONSTANT and second in COMPARES and is_none(body, following[0])


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
