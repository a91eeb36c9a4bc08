"""What the enclosing code tells about a function: decorators that cache its results, defaults that may hold a cache.

Reads instructions. Runs nothing.
"""

from __future__ import annotations

import functools
import re
from types import CodeType
from typing import Dict, List, NamedTuple

from ..record.scopes import identity
from . import opcodes
from .instructions import IN_INSTANCE, IN_SHARED, NOT_CACHED, Body

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
CACHING_NAME = re.compile(r"cache|memo(?!ry)|lazy|singleton|^once|once$|jit$")
"""Matches names of decorators that do not call the decorated function each time."""
NON_CACHING = frozenset({"never_cache", "cache_control"})


@functools.lru_cache(maxsize=None)
def suggests_caching(name: str) -> bool:
    return CACHING_NAME.search(name.lower()) is not None


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
    if opcodes.NEW_CONTAINERS.isdisjoint(body.operations) and not any(map(suggests_caching, enclosing.co_names)):
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
        operation = body.operations[before]
        if operation in opcodes.STATEMENT_ENDS:
            break
        if operation in opcodes.LOAD_ATTR:
            words.append(body.attribute(before))
        elif operation in opcodes.LOAD_NAME or operation in opcodes.LOAD_GLOBAL:
            words.append(
                body.name(body.argument(before) >> (opcodes.GLOBAL_SHIFT if operation in opcodes.LOAD_GLOBAL else 0))
            )
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


def _cached_by(words: List[str]) -> str:
    telling = [word for word in words if word not in NON_CACHING and suggests_caching(word)]
    if not telling:
        return NOT_CACHED
    return IN_INSTANCE if any("property" in word.lower() for word in telling) else IN_SHARED
