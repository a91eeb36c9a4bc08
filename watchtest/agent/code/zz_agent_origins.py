"""Where an object comes from that a function puts something into: told from its instructions. Runs nothing."""

from __future__ import annotations

from typing import NamedTuple, Optional, Tuple

from .instructions import (
    CACHE,
    CALLS,
    GLOBAL_SHIFT,
    LOAD_ATTR,
    LOAD_FREE,
    LOAD_GLOBAL,
    STORE_AND_LOAD,
    STORE_FAST,
    Body,
    argument_of,
    attribute_of,
    indexes,
    is_parameter,
    local_of,
    name_of,
    span,
    variable,
)

NOWHERE, IN_ALL, IN_ITSELF, IN_CLOSURE = "", "all", "self", "closure"
"""Where something is kept: nowhere, where everybody finds it, in the object that the function belongs to, or in a
variable of the function around it."""
CLASSES = frozenset({"cls", "klass", "kls", "mcs", "mcls", "metacls"})
"""What classes are called in methods of their own."""


class Origin(NamedTuple):
    """What an object was loaded from: the instruction, a name, and the attributes on the way."""

    operation: int
    name: str
    attributes: Tuple[str, ...]
    is_called: bool
    """Something was called on the way."""
    alias: str = ""
    """The local name that stands for it."""


NOBODY = Origin(CACHE, "", (), False)


def origin_of(body: Body, index: int, depth: int, may_be_alias: bool = True) -> Origin:
    root, slot, end = span(body, index, depth)
    if root is None:
        return NOBODY
    operation, argument = body.operations[root], argument_of(body, root)
    within = body.operations[root + 1 : end]
    is_called = not CALLS.isdisjoint(within)
    attributes = tuple(attribute_of(body, root + 1 + at) for at, one in enumerate(within) if one in LOAD_ATTR)
    if operation in LOAD_GLOBAL:
        return Origin(operation, name_of(body, argument >> GLOBAL_SHIFT), attributes, is_called)
    if operation in LOAD_FREE:
        return Origin(operation, variable(body, argument), attributes, is_called)
    name = local_of(body, operation, argument, slot)
    known = _alias(body, name) if may_be_alias and name and not is_parameter(body, name) else None
    if known is not None:
        return known._replace(attributes=known.attributes + attributes, is_called=is_called, alias=name)
    return Origin(operation, name, attributes, is_called)


def _alias(body: Body, name: str) -> Optional[Origin]:
    """What a local name stands for: `known = self.known`, `known = KNOWN`."""
    for store in STORE_FAST | STORE_AND_LOAD:
        for index in indexes(body, store):
            argument = argument_of(body, index)
            number = argument >> 4 if store in STORE_AND_LOAD else argument
            if number < len(body.code.co_varnames) and body.code.co_varnames[number] == name:
                origin = origin_of(body, index, 1, may_be_alias=False)
                if not origin.is_called and kind_of(body, origin):
                    return origin
    return None


def kind_of(body: Body, origin: Origin) -> str:
    """Where something is kept that is kept in what was loaded from there."""
    if origin.operation in LOAD_GLOBAL or origin.name in CLASSES or "__class__" in (origin.name, *origin.attributes):
        return IN_ALL
    if origin.operation in LOAD_FREE:
        return IN_CLOSURE if origin.name in body.code.co_freevars else NOWHERE
    return IN_ITSELF if origin.name == "self" else NOWHERE
