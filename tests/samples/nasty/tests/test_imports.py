import importlib
import inspect
import sys
from unittest import mock

import shop.dynamic
from shop import documented, lazily, optional, patched, plugins, removable


def test_without_speedup():
    assert not optional.is_fast()


def test_without_extra():
    assert not optional.has_extra()


def test_a_late_import():
    assert lazily.late() == "late"


def test_what_a_late_module_holds():
    assert importlib.import_module("shop.latecomer").ONLY_ONCE == "once"


def test_plugins():
    assert plugins.load() == {"alpha": "alpha", "beta": "beta"}


def test_a_function_patched_by_name():
    with mock.patch("shop.patched.send", return_value="nothing"):
        assert patched.notify("x") == "nothing"


def test_a_source():
    assert "as it is written" in inspect.getsource(documented.sourced)


def test_a_docstring():
    assert documented.documented.__doc__.startswith("Says")


def test_inheritance():
    assert removable.Child().greet() == "child"


def test_doomed():
    assert removable.doomed() == "here"


def test_a_loaded_module():
    assert sys.modules["shop.dynamic"] is shop.dynamic
