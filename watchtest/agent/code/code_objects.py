"""The code objects of a file: which of them run when it is imported (its shell), and which are functions. Runs nothing.

The shell is the module itself, bodies of classes, and what the compiler hides in functions of its own although it runs
at once: comprehensions before 3.12, parameters of generics, annotations.
"""

from __future__ import annotations

import dis
import inspect
from types import CodeType
from typing import Any, Dict, Iterator, NamedTuple, Tuple

AT_ONCE = ("<listcomp>", "<setcomp>", "<dictcomp>", "__annotate__")
GENERIC = "<generic parameters of "
UNHEARD = frozenset({"stat", "lstat", "access", "readlink"})
"""Functions of `os` that ask for a file and tell nobody."""

EXTENDED = dis.opmap["EXTENDED_ARG"]
PASSED_OVER = frozenset({0, EXTENDED})
"""Nothing happens there: room for the interpreter, and numbers that are too large for one instruction."""
SHIFTS = {
    dis.opmap[name]: int(has_flag)
    for name, has_flag in (
        ("LOAD_NAME", False),
        ("LOAD_GLOBAL", "PUSH_NULL" in dis.opmap),
        ("LOAD_ATTR", dis.opmap.get("LOAD_METHOD", 256) > 255),
        ("LOAD_METHOD", False),
        ("IMPORT_FROM", False),
    )
    if dis.opmap.get(name, 256) < 256
}
"""Instructions that name something, and by how many bits its number is shifted: the lowest says how it is used."""
IMPORT_FROM = dis.opmap["IMPORT_FROM"]
ATTRIBUTES = frozenset(dis.opmap[name] for name in ("LOAD_ATTR", "LOAD_METHOD") if dis.opmap.get(name, 256) < 256)

LOCAL, FREE = (
    frozenset(dis.opmap[name] for name in names if name in dis.opmap)
    for names in (("LOAD_FAST", "LOAD_FAST_BORROW", "LOAD_FAST_CHECK"), ("LOAD_DEREF", "LOAD_FROM_DICT_OR_DEREF"))
)


class Unit(NamedTuple):
    """A code object with its name in the file: functions of the same name are told apart by a number."""

    code: CodeType
    name: str
    is_shell: bool


def units(module: CodeType) -> Iterator[Unit]:
    """Every code object of a module, parents before their children, in the order of the file."""
    counts: Dict[str, int] = {}
    waiting = [Unit(module, "", True)]
    while waiting:
        unit = waiting.pop()
        yield unit
        children = []
        for child in unit.code.co_consts:
            if isinstance(child, CodeType):
                plain = "{}.{}".format(unit.name, child.co_name) if unit.name else child.co_name
                counts[plain] = counts.get(plain, 0) + 1
                name = plain if counts[plain] == 1 else "{}#{}".format(plain, counts[plain])
                children.append(Unit(child, name, unit.is_shell and runs_at_once(child)))
        waiting += reversed(children)


def runs_at_once(code: CodeType) -> bool:
    """Whether it runs as soon as what it stands in runs."""
    is_class_body = not code.co_flags & inspect.CO_OPTIMIZED
    return is_class_body or code.co_name in AT_ONCE or code.co_name.startswith(GENERIC)


def face(code: CodeType) -> Tuple[Any, ...]:
    """What can be seen of a function without calling it: its signature, its kind, its docstring."""
    arguments = code.co_argcount + code.co_kwonlyargcount
    arguments += bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    posonly = getattr(code, "co_posonlyargcount", 0)
    counts = (code.co_argcount, posonly, code.co_kwonlyargcount)
    return (code.co_name, counts, code.co_varnames[:arguments], code.co_flags, docstring(code))


def docstring(code: CodeType) -> Any:
    """The first constant where it is a text: the docstring, or now and then a text that is none."""
    is_function = code.co_flags & inspect.CO_OPTIMIZED and not code.co_name.startswith("<")
    first = code.co_consts[0] if is_function and code.co_consts else None
    return first if isinstance(first, str) else None


def blind_spot(code: CodeType) -> str:
    """What it does that cannot be heard, in words; "" if there is no such thing."""
    if "__import__" in code.co_names:
        return "imports by __import__"
    if UNHEARD.isdisjoint(code.co_names):
        return ""
    before, is_function = "", code.co_flags & inspect.CO_OPTIMIZED
    for operation, name in _named(code):
        is_attribute = operation in ATTRIBUTES
        if before in UNHEARD and not is_attribute:  # `stat(path)`; `stat.S_IFDIR` is of the module
            return "calls os." + before
        if name in UNHEARD and ((is_attribute and before == "os") or (operation == IMPORT_FROM and is_function)):
            return "calls os." + name
        before = name if name == "os" or not (is_attribute or operation == IMPORT_FROM) else ""
    return ""


def _named(code: CodeType) -> Iterator[Tuple[int, str]]:
    """Its instructions, and what they load: a global name, an attribute, or "os" where a variable may hold that."""
    data, extension = code.co_code, 0
    for index in range(0, len(data), 2):
        operation, argument = data[index], data[index + 1] | extension
        extension = argument << 8 if operation == EXTENDED else 0
        if operation in PASSED_OVER:
            continue
        shift = SHIFTS.get(operation)
        if shift is not None:
            yield operation, code.co_names[argument >> shift]
        elif operation in LOCAL and argument < len(code.co_varnames):
            yield operation, "os" if code.co_varnames[argument] == "os" else ""
        else:
            yield operation, "os" if operation in LOCAL or operation in FREE else ""
