"""Finds the places where a Python file can be changed, by kind of change. Pure functions: source in, edits out."""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from random import Random

OPERATORS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.Div: ast.Mult, ast.Mod: ast.Add, ast.FloorDiv: ast.Mult,
    ast.And: ast.Or, ast.Or: ast.And, ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
REMOVABLE = (ast.Assign, ast.AugAssign, ast.Raise, ast.If, ast.For, ast.Delete, ast.Assert, ast.With)
HIDEABLE = ("isinstance", "len", "str", "list", "dict", "sorted", "getattr", "tuple", "set", "int", "range")
SPECIAL = ("__bool__", "__eq__", "__len__", "__str__", "__hash__", "__iter__", "__getattr__", "__repr__")

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Edit:
    """Replaces the bytes from `start` to `end` with another text."""

    start: int
    end: int
    text: Callable[[Random], bytes]


class _Places:
    """Translates syntax nodes into byte ranges."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))

    def start(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        return self._lines[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def replace(self, node: ast.expr | ast.stmt, text: str) -> Edit:
        return Edit(self.start(node), self.end(node), lambda _random: text.encode())

    def remove(self, node: ast.stmt) -> Edit:
        """Replace the statement and its decorators with `pass`."""
        decorators = getattr(node, "decorator_list", ())
        start = self.start(decorators[0]) - 1 if decorators else self.start(node)
        return Edit(start, self.end(node), lambda _random: b"pass")


Find = Callable[[bytes], Iterable[Edit]]


def bodies(source: bytes) -> Iterator[Edit]:
    """Yield edits of operators, constants, return values and statements inside functions."""
    tree, places = ast.parse(source), _Places(source)
    for function in _functions(tree):
        for statement in function.body:
            if not _is_docstring(statement) and not isinstance(statement, Function | ast.ClassDef):
                yield from _inside(statement, places)


def _inside(statement: ast.stmt, places: _Places) -> Iterator[Edit]:
    for node in _visible(statement):
        if isinstance(node, ast.Return) and node.value is not None:
            yield places.replace(node, "return None")
        elif isinstance(node, REMOVABLE) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)):
            yield places.remove(node)
        elif isinstance(node, ast.Constant):
            yield from _constants(node, places)
        elif isinstance(node, ast.BinOp | ast.BoolOp | ast.Compare):
            yield from _operators(node, places)


def _visible(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes to edit. Skips f-strings, whose parts have unreliable positions, and nested functions."""
    yield node
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.JoinedStr | Function | ast.ClassDef):
            yield from _visible(child)


def _operators(node: ast.BinOp | ast.BoolOp | ast.Compare, places: _Places) -> Iterator[Edit]:
    other = copy.deepcopy(node)
    if isinstance(other, ast.Compare):
        other.ops = [OPERATORS[type(other.ops[0])](), *other.ops[1:]]  # type: ignore[list-item]
    elif type(other.op) in OPERATORS:
        other.op = OPERATORS[type(other.op)]()  # type: ignore[assignment]
    else:
        return
    yield places.replace(node, f"({ast.unparse(other)})")


def _constants(node: ast.Constant, places: _Places) -> Iterator[Edit]:
    match node.value:
        case bool():
            yield places.replace(node, str(not node.value))
        case int() | float():
            yield places.replace(node, f"({node.value + 1})")
        case str() as text:
            yield places.replace(node, repr(f"{text}Q"))
        case bytes() as data:
            yield places.replace(node, repr(data + b"Q"))


def module_constants(source: bytes) -> Iterator[Edit]:
    tree, places = ast.parse(source), _Places(source)
    for statement in _of_module(tree.body):
        yield from _values(statement, places)


def class_attributes(source: bytes) -> Iterator[Edit]:
    tree, places = ast.parse(source), _Places(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for statement in node.body:
                yield from _values(statement, places)


def _values(statement: ast.stmt, places: _Places) -> Iterator[Edit]:
    if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None:
        yield places.replace(statement.value, "None")
        for node in _visible(statement.value):
            if isinstance(node, ast.Constant):
                yield from _constants(node, places)


def _of_module(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements at module level, including those inside conditions."""
    for statement in body:
        yield statement
        if isinstance(statement, ast.If | ast.Try):
            yield from _of_module(statement.body + statement.orelse)


def defaults(source: bytes) -> Iterator[Edit]:
    tree, places = ast.parse(source), _Places(source)
    for function in _functions(tree):
        for value in (*function.args.defaults, *(value for value in function.args.kw_defaults if value is not None)):
            if isinstance(value, ast.Constant) and value.value is not None:
                yield from _constants(value, places)
            else:
                yield places.replace(value, "0")


def decorators(source: bytes) -> Iterator[Edit]:
    tree, places = ast.parse(source), _Places(source)
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            for decorator in node.decorator_list:
                yield Edit(places.start(decorator) - 1, places.end(decorator), lambda _random: b"")


def deletions(source: bytes) -> Iterator[Edit]:
    tree, places = ast.parse(source), _Places(source)
    for node in ast.walk(tree):
        if isinstance(node, Function | ast.ClassDef):
            yield places.remove(node)


def renames(source: bytes) -> Iterator[Edit]:
    tree, places = ast.parse(source), _Places(source)
    for node in _functions(tree):
        start = source.index(f"def {node.name}".encode(), places.start(node)) + len("def ")
        yield Edit(start, start + len(node.name.encode()), _constantly(f"{node.name}_renamed"))


def new_names(source: bytes) -> Iterator[Edit]:
    """Yield edits that add a name hiding another one: a builtin, a function of the module, an inherited member."""
    tree, places = ast.parse(source), _Places(source)
    hidden = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} & set(HIDEABLE)
    hidden |= {node.name for node in tree.body if isinstance(node, Function)}
    for name in sorted(hidden):
        text = f"\n\ndef {name}(*args, **kwargs):\n    raise NotImplementedError\n"
        yield Edit(len(source), len(source), _constantly(text))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            indent, first = " " * node.body[0].col_offset, places.start(node.body[0])
            for name in SPECIAL:
                text = f"def {name}(self, *args):\n{indent}    raise NotImplementedError\n\n{indent}"
                yield Edit(first, first, _constantly(text))


def _constantly(text: str) -> Callable[[Random], bytes]:
    return lambda _random: text.encode()


def _functions(tree: ast.AST) -> Iterator[Function]:
    return (node for node in ast.walk(tree) if isinstance(node, Function))


def _is_docstring(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


EDITS: dict[str, Find] = {
    "body": bodies,
    "constant": module_constants,
    "default": defaults,
    "decorator": decorators,
    "attribute": class_attributes,
    "deletion": deletions,
    "rename": renames,
    "new name": new_names,
}
