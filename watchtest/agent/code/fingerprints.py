"""Prints of Python files: a digest a function, one for the shell of the file, and the modules that it names.

Made by the compiler of the Python that runs the tests: comments, blank lines and positions are nothing to it. Reads
source; runs nothing of it. As a
program it answers a line of JSON each.

Takes the positions out of a syntax tree that do not matter: where within a statement an expression stands.

The compiler joins and separates instructions by their lines. Lines that code objects begin with stay: it is by them
that code which runs is found again in its file.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import json
import os
import sys
import warnings
from types import CodeType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

from ..record.scopes import identity
from .caching import keeps, leaves_something
from .code_objects import docstring, face, units
from .decorators import NO_HINT, Hint, hints
from .instructions import IN_ALL

BEGINNINGS = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Expressions that become code objects of their own."""
OWN_LINE = (ast.stmt, ast.ExceptHandler, *BEGINNINGS)
DECORATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
DECORATORS = "decorator_list"


class Kind(NamedTuple):
    """What is to be done about nodes of one type, found out once: a file has ten thousands of them."""

    has_own_line: bool
    is_placed: bool
    """It has a position, and is no statement: those stay where they are."""
    fields: Tuple[str, ...]


def flatten(tree: ast.AST) -> None:
    kinds: Dict[type, Kind] = {}
    waiting: List[Tuple[Any, int]] = [(tree, 1)]
    while waiting:
        node, line = waiting.pop()
        kind = kinds.get(type(node))
        if kind is None:
            kind = kinds[type(node)] = _kind(node)
        if kind.has_own_line:
            line = node.lineno
        if kind.is_placed:
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
        for name in kind.fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for child in value:
                    if isinstance(child, ast.AST):
                        waiting.append((child, line))
            elif isinstance(value, ast.AST) and value._fields:
                waiting.append((value, line))
        if isinstance(node, DECORATED):
            waiting += [(decorator, decorator.lineno) for decorator in node.decorator_list]


def _kind(node: ast.AST) -> Kind:
    return Kind(
        isinstance(node, OWN_LINE),
        "lineno" in node._attributes and not isinstance(node, ast.stmt),
        tuple(name for name in node._fields if name != DECORATORS),
    )


DIGEST_SIZE = 10
FIRST_LINE = "__firstlineno__"
STORE_NAME = dis.opmap["STORE_NAME"]
EXTENDED, IMPORT = dis.opmap["EXTENDED_ARG"], dis.opmap["IMPORT_NAME"]
BY_NAME = frozenset({"__import__", "import_module", "importorskip", "modules", "find_spec", "run_module"})
"""Where a text without a dot may be a module, too."""
OFFERING = frozenset({"__all__", "__getattr__"})
"""Names of a module by which it may load others that lie in it when they are asked for."""
NAME_LIMIT = 200
CONSTANT, SMALL_INT = dis.opmap["LOAD_CONST"], dis.opmap.get("LOAD_SMALL_INT", -1)

Import = Tuple[int, str, Optional[List[str]]]
"""How many folders up, the name, and what is taken from there."""


def print_of(root: str, path: str) -> Dict[str, Any]:
    """The print of a file as a row; with an `error` alone where there is none."""
    try:
        with open(os.path.join(root, path), "rb") as stream:
            source = stream.read()
    except OSError as error:
        return {"path": path, "error": "cannot be read: {}".format(error.strerror)}
    return dict(print_of_source(source), path=path)


