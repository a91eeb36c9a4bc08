"""The code objects of a file: those that run when it is imported (its shell), and its functions. Runs nothing.

The shell is the module itself, the bodies of classes, and what the compiler turns into functions that run immediately:
comprehensions before 3.12, parameters of generics, annotations.
"""

from __future__ import annotations

import inspect
from types import CodeType
from typing import Any, Dict, Iterator, NamedTuple, Tuple

from . import opcodes
from .instructions import decode

IMMEDIATE = ("<listcomp>", "<setcomp>", "<dictcomp>", "__annotate__")
GENERIC = "<generic parameters of "
UNOBSERVABLE = frozenset({"stat", "lstat", "access", "readlink"})
"""Functions of `os` that query a file without an audit event."""

LOAD_VARIABLE = opcodes.LOAD_FAST | opcodes.named("LOAD_DEREF", "LOAD_FROM_DICT_OR_DEREF")


class CodeUnit(NamedTuple):
    """A code object with its unique name in the file: a number distinguishes functions of the same name."""

    code: CodeType
    name: str
    is_shell: bool


def units(module: CodeType) -> Iterator[CodeUnit]:
    """Yield every code object of a module, parents before their children, in the order of the file."""
    counts: Dict[str, int] = {}
    waiting = [CodeUnit(module, "", True)]
    while waiting:
        unit = waiting.pop()
        yield unit
        children = []
        for child in unit.code.co_consts:
            if isinstance(child, CodeType):
                plain = "{}.{}".format(unit.name, child.co_name) if unit.name else child.co_name
                counts[plain] = counts.get(plain, 0) + 1
                name = plain if counts[plain] == 1 else "{}#{}".format(plain, counts[plain])
                children.append(CodeUnit(child, name, unit.is_shell and runs_at_once(child)))
        waiting += reversed(children)


def runs_at_once(code: CodeType) -> bool:
    """Return whether it runs as soon as the code that contains it."""
    is_class_body = not code.co_flags & inspect.CO_OPTIMIZED
    return is_class_body or code.co_name in IMMEDIATE or code.co_name.startswith(GENERIC)


def signature(code: CodeType) -> Tuple[Any, ...]:
    """Return what is visible of a function without calling it: parameters, flags and docstring."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    posonly = getattr(code, "co_posonlyargcount", 0)
    counts = (code.co_argcount, posonly, code.co_kwonlyargcount)
    return (code.co_name, counts, code.co_varnames[:arguments], code.co_flags, docstring(code))


def docstring(code: CodeType) -> Any:
    """Return the first constant if it is a string: usually, but not always, the docstring."""
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    first = code.co_consts[0] if is_function and code.co_consts else None
    return first if isinstance(first, str) else None


def blind_spot(code: CodeType) -> str:
    """Describe what the code does that cannot be observed; "" if nothing."""
    if "__import__" in code.co_names:
        return "imports by __import__"
    if UNOBSERVABLE.isdisjoint(code.co_names):
        return ""
    before, is_function = "", code.co_flags & inspect.CO_OPTIMIZED
    for operation, name in _named_operations(code):
        is_attribute, is_import = operation in opcodes.LOAD_ATTR, operation == opcodes.IMPORT_FROM
        if before in UNOBSERVABLE and not is_attribute:  # `stat(path)`, but not `stat.S_IFDIR` of the module stat
            return "calls os." + before
        if name in UNOBSERVABLE and ((is_attribute and before == "os") or (is_import and is_function)):
            return "calls os." + name
        before = name if name == "os" or not (is_attribute or is_import) else ""
    return ""


def _named_operations(code: CodeType) -> Iterator[Tuple[int, str]]:
    """Yield instructions and what they load: a global name, an attribute, or "os" for a variable that may be `os`."""
    for operation, argument in decode(code):
        shift = opcodes.NAME_SHIFTS.get(operation)
        if shift is not None:
            yield operation, code.co_names[argument >> shift]
        elif operation in opcodes.LOAD_FAST and argument < len(code.co_varnames):
            yield operation, "os" if code.co_varnames[argument] == "os" else ""
        elif operation != opcodes.CACHE:
            yield operation, "os" if operation in LOAD_VARIABLE else ""
