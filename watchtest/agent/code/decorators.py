"""What the code around a function says of it: decorators that keep what it gives, defaults that it can keep things in.

Told from instructions. Runs nothing.
"""

from __future__ import annotations

import functools
import re
from types import CodeType
from typing import Dict, List, NamedTuple

from ..record.scopes import identity
from .instructions import (
    CONSTANT,
    ENDS_OF_STATEMENTS,
    EXTENDED,
    FRESH,
    GLOBAL_SHIFT,
    IN_ALL,
    IN_ITSELF,
    LOAD_ATTR,
    LOAD_GLOBAL,
    LOAD_NAME,
    MAKE,
    NOWHERE,
    SET_PART,
    Body,
    argument_of,
    attribute_of,
    indexes,
    name_of,
    span,
)

COMPREHENSIONS = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")
KEEPING = re.compile(r"cache|memo(?!ry)|lazy|singleton|^once|once$|jit$")
"""What decorators are called that do not call what they decorate each time."""
PASSING_ON = frozenset({"never_cache", "cache_control"})


@functools.lru_cache(maxsize=None)
def is_telling(name: str) -> bool:
    return KEEPING.search(name.lower()) is not None


class Hint(NamedTuple):
    """What the code around a function says of it."""

    where: str = NOWHERE
    """Where its decorator keeps what it gives, by the decorator's name."""
    has_fresh: bool = False
    """There are empty containers among its defaults."""


NO_HINT = Hint()


def hints(around: CodeType) -> Dict[int, Hint]:
    """What a code object says of the functions in it, by their identities; those of which it says nothing left out."""
    body = Body.of(around)
    if FRESH.isdisjoint(body.operations) and not any(map(is_telling, around.co_names)):
        return {}
    found: Dict[int, Hint] = {}
    for load in CONSTANT:
        for index in indexes(body, load):
            inner = around.co_consts[argument_of(body, index)]
            if isinstance(inner, CodeType) and inner.co_name not in COMPREHENSIONS:
                hint = _hint(body, index)
                if hint != NO_HINT:
                    found[identity(inner)] = hint
    return found


def _hint(body: Body, index: int) -> Hint:
    """Of the function whose code is loaded there. Before it come its decorators, then defaults and annotations."""
    count = _extras(body, index)
    start = span(body, index, count)[0] if count else index
    if start is None:
        return NO_HINT
    words = []
    for before in range(start - 1, -1, -1):
        operation = body.operations[before]
        if operation in ENDS_OF_STATEMENTS:
            break
        if operation in LOAD_ATTR:
            words.append(attribute_of(body, before))
        elif operation in LOAD_NAME or operation in LOAD_GLOBAL:
            words.append(name_of(body, argument_of(body, before) >> (GLOBAL_SHIFT if operation in LOAD_GLOBAL else 0)))
    has_fresh = any(body.operations[at] in FRESH and argument_of(body, at) == 0 for at in range(start, index))
    return Hint(_kept_by(words), has_fresh)


def _extras(body: Body, index: int) -> int:
    """How many things are put on the stack for a function before its code is: defaults, annotations, variables."""
    following = iter(range(index + 1, len(body.operations)))
    make = next((at for at in following if body.operations[at] in MAKE), None)
    if make is None:
        return 0
    if not SET_PART:
        return bin(argument_of(body, make) & 15).count("1")
    count = 0
    for at in following:
        if body.operations[at] in SET_PART:
            count += 1
        elif body.operations[at] != EXTENDED:
            break
    return count


def _kept_by(words: List[str]) -> str:
    telling = [word for word in words if word not in PASSING_ON and is_telling(word)]
    if not telling:
        return NOWHERE
    return IN_ITSELF if any("property" in word.lower() for word in telling) else IN_ALL