def print_of_source(source: bytes) -> Dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, "print")
            flatten(tree)
            module = compile(tree, "print", "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        return {"error": "does not parse: {}, line {}".format(error.msg, error.lineno)}
    except (ValueError, RecursionError, MemoryError) as error:
        return {"error": "does not parse: {}".format(error)}
    shell = hashlib.blake2b(digest_size=DIGEST_SIZE)
    rows: List[List[Any]] = []
    imports: List[Import] = []
    said: Dict[int, Hint] = {}
    for unit in units(module):
        said.update(hints(unit.code))
        if IMPORT in unit.code.co_code[::2]:
            imports += _imports(unit.code)
        imports += ((0, name, None) for name in _modules_in_texts(unit.code))
        if unit.is_shell:
            shell.update(_content(unit.code))
            rows.append([unit.name, unit.code.co_firstlineno, unit.code.co_name, "", False])
        else:
            digest = hashlib.blake2b(_content(unit.code), digest_size=DIGEST_SIZE).hexdigest()
            is_keeping = keeps(unit.code, said.get(identity(unit.code), NO_HINT)) == IN_ALL
            is_writer = is_keeping or leaves_something(unit.code)
            rows.append([unit.name, unit.code.co_firstlineno, unit.code.co_name, digest, is_writer])
    offered = sorted(set(_offered(module)))
    if offered:
        imports.append((1, "", offered))
    return {"shell": shell.hexdigest(), "units": rows, "imports": imports}


def _content(code: CodeType) -> bytes:
    """All that decides what this code does, but not what the functions in it do."""
    is_in_face = docstring(code) is not None
    constants = tuple(map(_constant, code.co_consts[is_in_face:]))
    parts = (
        *((_of_class(code),) if FIRST_LINE in code.co_names else (code.co_code, constants)),
        getattr(code, "co_exceptiontable", b""),
        code.co_flags,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
    )
    return repr(parts).encode("utf-8", "surrogatepass")


def _of_class(code: CodeType) -> Tuple[Any, ...]:
    """Instructions with their constants. From 3.13 on a class stores its line; that is a position, and left out."""
    decoded: List[Tuple[int, Any]] = []
    for operation, argument in _instructions(code):
        if operation == STORE_NAME and code.co_names[argument] == FIRST_LINE:
            decoded.pop()
        has_constant = operation in dis.hasconst
        decoded.append((operation, _constant(code.co_consts[argument]) if has_constant else argument))
    return tuple(decoded)


def _instructions(code: CodeType) -> Iterator[Tuple[int, int]]:
    """Operations with their arguments."""
    extension = 0
    for index in range(0, len(code.co_code), 2):
        operation, argument = code.co_code[index], code.co_code[index + 1] | extension
        extension = argument << 8 if operation == EXTENDED else 0
        if operation != EXTENDED:
            yield operation, argument


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return ("code", face(value))
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return ("frozenset", sorted(repr(_constant(item)) for item in value))
    return (type(value).__name__, repr(value))


def _imports(code: CodeType) -> Iterator[Import]:
    """What `import` statements name: the compiler puts level and names right before them."""
    constants: List[Any] = []
    for operation, argument in _instructions(code):
        if operation == CONSTANT:
            constants.append(code.co_consts[argument])
        elif operation == SMALL_INT:
            constants.append(argument)
        elif operation == IMPORT and len(constants) >= 2:
            level, names = constants[-2:]
            yield int(level or 0), code.co_names[argument], list(names) if names else None


def _modules_in_texts(code: CodeType) -> Iterator[str]:
    """Texts that may be names of modules, or of something in them: for imports by name, patches by name."""
    is_asked = not BY_NAME.isdisjoint(code.co_names)
    for value in code.co_consts:
        for text in value if isinstance(value, tuple) else (value,):
            is_short = isinstance(text, str) and len(text) < NAME_LIMIT
            if is_short and ("." in text or is_asked) and all(map(str.isidentifier, text.split("."))):
                yield text


def _offered(module: CodeType) -> Iterator[str]:
    """Texts by which a package may name modules of its own: `from package import *` and `package.module` load them."""
    if OFFERING.isdisjoint(module.co_names):
        return
    for code in (module, *(one for one in module.co_consts if isinstance(one, CodeType))):
        if code is module or code.co_name in OFFERING:
            for value in code.co_consts:
                for text in value if isinstance(value, (tuple, frozenset)) else (value,):
                    name = text.lstrip(".") if isinstance(text, str) else ""
                    if name.isidentifier() and len(name) < NAME_LIMIT:
                        yield name


def main() -> None:
    """As a program: paths on stdin."""
    root = sys.argv[1]
    for path in json.load(sys.stdin):
        sys.stdout.write(json.dumps(print_of(root, path)) + "\n")
