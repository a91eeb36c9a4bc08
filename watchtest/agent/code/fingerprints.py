"""Fingerprints of Python files: a digest per function, one for the shell of the file, and the modules that it names.

Computed from compiled code, by the Python that runs the tests, so that comments, blank lines and positions do not
matter. Reads source; runs nothing of it. As a program, it writes one line of JSON per file.
"""

from __future__ import annotations

import ast
import dis
import functools
import hashlib
import json
import os
import sys
import warnings
from types import CodeType
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple, Type

from ..record.scopes import identity
from .caching import NO_HINT, Hint, cache_location, changes_global_state, hints
from .code_objects import docstring, signature, units
from .instructions import IN_SHARED, decode

OWN_LINE = (
    *(ast.stmt, ast.ExceptHandler),
    *(ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp),  # compiled to code objects of their own
)
DECORATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class NodeRule(NamedTuple):
    """How nodes of one type are treated, computed once: a file has tens of thousands of nodes."""

    has_own_line: bool
    is_movable: bool
    """It has a position and is not a statement; statements keep their positions."""
    fields: Tuple[str, ...]


def normalize_positions(tree: ast.AST) -> None:
    """Move every expression to the first line of its statement.

    The compiler joins and separates instructions by their lines. The first lines of code objects stay: they identify
    the code at run time.
    """
    waiting: List[Tuple[Any, int]] = [(tree, 1)]
    while waiting:
        node, line = waiting.pop()
        rule = _rule_for(node.__class__)
        if rule.has_own_line:
            line = node.lineno
        if rule.is_movable:
            node.lineno = node.end_lineno = line
            node.col_offset = node.end_col_offset = 0
        for name in rule.fields:
            value = getattr(node, name, None)
            if isinstance(value, list):
                for child in value:
                    if isinstance(child, ast.AST):
                        waiting.append((child, line))
            elif isinstance(value, ast.AST) and value._fields:
                waiting.append((value, line))
        if isinstance(node, DECORATED):
            waiting += [(decorator, decorator.lineno) for decorator in node.decorator_list]


@functools.lru_cache(maxsize=None)
def _rule_for(kind: Type[ast.AST]) -> NodeRule:
    is_movable = "lineno" in kind._attributes and not issubclass(kind, ast.stmt)
    fields = tuple(name for name in kind._fields if name != "decorator_list")
    return NodeRule(issubclass(kind, OWN_LINE), is_movable, fields)


DIGEST_SIZE = 10
FIRST_LINE = "__firstlineno__"
STORE_NAME = dis.opmap["STORE_NAME"]
IMPORT = dis.opmap["IMPORT_NAME"]
IMPORT_FUNCTIONS = frozenset({"__import__", "import_module", "importorskip", "modules", "find_spec", "run_module"})
"""Near these names, a string without a dot may be a module, too."""
LAZY_MODULE_NAMES = frozenset({"__all__", "__getattr__"})
"""Names by which a package may load submodules on demand."""
NAME_LIMIT = 200
CONSTANT, SMALL_INT = dis.opmap["LOAD_CONST"], dis.opmap.get("LOAD_SMALL_INT", -1)

Import = Tuple[int, str, Optional[List[str]]]
"""The level of a relative import, the module, and the imported names."""


def fingerprint_of(root: str, path: str) -> Dict[str, Any]:
    """Return the fingerprint of a file as a row; one with an `error` if there is none."""
    try:
        with open(os.path.join(root, path), "rb") as stream:
            source = stream.read()
    except OSError as error:
        return {"path": path, "error": "cannot be read: {}".format(error.strerror)}
    return dict(fingerprint_source(source), path=path)


