"""Which functions keep what they find out for those who come later: told from their instructions. Runs nothing.

They write a global name, an item of something that a global name or a class holds, or an attribute that was None until
then. Whoever calls such a function second depends on what ran for the first, and never runs it.
"""

from __future__ import annotations

import builtins
import dis
import inspect
from types import CodeType
from typing import FrozenSet, Iterable, NamedTuple, Optional, Tuple

NOWHERE, IN_ALL, IN_ITSELF = "", "all", "self"
"""Where it is kept: nowhere, where everybody finds it, or in the object that the function belongs to."""
TELLING = ("cache", "memo")
"""What such things are called."""
BEGINNINGS = ("__init__", "__new__", "__post_init__")
"""Where an object is made, nothing is kept in it yet."""
PLAIN = frozenset(dir(builtins)) - {"globals", "vars", "type"} | {"os", "sys"}
"""Names that everybody calls and nobody keeps anything in, but for a moment."""


def _named(*names: str) -> FrozenSet[int]:
    return frozenset(dis.opmap[name] for name in names if name in dis.opmap)


GLOBAL_WRITES = _named("STORE_GLOBAL", "DELETE_GLOBAL")
STORE_ATTR, STORE_ITEM = _named("STORE_ATTR", "DELETE_ATTR"), _named("STORE_SUBSCR", "DELETE_SUBSCR")
LOAD_ATTR, LOAD_GLOBAL = _named("LOAD_ATTR", "LOAD_METHOD"), _named("LOAD_GLOBAL")
LOAD_FAST = _named("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK")
TWO_AT_ONCE = _named("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
STORE_AND_LOAD = _named("STORE_FAST_LOAD_FAST")
EXTENDED = dis.opmap["EXTENDED_ARG"]
WITH_ARGUMENT = frozenset(getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256)))
IF_NONE = frozenset(code for name, code in dis.opmap.items() if name.startswith("POP_JUMP") and "NONE" in name)
COMPARES = _named("IS_OP", "COMPARE_OP")
CONSTANT = _named("LOAD_CONST")
CACHE = 0
ATTR_SHIFT = 1 if "LOAD_METHOD" not in dis.opmap or dis.opmap["LOAD_METHOD"] > 255 else 0
"""From 3.12 on the lowest bit of an attribute's number says whether it is called."""
GLOBAL_SHIFT = 1 if "PUSH_NULL" in dis.opmap else 0
"""The same of a global name, from 3.11 on."""
ALL_STORES = GLOBAL_WRITES | STORE_ATTR | STORE_ITEM


class Body(NamedTuple):
    """A code object and its instructions, which Python makes anew each time that they are asked for."""

    code: CodeType
    data: bytes
    operations: bytes


def keeps(code: CodeType) -> str:
    """Where it keeps what others may see who never enter it."""
    data = code.co_code
    operations = data[::2]
    found = ALL_STORES.intersection(operations)
    if found & GLOBAL_WRITES:
        return IN_ALL
    if not found or code.co_flags & inspect.CO_GENERATOR:  # what those set is mostly set back when they end
        return NOWHERE
    is_in_itself = False
    body = Body(code, data, operations)
    for store in found:
        look = _in_container if store in STORE_ITEM else _in_attribute
        index = operations.find(store)
        while index >= 0:
            where = look(body, index)
            if where == IN_ALL:
                return IN_ALL
            is_in_itself = is_in_itself or where == IN_ITSELF
            index = operations.find(store, index + 1)
    return IN_ITSELF if is_in_itself and code.co_name not in BEGINNINGS else NOWHERE


