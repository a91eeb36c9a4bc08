"""The arguments of `setup()` are read from the syntax tree, and nothing of the script is executed."""

from __future__ import annotations

import time

import pytest

from watchtest.boxes.recipe.languages.python.setup_script import UNKNOWN, setup_arguments, strings


@pytest.mark.parametrize(
    ("script", "extras"),
    [
        ("setup(extras_require={'test': ['a', 'b']})", {"test": ["a", "b"]}),
        ("setuptools.setup(extras_require=dict(test=('a',)))", {"test": ["a"]}),
        (
            "T = ['a']\nsetup(extras_require={'test': T + ['b'], 'all': [*T, 'c']})",
            {"test": ["a", "b"], "all": ["a", "c"]},
        ),
        ("E = {'t': ['a']}\nE['dev'] = E['t'] + ['b']\nsetup(extras_require=E)", {"t": ["a"], "dev": ["a", "b"]}),
        (
            "A = dict(extras_require={'t': 'a b'.split()})\nif __name__ == '__main__':\n    setup(**A)",
            {"t": ["a", "b"]},
        ),
        ("E = {'t': ['a']}\nsetup(extras_require={**E, 'u': ['b' 'c']})", {"t": ["a"], "u": ["bc"]}),
        ("def main():\n    extras = {'t': ['a']}\n    setup(extras_require=extras)\nmain()", {"t": ["a"]}),
        ("setup(extras_require={'t': read('t.txt')})", {"t": UNKNOWN}),
        ("setup(extras_require=compute())", UNKNOWN),
        ("E = {'a': ['x']}\nE['all'] = E['all'] + ['y']\nsetup(extras_require=E)", {"a": ["x"], "all": [UNKNOWN, "y"]}),
    ],
)
def test_literals_and_names_are_read(script: str, extras: object) -> None:
    assert setup_arguments(script)["extras_require"] == extras


@pytest.mark.parametrize(
    "script",
    [
        "",
        "setup(",
        "print('\\0')",
        "x = " + "(" * 5000,
        "'a" + chr(0) + "'",
        "a = " + "+".join(["a"] * 6000) + "\nsetup(name=a)",
    ],
)
def test_an_unusual_script_is_no_error(script: str) -> None:
    assert setup_arguments(script).get("extras_require") is None


def test_a_script_made_to_take_forever_does_not() -> None:
    doubled = "".join(f"a{n + 1} = a{n} + a{n}\n" for n in range(60))
    began = time.perf_counter()
    for first in ("['x']", "'x' * 9", f"{'x' * 1000!r}"):
        setup_arguments(f"a0 = {first}\n{doubled}setup(install_requires=a60)")
    assert time.perf_counter() - began < 2


def test_a_text_stands_for_its_lines() -> None:
    assert strings("a\n  b\n\n") == ("a", "b")
    assert strings(["a", UNKNOWN, 3]) == ("a",)
    assert strings(UNKNOWN) == ()
