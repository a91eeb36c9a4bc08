"""Reads the instructions of a code object: what they load and store, and where a stored-to object comes from."""

from __future__ import annotations

import dis
from types import CodeType
from typing import FrozenSet, Iterator, List, NamedTuple, Optional, Tuple

from . import opcodes

NOT_CACHED, IN_SHARED, IN_INSTANCE, IN_CLOSURE = "", "all", "self", "closure"
"""Where a value is cached: nowhere, in a module or class, in the instance, in a variable of the enclosing function."""
CLASSES = frozenset({"cls", "klass", "kls", "mcs", "mcls", "metacls"})
"""The usual names of a class in its own methods."""


class Origin(NamedTuple):
    """What an object was loaded from: the instruction, a name, and the attributes in between."""

    operation: int
    name: str
    attributes: Tuple[str, ...]
    is_called: bool
    """A call is involved."""
    alias: str = ""
    """The local name that it was assigned to."""


UNKNOWN_ORIGIN = Origin(opcodes.CACHE, "", (), False)


class Body(NamedTuple):
    """A code object and its instructions, which Python would copy at each access."""

    code: CodeType
    data: bytes
    operations: bytes

    @classmethod
    def of(cls, code: CodeType) -> Body:
        data = code.co_code
        return cls(code, data, data[::2])

    def indexes(self, operation: int) -> Iterator[int]:
        """Yield the positions of that instruction."""
        index = self.operations.find(operation)
        while index >= 0:
            yield index
            index = self.operations.find(operation, index + 1)

    def loaded_name(self, index: int) -> str:
        """Return the attribute, global or module-level name that is loaded there; "" for other instructions."""
        shift = opcodes.NAME_SHIFTS.get(self.operations[index])
        return "" if shift is None else self.name(self.argument(index) >> shift)

    def variable(self, number: int) -> str:
        """Return the name of a cell or free variable."""
        code = self.code
        names = (*code.co_cellvars, *code.co_freevars)
        if opcodes.HAS_JOINED_LOCALS:
            shared = [name for name in code.co_cellvars if name not in code.co_varnames]
            names = (*code.co_varnames, *shared, *code.co_freevars)
        return names[number] if number < len(names) else ""

    def argument(self, index: int) -> int:
        data = self.data
        argument = data[2 * index + 1]
        shift = 8
        while index and data[2 * index - 2] == opcodes.EXTENDED:
            index -= 1
            argument |= data[2 * index + 1] << shift
            shift += 8
        return argument

    def name(self, number: int) -> str:
        return self.code.co_names[number] if number < len(self.code.co_names) else ""

    def is_none(self, index: int) -> bool:
        return self.operations[index] in opcodes.CONSTANT and self.code.co_consts[self.argument(index)] is None

    def count_loads(self, loads: FrozenSet[int], name: str) -> int:
        """Return how often that name is loaded."""
        if loads is opcodes.LOAD_FREE:
            found = [self.variable(self.argument(index)) for load in loads for index in self.indexes(load)]
        elif loads is opcodes.LOAD_GLOBAL:
            found = [self.loaded_name(index) for load in loads for index in self.indexes(load)]
        else:
            loads = loads | opcodes.LOAD_TWO | opcodes.STORE_AND_LOAD
            found = [word for load in loads for index in self.indexes(load) for word in self._local_names(index)]
        return found.count(name)

    def _local_names(self, index: int) -> List[str]:
        operation, argument = self.operations[index], self.argument(index)
        return [
            self._local_name(operation, argument, slot) for slot in ((0, -1) if operation in opcodes.LOAD_TWO else (0,))
        ]

    def _local_name(self, operation: int, argument: int, slot: int) -> str:
        """Return the local name that was loaded; of two at once, the one in this slot."""
        if operation in opcodes.LOAD_TWO:
            argument = argument >> 4 if slot == 0 else argument & 15
        elif operation in opcodes.STORE_AND_LOAD:
            argument &= 15
        elif operation not in opcodes.LOAD_FAST:
            return ""
        return self.code.co_varnames[argument] if argument < len(self.code.co_varnames) else ""

    def is_parameter(self, name: str) -> bool:
        return name in self.code.co_varnames[: self.code.co_argcount + self.code.co_kwonlyargcount]

    def span(self, index: int, depth: int) -> Tuple[Optional[int], int, int]:
        """Find the instruction that pushed the value at this depth of the stack.

        Returns its position, which of its values it is, and the position after the instructions that compute the value.
        """
        end = index if depth == 1 else 0
        for before in range(index - 1, -1, -1):
            operation = self.operations[before]
            if operation == opcodes.CACHE:
                continue
            if operation in opcodes.STORE_AND_LOAD and depth == 1:
                return before, 0, end
            argument = self.argument(before) if operation in opcodes.WITH_ARGUMENT else None
            try:
                depth -= dis.stack_effect(operation, argument)
            except ValueError:
                return None, 0, 0
            if depth <= 0:
                return before, depth, end or before + 1
            if depth == 1 and not end:
                end = before
        return None, 0, 0

    def origin(self, index: int, depth: int, may_be_alias: bool = True) -> Origin:
        root, slot, end = self.span(index, depth)
        if root is None:
            return UNKNOWN_ORIGIN
        operation, argument = self.operations[root], self.argument(root)
        within = self.operations[root + 1 : end]
        is_called = not opcodes.CALLS.isdisjoint(within)
        attributes = tuple(self.loaded_name(root + 1 + at) for at, one in enumerate(within) if one in opcodes.LOAD_ATTR)
        if operation in opcodes.LOAD_GLOBAL:
            return Origin(operation, self.loaded_name(root), attributes, is_called)
        if operation in opcodes.LOAD_FREE:
            return Origin(operation, self.variable(argument), attributes, is_called)
        name = self._local_name(operation, argument, slot)
        source = self._alias_source(name) if may_be_alias and name and not self.is_parameter(name) else None
        if source is not None:
            return source._replace(attributes=source.attributes + attributes, is_called=is_called, alias=name)
        return Origin(operation, name, attributes, is_called)

    def _alias_source(self, name: str) -> Optional[Origin]:
        """Return what was assigned to a local name: `known = self.known`, `known = KNOWN`."""
        for store in opcodes.STORE_FAST | opcodes.STORE_AND_LOAD:
            for index in self.indexes(store):
                argument = self.argument(index)
                number = argument >> 4 if store in opcodes.STORE_AND_LOAD else argument
                if number < len(self.code.co_varnames) and self.code.co_varnames[number] == name:
                    origin = self.origin(index, 1, may_be_alias=False)
                    if not origin.is_called and self.storage(origin):
                        return origin
        return None

    def storage(self, origin: Origin) -> str:
        """Classify where a value stored into this object is cached: module or class, closure, instance, or nowhere."""
        if (
            origin.operation in opcodes.LOAD_GLOBAL
            or origin.name in CLASSES
            or "__class__" in (origin.name, *origin.attributes)
        ):
            return IN_SHARED
        if origin.operation in opcodes.LOAD_FREE:
            return IN_CLOSURE if origin.name in self.code.co_freevars else NOT_CACHED
        return IN_INSTANCE if origin.name == "self" else NOT_CACHED


def decode(code: CodeType) -> Iterator[Tuple[int, int]]:
    """Yield operations with their arguments."""
    data, extension = code.co_code, 0
    for index in range(0, len(data), 2):
        operation, argument = data[index], data[index + 1] | extension
        extension = argument << 8 if operation == opcodes.EXTENDED else 0
        if operation != opcodes.EXTENDED:
            yield operation, argument
