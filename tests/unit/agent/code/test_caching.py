"""Which functions cache their results, and where, with examples as they are usually written."""

from __future__ import annotations

from types import CodeType

import pytest

from watchtest.agent.code.caching import cache_location, changes_global_state
from watchtest.agent.code.instructions import IN_CLOSURE, IN_INSTANCE, NOT_CACHED

IN_OBJECTS = {
    "None": "if self.x is None:\n        self.x = make()",
    "hasattr": "if not hasattr(self, 'x'):\n        self.x = make()",
    "getattr": "x = getattr(self, 'x', None)\n    if x is None:\n        x = self.x = make()",
    "AttributeError": "try:\n        return self.x\n    except AttributeError:\n        self.x = make()",
    "truth": "if not self.x:\n        self.x = make()",
    "or": "self.x = self.x or make()",
    "a flag": "if not self.is_loaded:\n        self.load()\n        self.is_loaded = True",
    "an item": "if y not in self.x:\n        self.x[y] = make()",
    "an item by get": "value = self.x.get(y)\n    if value is None:\n        self.x[y] = make()",
    "an item by KeyError": "try:\n        return self.x[y]\n    except KeyError:\n        self.x[y] = make()",
    "an alias": "x = self.x\n    if y not in x:\n        x[y] = make()",
    "a method": "if not self.x:\n        self.x.extend(make())",
    "__dict__": "self.__dict__['x'] = make()",
    "setattr": "if not hasattr(self, y):\n        setattr(self, y, make())",
}
NOT_KEPT = {
    "plain": "self.x = y",
    "a count": "self.x += 1",
    "put in": "self.x.append(y)",
    "None": "if self.x is not None:\n        self.x = None",
    "an own list": "x = []\n    x.append(y)\n    x[0] = self.x\n    return x",
}
AROUND = "def around(made):\n    {}\n    def function(y):\n        {}\n    return function\n"
IN_CLOSURES = {
    "an item": ("known = {}", "if y not in known: known[y] = made()\n        return known[y]"),
    "nonlocal": ("known = None", "nonlocal known\n        if known is None: known = made()\n        return known"),
    "a method": ("known = []", "if not known: known.append(made())"),
}


def function_of(source: str) -> CodeType:
    """Return the innermost function."""
    code = compile(source, "test", "exec")
    while True:
        inner = [one for one in code.co_consts if isinstance(one, CodeType)]
        if not inner:
            return code
        code = inner[0]


@pytest.mark.parametrize("body", IN_OBJECTS.values(), ids=IN_OBJECTS)
def test_what_is_kept_in_an_object_is_known(body: str) -> None:
    assert cache_location(function_of(f"def function(self, y):\n    {body}\n")) == IN_INSTANCE


@pytest.mark.parametrize("body", IN_OBJECTS.values(), ids=IN_OBJECTS)
def test_who_makes_an_object_keeps_nothing_in_it(body: str) -> None:
    assert cache_location(function_of(f"def __init__(self, y):\n    {body}\n")) == NOT_CACHED


@pytest.mark.parametrize("body", NOT_KEPT.values(), ids=NOT_KEPT)
def test_what_an_object_holds_is_not_always_kept(body: str) -> None:
    assert cache_location(function_of(f"def function(self, y):\n    {body}\n")) == NOT_CACHED


@pytest.mark.parametrize(("before", "body"), IN_CLOSURES.values(), ids=IN_CLOSURES)
def test_what_is_kept_in_the_function_around_is_known(before: str, body: str) -> None:
    assert cache_location(function_of(AROUND.format(before, body))) == IN_CLOSURE


def test_what_is_only_put_into_the_function_around_is_not_kept() -> None:
    assert cache_location(function_of(AROUND.format("calls = []", "calls.append(y)"))) == NOT_CACHED


def test_what_is_missing_need_not_be_asked_for() -> None:
    assert cache_location(function_of("def __missing__(self, y):\n    self[y] = make()\n")) == IN_INSTANCE
    assert cache_location(function_of("def __getattr__(self, y):\n    setattr(self, y, make())\n")) == IN_INSTANCE


LEFT = {
    "an attribute": "STATE.x = None",
    "an attribute that goes": "del STATE.x",
    "an item": "STATE['x'] = y",
    "an item that goes": "del STATE['x']",
    "a method": "STATE.clear()",
    "a method of an attribute": "Shop.known.append(y)",
    "an alias": "state = STATE\n    state.x = y",
    "a function of the system": "os.getcwd = y",
    "the environment": "os.environ.pop('X', None)",
    "in a generator": "STATE.x = y\n    yield\n    STATE.x = None",
}
NOT_LEFT = {
    "read": "return STATE.x + len(STATE)",
    "an own object": "shop = Shop()\n    shop.x = y\n    return shop",
    "a parameter": "y.x = 1\n    y.clear()",
    "a file that goes": "os.remove(y)",
    "what a call gives": "make().x = y",
    "of itself": "self.x = y\n    self.known.append(y)",
}


@pytest.mark.parametrize("body", LEFT.values(), ids=LEFT)
def test_a_function_leaves_something_that_others_find_by(body: str) -> None:
    assert changes_global_state(function_of(f"def function(self, y):\n    {body}\n"))


@pytest.mark.parametrize("body", NOT_LEFT.values(), ids=NOT_LEFT)
def test_a_function_leaves_nothing_by(body: str) -> None:
    assert not changes_global_state(function_of(f"def function(self, y):\n    {body}\n"))
