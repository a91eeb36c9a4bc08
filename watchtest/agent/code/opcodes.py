"""Opcodes of this Python, in groups of the same meaning across versions."""

from __future__ import annotations

import dis
from typing import FrozenSet


def named(*names: str) -> FrozenSet[int]:
    return frozenset(dis.opmap[name] for name in names if dis.opmap.get(name, 256) < 256)


def beginning(*starts: str) -> FrozenSet[int]:
    return frozenset(code for name, code in dis.opmap.items() if name.startswith(starts) and code < 256)


GLOBAL_WRITES = named("STORE_GLOBAL", "DELETE_GLOBAL")
STORE_ATTR, STORE_ITEM = named("STORE_ATTR", "DELETE_ATTR"), named("STORE_SUBSCR", "DELETE_SUBSCR")
STORE_FREE, LOAD_FREE = named("STORE_DEREF"), named("LOAD_DEREF")
LOAD_ATTR, LOAD_GLOBAL, LOAD_NAME = named("LOAD_ATTR", "LOAD_METHOD"), named("LOAD_GLOBAL"), named("LOAD_NAME")
LOAD_FAST = named("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK")
LOAD_TWO = named("LOAD_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW")
STORE_FAST, STORE_AND_LOAD = named("STORE_FAST"), named("STORE_FAST_LOAD_FAST")
CALLS = beginning("CALL", "PRECALL")
EXTENDED = dis.opmap["EXTENDED_ARG"]
WITH_ARGUMENT = frozenset(getattr(dis, "hasarg", range(dis.HAVE_ARGUMENT, 256)))
TESTS = beginning("POP_JUMP", "JUMP_IF") | named("TO_BOOL", "UNARY_NOT", "CONTAINS_OP")
COMPARISONS = named("IS_OP", "COMPARE_OP")
IN, NOT_IN = (dis.cmp_op.index(word) if word in dis.cmp_op else -1 for word in ("in", "not in"))
"""Before 3.9 these are comparisons."""
COPY = named("COPY", "DUP_TOP")
CONSTANT = named("LOAD_CONST")
MAKE_FUNCTION, SET_ATTRIBUTE = named("MAKE_FUNCTION"), named("SET_FUNCTION_ATTRIBUTE")
NEW_CONTAINERS = named("BUILD_MAP", "BUILD_LIST", "BUILD_SET")
STATEMENT_ENDS = named("STORE_NAME", "STORE_FAST", "STORE_GLOBAL", "STORE_DEREF", "STORE_ATTR", "POP_TOP")
CACHE = 0
ATTR_SHIFT = 1 if "LOAD_METHOD" not in dis.opmap or dis.opmap["LOAD_METHOD"] > 255 else 0
"""From 3.12 on, the lowest bit of an attribute's index tells whether it is called."""
GLOBAL_SHIFT = 1 if "PUSH_NULL" in dis.opmap else 0
"""The same for a global name, from 3.11 on."""
HAS_JOINED_LOCALS = "COPY_FREE_VARS" in dis.opmap
"""From 3.11 on, local, cell and free variables share one index."""
IMPORT_FROM = dis.opmap["IMPORT_FROM"]
NAME_SHIFTS = {
    **dict.fromkeys((*LOAD_NAME, IMPORT_FROM), 0),
    **dict.fromkeys(LOAD_GLOBAL, GLOBAL_SHIFT),
    **dict.fromkeys(LOAD_ATTR, ATTR_SHIFT),
}
"""Instructions that load a name, and by how many bits its index is shifted."""
ALL_STORES = GLOBAL_WRITES | STORE_ATTR | STORE_ITEM | STORE_FREE
