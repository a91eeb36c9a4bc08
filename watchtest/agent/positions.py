"""Takes the positions out of a syntax tree that do not matter: where within a statement an expression stands.

The compiler joins and separates instructions by their lines. Lines that code objects begin with stay: it is by them
that code which runs is found again in its file.
"""

from __future__ import annotations

import ast
from typing import List, Tuple

BEGINNINGS = (ast.Lambda, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
"""Expressions that become code objects of their own."""
OWN_LINE = (ast.stmt, ast.ExceptHandler, *BEGINNINGS)
DECORATED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


def flatten(tree: ast.AST) -> None:
    waiting: List[Tuple[ast.AST, int]] = [(tree, 1)]
    while waiting:
        node, line = waiting.pop()
        if isinstance(node, OWN_LINE):
            line = node.lineno
        if "lineno" in node._attributes and not isinstance(node, ast.stmt):
            _put(node, line)
        decorators = node.decorator_list if isinstance(node, DECORATED) else ()
        waiting += [(decorator, decorator.lineno) for decorator in decorators]
        waiting += [(child, line) for child in ast.iter_child_nodes(node) if child not in decorators]


def _put(node: ast.AST, line: int) -> None:
    node.lineno = node.end_lineno = line  # type: ignore[attr-defined]
    node.col_offset = node.end_col_offset = 0  # type: ignore[attr-defined]
