"""Which functions keep what they find out for those who come later: told from their instructions. Runs nothing.

They write a global name, into something that a global name or a class holds, or an attribute that was None until then.
Whoever calls such a function second depends on what ran for the first, and never runs it.
"""

from __future__ import annotations

import builtins
import dis
from types import CodeType
from typing import Any, FrozenSet, Iterable, Optional, Tuple

MUTATORS = frozenset(
    {
        *("append", "appendleft", "add", "setdefault", "update", "insert", "extend"),
        *("pop", "popitem", "popleft", "clear", "remove", "discard"),
    }
)
"""Methods of containers that change them."""
TELLING = ("cache", "memo")
"""What such things are called."""
PLAIN = frozenset(dir(builtins)) - {"globals", "vars", "type"}
"""Names that everybody calls and nobody fills."""


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


def keeps(code: CodeType) -> bool:
    """Whether what it does may be seen by others who never enter it."""
    operations = code.co_code[::2]
    found = ALL_STORES.intersection(operations)
    if found & GLOBAL_WRITES:
        return True
    if not found and MUTATORS.isdisjoint(code.co_names):
        return False
    return any(_writes(code, operations, index) for index in range(len(operations)))


def _writes(code: CodeType, operations: bytes, index: int) -> bool:
    operation = operations[index]
    if operation in STORE_ITEM:
        return _is_shared(code, operations, index, 2)
    if operation in STORE_ATTR:
        return _is_shared(code, operations, index, 1) or _was_none(code, operations, index)
    if operation in LOAD_ATTR:
        name = _name(code, _argument(code, index) >> ATTR_SHIFT)
        return name in MUTATORS and _is_shared(code, operations, index, 1)
    return False


def _is_shared(code: CodeType, operations: bytes, index: int, depth: int) -> bool:
    """Whether what lies so deep on the stack came out of a global name, or is a class."""
    root, slot = _root(code, operations, index, depth)
    if root is None:
        return False
    if operations[root] in LOAD_GLOBAL:
        return _name(code, _argument(code, root) >> GLOBAL_SHIFT) not in PLAIN
    local = _local(code, operations[root], _argument(code, root), slot)
    names = [local, *_attributes(code, operations, root, index)]
    is_telling = any(word in name.lower() for name in names for word in TELLING)
    return local == "cls" or "__class__" in names or (is_telling and operations[index] not in STORE_ATTR)


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


def _was_none(code: CodeType, operations: bytes, index: int) -> bool:
    """`if self.x is None: self.x = …`"""
    root, _ = _root(code, operations, index, 1)
    if root is None or operations[root] not in LOAD_FAST | TWO_AT_ONCE:
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
