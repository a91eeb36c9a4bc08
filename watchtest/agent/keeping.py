"""Which functions keep what they find out for those who come later: told from their instructions. Runs nothing.

They write a global name, an item of something that a global name or a class holds, or an attribute that was None until
then. Whoever calls such a function second depends on what ran for the first, and never runs it.
"""

from __future__ import annotations

import builtins
import dis
import inspect
from types import CodeType
from typing import Any, FrozenSet, Iterable, Optional, Tuple

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


def keeps(code: CodeType) -> str:
    """Where it keeps what others may see who never enter it."""
    operations = code.co_code[::2]
    found = ALL_STORES.intersection(operations)
    if found & GLOBAL_WRITES:
        return IN_ALL
    if not found or code.co_flags & inspect.CO_GENERATOR:  # what those set is mostly set back when they end
        return NOWHERE
    is_in_itself = False
    for index in range(len(operations)):
        where = _where(code, operations, index)
        if where == IN_ALL:
            return IN_ALL
        is_in_itself = is_in_itself or where == IN_ITSELF
    return IN_ITSELF if is_in_itself and code.co_name not in BEGINNINGS else NOWHERE


def _where(code: CodeType, operations: bytes, index: int) -> str:
    operation = operations[index]
    if operation in STORE_ITEM:
        return _in_container(code, operations, index)
    if operation in STORE_ATTR:
        return _in_attribute(code, operations, index)
    return NOWHERE


def _in_container(code: CodeType, operations: bytes, index: int) -> str:
    """`G[x] = …`, `cls.x[y] = …`, `self.cache[x] = …`"""
    root, slot = _root(code, operations, index, 2)
    if root is None:
        return NOWHERE
    if operations[root] in LOAD_GLOBAL:
        return IN_ALL if _global(code, root) not in PLAIN else NOWHERE
    local = _local(code, operations[root], _argument(code, root), slot)
    names = [local, *_attributes(code, operations, root, index)]
    if local == "cls" or "__class__" in names:
        return IN_ALL
    if any(word in name.lower() for name in names for word in TELLING):
        return IN_ITSELF if local == "self" else IN_ALL
    return NOWHERE


def _in_attribute(code: CodeType, operations: bytes, index: int) -> str:
    """`if self.x is None: self.x = …`, `if G.x is None: G.x = …`, `cls.x = …`"""
    root, slot = _root(code, operations, index, 1)
    if root is None:
        return NOWHERE
    if operations[root] in LOAD_GLOBAL:
        name = _global(code, root)
        return IN_ALL if name == "type" or (name not in PLAIN and _is_tested(code, operations, index)) else NOWHERE
    local = _local(code, operations[root], _argument(code, root), slot)
    if local == "cls" or "__class__" in _attributes(code, operations, root, index):
        return IN_ALL
    return IN_ITSELF if local == "self" and _is_tested(code, operations, index) else NOWHERE


def _global(code: CodeType, index: int) -> str:
    return _name(code, _argument(code, index) >> GLOBAL_SHIFT)


def _root(code: CodeType, operations: bytes, index: int, depth: int) -> Tuple[Optional[int], int]:
    """The instruction that first put something in that place of the stack; and in which of the places it fills."""
    for before in range(index - 1, -1, -1):
        operation = operations[before]
        if operation in STORE_AND_LOAD and depth == 1:
            return before, 0
        argument = _argument(code, before) if operation in WITH_ARGUMENT else None
        try:
            depth -= dis.stack_effect(operation, argument)
        except ValueError:
            return None, 0
        if depth <= 0:
            return before, depth
    return None, 0


def _local(code: CodeType, operation: int, argument: int, slot: int) -> str:
    """The local name that was loaded; of two at once the one that went into the place asked for."""
    if operation in TWO_AT_ONCE:
        argument = argument >> 4 if slot == 0 else argument & 15
    elif operation in STORE_AND_LOAD:
        argument &= 15
    elif operation not in LOAD_FAST:
        return ""
    return code.co_varnames[argument] if argument < len(code.co_varnames) else ""


def _is_tested(code: CodeType, operations: bytes, index: int) -> bool:
    """Whether it is asked, anywhere, if the attribute that is stored here is None. To store None keeps nothing."""
    value, _ = _root(code, operations, index, 2)
    if value is not None and _is_none(code, operations, value):
        return False
    name = _argument(code, index)
    for other in range(len(operations)):
        if operations[other] in LOAD_ATTR and _argument(code, other) >> ATTR_SHIFT == name:
            following = [one for one in operations[other + 1 : other + 16] if one not in (CACHE, EXTENDED)]
            if following and following[0] in IF_NONE:
                return True
            if len(following) > 1 and following[0] in CONSTANT and following[1] in COMPARES and not IF_NONE:
                return True
    return False


def _is_none(code: CodeType, operations: bytes, index: int) -> bool:
    return operations[index] in CONSTANT and code.co_consts[_argument(code, index)] is None


def _attributes(code: CodeType, operations: bytes, start: int, end: int) -> Iterable[str]:
    for index in range(start + 1, end):
        if operations[index] in LOAD_ATTR:
            yield _name(code, _argument(code, index) >> ATTR_SHIFT)


def _argument(code: CodeType, index: int) -> int:
    data: Any = code.co_code
    argument: int = data[2 * index + 1]
    shift = 8
    while index and data[2 * index - 2] == EXTENDED:
        index -= 1
        argument |= data[2 * index + 1] << shift
        shift += 8
    return argument


def _name(code: CodeType, number: int) -> str:
    return code.co_names[number] if number < len(code.co_names) else ""