def fingerprint_source(source: bytes) -> Dict[str, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source, "print")
            normalize_positions(tree)
            module = compile(tree, "print", "exec", dont_inherit=True, optimize=0)
    except SyntaxError as error:
        return {"error": "does not parse: {}, line {}".format(error.msg, error.lineno)}
    except (ValueError, RecursionError, MemoryError) as error:
        return {"error": "does not parse: {}".format(error)}
    shell = hashlib.blake2b(digest_size=DIGEST_SIZE)
    rows: List[List[Any]] = []
    imports: List[Import] = []
    known_hints: Dict[int, Hint] = {}
    for unit in units(module):
        known_hints.update(hints(unit.code))
        if IMPORT in unit.code.co_code[::2]:
            imports += _imports(unit.code)
        imports += ((0, name, None) for name in _modules_in_strings(unit.code))
        if unit.is_shell:
            shell.update(_content(unit.code))
            rows.append([unit.name, unit.code.co_firstlineno, unit.code.co_name, "", False])
        else:
            digest = hashlib.blake2b(_content(unit.code), digest_size=DIGEST_SIZE).hexdigest()
            is_caching = cache_location(unit.code, known_hints.get(identity(unit.code), NO_HINT)) == IN_SHARED
            is_writer = is_caching or changes_global_state(unit.code)
            rows.append([unit.name, unit.code.co_firstlineno, unit.code.co_name, digest, is_writer])
    lazy_modules = sorted(set(_lazy_modules(module)))
    if lazy_modules:
        imports.append((1, "", lazy_modules))
    return {"shell": shell.hexdigest(), "units": rows, "imports": imports}


def _content(code: CodeType) -> bytes:
    """Return all that decides what this code does, but not what the functions in it do."""
    has_docstring = docstring(code) is not None  # it is part of the signature
    constants = tuple(map(_constant, code.co_consts[has_docstring:]))
    parts = (
        *((_class_content(code),) if FIRST_LINE in code.co_names else (code.co_code, constants)),
        getattr(code, "co_exceptiontable", b""),
        code.co_flags,
        code.co_names,
        code.co_varnames,
        code.co_freevars,
        code.co_cellvars,
    )
    return repr(parts).encode("utf-8", "surrogatepass")


def _class_content(code: CodeType) -> Tuple[Any, ...]:
    """Return instructions with their constants, without the line number that a class stores from 3.13 on."""
    decoded: List[Tuple[int, Any]] = []
    for operation, argument in decode(code):
        if operation == STORE_NAME and code.co_names[argument] == FIRST_LINE:
            decoded.pop()
        has_constant = operation in dis.hasconst
        decoded.append((operation, _constant(code.co_consts[argument]) if has_constant else argument))
    return tuple(decoded)


def _constant(value: Any) -> Any:
    if isinstance(value, CodeType):
        return ("code", signature(value))
    if isinstance(value, tuple):
        return tuple(map(_constant, value))
    if isinstance(value, frozenset):
        return ("frozenset", sorted(repr(_constant(item)) for item in value))
    return (type(value).__name__, repr(value))


def _imports(code: CodeType) -> Iterator[Import]:
    """Yield what `import` statements name: the compiler loads level and names right before them."""
    constants: List[Any] = []
    for operation, argument in decode(code):
        if operation == CONSTANT:
            constants.append(code.co_consts[argument])
        elif operation == SMALL_INT:
            constants.append(argument)
        elif operation == IMPORT and len(constants) >= 2:
            level, names = constants[-2:]
            yield int(level or 0), code.co_names[argument], list(names) if names else None


def _modules_in_strings(code: CodeType) -> Iterator[str]:
    """Yield strings that may name modules, or something in them: for imports and patches by name."""
    has_import_function = not IMPORT_FUNCTIONS.isdisjoint(code.co_names)
    for value in code.co_consts:
        for text in value if isinstance(value, tuple) else (value,):
            is_short = isinstance(text, str) and len(text) < NAME_LIMIT
            if is_short and ("." in text or has_import_function) and all(map(str.isidentifier, text.split("."))):
                yield text


def _lazy_modules(module: CodeType) -> Iterator[str]:
    """Yield strings by which a package may name submodules: `from package import *` or `package.module` load them."""
    if LAZY_MODULE_NAMES.isdisjoint(module.co_names):
        return
    for code in (module, *(one for one in module.co_consts if isinstance(one, CodeType))):
        if code is module or code.co_name in LAZY_MODULE_NAMES:
            for value in code.co_consts:
                for text in value if isinstance(value, (tuple, frozenset)) else (value,):
                    name = text.lstrip(".") if isinstance(text, str) else ""
                    if name.isidentifier() and len(name) < NAME_LIMIT:
                        yield name


def main() -> None:
    """Read a JSON list of paths from stdin and print one fingerprint per line."""
    root = sys.argv[1]
    for path in json.load(sys.stdin):
        sys.stdout.write(json.dumps(fingerprint_of(root, path)) + "\n")