def _in_container(body: Body, index: int) -> str:
    """`G[x] = …`, `cls.x[y] = …`, `self.cache[x] = …`"""
    root, slot = _root(body, index, 2)
    if root is None:
        return NOWHERE
    if body.operations[root] in LOAD_GLOBAL:
        return IN_ALL if _global(body, root) not in PLAIN else NOWHERE
    local = _local(body, body.operations[root], _argument(body, root), slot)
    names = [local, *_attributes(body, root, index)]
    if local == "cls" or "__class__" in names:
        return IN_ALL
    if any(word in name.lower() for name in names for word in TELLING):
        return IN_ITSELF if local == "self" else IN_ALL
    return NOWHERE


def _in_attribute(body: Body, index: int) -> str:
    """`if self.x is None: self.x = …`, `if G.x is None: G.x = …`, `cls.x = …`"""
    root, slot = _root(body, index, 1)
    if root is None:
        return NOWHERE
    if body.operations[root] in LOAD_GLOBAL:
        name = _global(body, root)
        return IN_ALL if name == "type" or (name not in PLAIN and _is_tested(body, index)) else NOWHERE
    local = _local(body, body.operations[root], _argument(body, root), slot)
    if local == "cls" or "__class__" in _attributes(body, root, index):
        return IN_ALL
    is_made = body.code.co_name in BEGINNINGS
    return IN_ITSELF if local == "self" and not is_made and _is_tested(body, index) else NOWHERE


def _global(body: Body, index: int) -> str:
    return _name(body, _argument(body, index) >> GLOBAL_SHIFT)


def _root(body: Body, index: int, depth: int) -> Tuple[Optional[int], int]:
    """The instruction that first put something in that place of the stack; and in which of the places it fills."""
    for before in range(index - 1, -1, -1):
        operation = body.operations[before]
        if operation == CACHE:
            continue
        if operation in STORE_AND_LOAD and depth == 1:
            return before, 0
        argument = _argument(body, before) if operation in WITH_ARGUMENT else None
        try:
            depth -= dis.stack_effect(operation, argument)
        except ValueError:
            return None, 0
        if depth <= 0:
            return before, depth
    return None, 0


def _local(body: Body, operation: int, argument: int, slot: int) -> str:
    """The local name that was loaded; of two at once the one that went into the place asked for."""
    if operation in TWO_AT_ONCE:
        argument = argument >> 4 if slot == 0 else argument & 15
    elif operation in STORE_AND_LOAD:
        argument &= 15
    elif operation not in LOAD_FAST:
        return ""
    return body.code.co_varnames[argument] if argument < len(body.code.co_varnames) else ""


def _is_tested(body: Body, index: int) -> bool:
    """Whether it is asked, anywhere, if the attribute that is stored here is None. To store None keeps nothing."""
    if (IF_NONE or COMPARES).isdisjoint(body.operations):
        return False
    value, _ = _root(body, index, 2)
    if value is not None and _is_none(body, value):
        return False
    name = _argument(body, index)
    for other in range(len(body.operations)):
        if body.operations[other] in LOAD_ATTR and _argument(body, other) >> ATTR_SHIFT == name:
            following = [one for one in body.operations[other + 1 : other + 16] if one not in (CACHE, EXTENDED)]
            if following and following[0] in IF_NONE:
                return True
            if len(following) > 1 and following[0] in CONSTANT and following[1] in COMPARES and not IF_NONE:
                return True
    return False


def _is_none(body: Body, index: int) -> bool:
    return body.operations[index] in CONSTANT and body.code.co_consts[_argument(body, index)] is None


def _attributes(body: Body, start: int, end: int) -> Iterable[str]:
    for index in range(start + 1, end):
        if body.operations[index] in LOAD_ATTR:
            yield _name(body, _argument(body, index) >> ATTR_SHIFT)


def _argument(body: Body, index: int) -> int:
    data = body.data
    argument = data[2 * index + 1]
    shift = 8
    while index and data[2 * index - 2] == EXTENDED:
        index -= 1
        argument |= data[2 * index + 1] << shift
        shift += 8
    return argument


def _name(body: Body, number: int) -> str:
    return body.code.co_names[number] if number < len(body.code.co_names) else ""
