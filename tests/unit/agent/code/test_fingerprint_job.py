"""What counts as a change of a Python file, and which part of it changed, with the compiler of every Python on the
path."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
from support.pythons import pythons

from watchtest.agent.code.fingerprint_job import PROGRAM
from watchtest.core.recorded import FileFingerprint, ImportName
from watchtest.selection.recorded_rows import parse_fingerprint


@pytest.fixture(scope="module", params=pythons(), ids=os.path.basename)
def python(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def prints(python: str, folder: Path, *sources: str) -> list[FileFingerprint]:
    names = [f"{number}.py" for number in range(len(sources))]
    for name, source in zip(names, sources, strict=True):
        (folder / name).write_text(source)
    said = subprocess.run(
        [python, "-I", "-c", PROGRAM, str(folder)], input=json.dumps(names), capture_output=True, text=True, check=True
    )
    return [parse_fingerprint(json.loads(line)) for line in said.stdout.splitlines()]


BASE = '''
import functools

LIMIT = 3

def plain(amount, factor=2):
    """What it does."""
    return amount * factor

class Thing:
    size = 1
    def method(self):
        return self.size
    @property
    def half(self):
        return self.size / 2

def outer():
    def inner():
        return 1
    return inner

shorten = lambda text: text[:3]

def numbers():
    yield 1

def listed(limit):
    return [number + 1 for number in range(limit)]

@functools.lru_cache(maxsize=None)
def cached():
    return 1

async def waits():
    return 1
'''
NOTHING = {
    "a comment": ("LIMIT = 3", "LIMIT = 3  # three"),
    "a line of comment": ("    return amount", "    # The product.\n    return amount"),
    "blank lines": ("class Thing:", "\n\n\nclass Thing:"),
    "blanks": ("amount * factor", "amount  *  factor"),
    "brackets": ("return self.size / 2", "return (self.size / 2)"),
    "line breaks": ("amount * factor", "(amount\n        * factor)"),
    "a constant on a line of its own": ("yield 1", "yield (\n        1\n    )"),
    "quotes": ('"""What it does."""', "'What it does.'"),
    "the spelling of a number": ("LIMIT = 3", "LIMIT = 0x3"),
}
BODIES = {
    "a function": ("amount * factor", "amount + factor", {"plain"}),
    "a constant in a function": ("text[:3]", "text[:4]", {"<lambda>"}),
    "a method": ("return self.size\n", "return -self.size\n", {"Thing.method"}),
    "a property": ("self.size / 2", "self.size / 3", {"Thing.half"}),
    "a function in a function": ("inner():\n        return 1", "inner():\n        return 2", {"outer.inner"}),
    "a generator": ("yield 1", "yield 2", {"numbers"}),
    "a coroutine": ("waits():\n    return 1", "waits():\n    return 2", {"waits"}),
    "a default of a function in a function": ("def inner():", "def inner(more=1):", {"outer"}),
}  # fmt: skip
SHELLS = {
    "a constant": ("LIMIT = 3", "LIMIT = 4"),
    "the type of a constant": ("LIMIT = 3", "LIMIT = 3.0"),
    "a default": ("factor=2", "factor=3"),
    "the name of a parameter": ("plain(amount, factor", "plain(number, factor"),
    "a docstring": ("What it does.", "What it did."),
    "a class attribute": ("size = 1", "size = 2"),
    "a decorator": ("    @property\n", ""),
    "an argument of a decorator": ("maxsize=None", "maxsize=8"),
    "an annotation": ("outer()", "outer() -> int"),
    "a base class": ("class Thing:", "class Thing(dict):"),
    "a new method": ("    size = 1\n", "    size = 1\n    def more(self): pass\n"),
    "a method that goes": ("    def method(self):\n        return self.size\n", ""),
    "another name": ("def numbers", "def figures"),
    "a function that becomes a generator": ("return 1\n\nasync", "yield 1\n\nasync"),
    "a coroutine that becomes a function": ("async def", "def"),
    "an import": ("import functools", "import functools, json"),
}


def edited(old: str, new: str) -> str:
    assert BASE.count(old) == 1, old
    return BASE.replace(old, new)


def test_comments_and_positions_are_nothing(python: str, tmp_path: Path) -> None:
    before, *after = prints(python, tmp_path, BASE, *(edited(*edit) for edit in NOTHING.values()))
    assert {words for words, one in zip(NOTHING, after, strict=True) if faces(one) != faces(before)} == set()


def faces(one: FileFingerprint) -> tuple[str, dict[str, str]]:
    return one.shell, dict(one.functions)


def test_a_body_changes_the_function_that_it_is_of_and_nothing_else(python: str, tmp_path: Path) -> None:
    before, *after = prints(python, tmp_path, BASE, *(edited(old, new) for old, new, _ in BODIES.values()))
    for (words, (_, _, expected)), one in zip(BODIES.items(), after, strict=True):
        changed = {name for name, digest in one.functions.items() if before.functions.get(name) != digest}
        assert expected <= changed <= expected | {"outer", "outer.inner"}, words
        assert one.shell == before.shell, words


def test_what_can_be_seen_without_a_call_belongs_to_the_shell(python: str, tmp_path: Path) -> None:
    before, *after = prints(python, tmp_path, BASE, *(edited(*edit) for edit in SHELLS.values()))
    assert {words for words, one in zip(SHELLS, after, strict=True) if one.shell == before.shell} == set()


def test_a_comprehension_in_a_function_belongs_to_a_function(python: str, tmp_path: Path) -> None:
    before, after = prints(python, tmp_path, BASE, edited("number + 1", "number + 2"))
    changed = {name for name, digest in after.functions.items() if before.functions.get(name) != digest}
    assert changed
    assert all(name.startswith("listed") for name in changed)
    assert after.shell == before.shell


def test_a_comprehension_of_a_module_belongs_to_the_shell(python: str, tmp_path: Path) -> None:
    before, after = prints(python, tmp_path, "x = [n + 1 for n in y]", "x = [n + 2 for n in y]")
    assert before.shell != after.shell


def test_two_functions_on_a_line_are_told_apart_by_numbers(python: str, tmp_path: Path) -> None:
    (one,) = prints(python, tmp_path, "x = (lambda: 1, lambda: 2)")
    assert set(one.functions) == {"<lambda>", "<lambda>#2"}
    assert one.places[1, "<lambda>"] == ("<lambda>", "<lambda>#2")


@pytest.mark.parametrize(
    "body",
    [
        "global kept\n    kept = argument",
        "KEPT[argument] = 1",
        "if argument not in KEPT.inner:\n        KEPT.inner[argument] = make()",
        "if KEPT.made is None:\n        KEPT.made = make()",
        "globals()[argument] = 1",
        "if not KEPT:\n        KEPT.update(make())",
        "known = KEPT\n    if argument not in known:\n        known[argument] = make()",
        "if not hasattr(KEPT, 'made'):\n        KEPT.made = make()",
        "if not KEPT.made:\n        KEPT.made = make()",
        "KEPT.add(argument)",
        "KEPT.made = None",
        "del KEPT[argument]",
    ],
)
def test_a_function_that_changes_what_all_find_is_known(body: str, python: str, tmp_path: Path) -> None:
    (one,) = prints(python, tmp_path, f"def function(argument):\n    {body}\n")
    assert one.writers == {"function"}


@pytest.mark.parametrize(
    "body",
    [
        "argument.value = KEPT",
        "argument[KEPT] = 1",
        "list(argument).pop()",
        "mine = {}\n    mine[argument] = KEPT",
        "return KEPT[argument]",
        "mine = KEPT()\n    mine[argument] = mine.get(KEPT)",
        "if argument.value is None:\n        argument.value = KEPT",
    ],
)
def test_a_function_that_changes_nothing_of_that_is_none_of_them(body: str, python: str, tmp_path: Path) -> None:
    (one,) = prints(python, tmp_path, f"def function(argument):\n    {body}\n")
    assert one.writers == frozenset()


@pytest.mark.parametrize("decorator", ["cached", "library.memoize(size=2)", "numba.njit", "once"])
def test_a_function_that_its_decorator_may_not_call_is_one_of_them(decorator: str, python: str, tmp_path: Path) -> None:
    source = f"class K:\n    @other\n    @{decorator}\n    def function(self, argument: Cache = CACHE): pass\n"
    source += "@other\ndef plain(argument: Cache = CACHE, more=[]): pass\n"
    (one,) = prints(python, tmp_path, source)
    assert one.writers == {"K.function"}


def test_a_default_that_is_kept_in_is_known(python: str, tmp_path: Path) -> None:
    body = "\n    if a not in b:\n        b[a] = make()\n    return b[a]\n"
    (one,) = prints(python, tmp_path, f"def cache_location(a, b={{}}):{body}def fills(a, b):{body}")
    assert one.writers == {"cache_location"}


def test_what_a_package_may_load_when_asked_is_known(python: str, tmp_path: Path) -> None:
    (one,) = prints(python, tmp_path, "KNOWN = {'x': '.late'}\ndef __getattr__(name):\n    return name == 'later'\n")
    assert ImportName(1, "", ("late", "later", "x")) in one.imports


def test_imports_are_known_wherever_they_stand(python: str, tmp_path: Path) -> None:
    source = "import a.b\nfrom . import c\nfrom i import *\n"
    source += "def f():\n    from ..d import e as g, h\nclass K:\n    import j\n"
    (one,) = prints(python, tmp_path, source)
    assert set(one.imports) == {
        ImportName(0, "a.b"),
        ImportName(1, "", ("c",)),
        ImportName(2, "d", ("e", "h")),
        ImportName(0, "i", ("*",)),
        ImportName(0, "j"),
    }


def test_a_text_may_name_a_module(python: str, tmp_path: Path) -> None:
    source = 'def f(patch):\n    patch("shop.cart.add")\n    __import__("cart")\n    return "no.module, this"\n'
    (one,) = prints(python, tmp_path, source)
    assert set(one.imports) == {ImportName(0, "shop.cart.add"), ImportName(0, "cart")}


def test_a_file_that_does_not_parse_says_where(python: str, tmp_path: Path) -> None:
    (one,) = prints(python, tmp_path, "x = 1\ndef f(:\n")
    assert one.error.startswith("does not parse: ")
    assert one.error.endswith("line 2")


def test_the_text_of_a_file_in_another_encoding_is_read_as_python_does(python: str, tmp_path: Path) -> None:
    (tmp_path / "latin.py").write_bytes(b"# coding: latin-1\nx = '\xe4'\n")
    said = subprocess.run(
        [python, "-I", "-c", PROGRAM, str(tmp_path)], input='["latin.py"]', capture_output=True, text=True, check=True
    )
    assert parse_fingerprint(json.loads(said.stdout)).error == ""


def test_places_are_those_of_the_code_that_runs(python: str, tmp_path: Path) -> None:
    source = BASE + "x = (\n    1,\n    lambda: 2,\n    (n for n in\n     y),\n)\n"
    source += "@d(\n    1)\n@e\ndef f(a=\n  lambda: 3): pass\n"
    (one,) = prints(python, tmp_path, source)
    words = "import sys, types\nwaiting = [compile(open(sys.argv[1]).read(), 'x', 'exec')]\n"
    words += "while waiting:\n    code = waiting.pop()\n    print(code.co_firstlineno, code.co_name)\n"
    words += "    waiting += [one for one in code.co_consts if isinstance(one, types.CodeType)]\n"
    said = subprocess.run([python, "-c", words, str(tmp_path / "0.py")], capture_output=True, text=True, check=True)
    expected = {(int(line), name) for line, _, name in (text.partition(" ") for text in said.stdout.splitlines())}
    assert set(one.places) == expected
