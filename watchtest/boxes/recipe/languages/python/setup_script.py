"""Read scripts such as setup.py from their syntax trees. They are never executed.

Values that are literals, or names that are assigned once from literals, are known. Everything else is computed by the
script, and only the build can tell what it is.
"""

from __future__ import annotations

import ast
import functools
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

UNKNOWN: Any = object()
"""Stands for a value that the script computes."""
TEXT_LIMIT = 256 * 1024
STEP_LIMIT = 20_000
"""Sums of sums of names could take forever otherwise."""


@functools.lru_cache(maxsize=16)
def setup_arguments(text: str) -> Mapping[str, Any]:
    """Return the keyword arguments of the call of `setup()`; {} if there is none or the script is invalid."""
    tree = parsed(text)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name("setup") | ast.Attribute(attr="setup")):
                try:
                    return dict(ScriptNames(tree).keywords(node))
                except RecursionError:
                    return {}
    return {}


def parsed(text: str) -> ast.Module:
    """Return the syntax tree of a script of the project; an empty one if the script is invalid or very large."""
    try:
        with warnings.catch_warnings(action="ignore"):  # invalid escapes in the script
            return ast.parse(text if len(text) <= TEXT_LIMIT else "")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return ast.Module([], [])


def strings(value: object) -> tuple[str, ...]:
    """Return the strings of a known value: a list of them, or a text with one per line."""
    if isinstance(value, str):
        return tuple(line.strip() for line in value.splitlines() if line.strip())
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, (list, tuple)) else ()


class ScriptNames:
    """The values of the names of a script, as far as they are known."""

    def __init__(self, tree: ast.AST) -> None:
        self._steps = 0
        self._open: dict[str, Any] = {}
        """Names that are being evaluated, with what is known of their values so far."""
        self._assigned: dict[str, ast.expr] = {}
        self._items: dict[str, list[tuple[ast.expr, ast.expr]]] = {}
        for node in ast.walk(tree):
            match node:
                case (
                    ast.Assign(targets=[ast.Name(name)], value=value)
                    | ast.AnnAssign(target=ast.Name(name), value=ast.expr() as value)
                ):
                    self._assigned[name] = value
                case ast.Assign(targets=[ast.Subscript(value=ast.Name(name), slice=key)], value=value):
                    self._items.setdefault(name, []).append((key, value))

    def keywords(self, call: ast.Call) -> Iterator[tuple[str, Any]]:
        for keyword in call.keywords:
            value = self.value(keyword.value)
            if keyword.arg is not None:
                yield keyword.arg, value
            elif isinstance(value, dict):
                yield from value.items()

    def value(self, node: ast.expr) -> Any:
        """Return the value of an expression, or UNKNOWN; lists and dicts may contain UNKNOWN."""
        self._steps += 1
        if self._steps > STEP_LIMIT:
            return UNKNOWN
        match node:
            case ast.Constant(value=value):
                return value
            case ast.List(elts=items) | ast.Tuple(elts=items) | ast.Set(elts=items):
                return self._sequence(items)
            case ast.Dict(keys=keys, values=values):
                return self._dict(keys, values)
            case ast.Name(id=name) if name in self._open:
                return self._open[name]
            case ast.Name(id=name) if name in self._assigned:
                return self._named(name)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._sum(self.value(left), self.value(right))
            case ast.Subscript(value=whole, slice=key):
                found, index = self.value(whole), self.value(key)
                return found.get(index, UNKNOWN) if isinstance(found, dict) and isinstance(index, str) else UNKNOWN
            case ast.Call(func=ast.Name(id="dict"), args=[]):
                return dict(self.keywords(node))
            case ast.Call(func=ast.Name(id="list" | "tuple" | "sorted" | "set"), args=[inner], keywords=[]):
                return self.value(inner)
            case ast.Call(func=ast.Attribute(value=text, attr="split" | "splitlines"), args=[]):
                found = self.value(text)
                return found.split() if isinstance(found, str) else UNKNOWN
            case _:
                return UNKNOWN

    def _sequence(self, items: list[ast.expr]) -> Any:
        found: list[Any] = []
        for item in items:
            if isinstance(item, ast.Starred):
                inner = self.value(item.value)
                found += inner if isinstance(inner, list) else [UNKNOWN]
            else:
                found.append(self.value(item))
        return found

    def _dict(self, keys: list[ast.expr | None], values: list[ast.expr]) -> Any:
        found: dict[Any, Any] = {}
        for key, value in zip(keys, values, strict=True):
            content = self.value(value)
            if key is None:
                found |= content if isinstance(content, dict) else {UNKNOWN: UNKNOWN}
            elif isinstance(name := self.value(key), str):
                found[name] = content
            else:
                found[UNKNOWN] = UNKNOWN
        return found

    def _named(self, name: str) -> Any:
        self._open[name] = UNKNOWN
        value = self.value(self._assigned[name])
        if isinstance(value, dict):
            for key, item in self._items.get(name, ()):
                self._open[name] = value
                index = self.value(key)
                value = {**value, index if isinstance(index, str) else UNKNOWN: self.value(item)}
        del self._open[name]
        return value

    @staticmethod
    def _sum(left: Any, right: Any) -> Any:
        if isinstance(left, str) and isinstance(right, str):
            return left + right if len(left) + len(right) < TEXT_LIMIT else UNKNOWN
        if isinstance(left, list) or isinstance(right, list):
            return [
                *(left if isinstance(left, list) else [UNKNOWN]),
                *(right if isinstance(right, list) else [UNKNOWN]),
            ]
        return UNKNOWN
