"""Takes the positions out of a syntax tree that do not matter: where within a statement an expression stands.

The compiler joins and separates instructions by their lines. Lines that code objects begin with stay: it is by them
that code which runs is found again in its file.
"""

from __future__ import annotations

import ast
from typing import Any, Dict, List, NamedTuple, Tuple

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
