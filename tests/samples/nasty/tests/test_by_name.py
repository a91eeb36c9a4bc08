"""Imports nothing of the shop by a statement."""

import sys


def test_a_module_by_its_name():
    assert __import__("shop.dynamic").dynamic.LIMIT == 7


def test_a_function_of_a_loaded_module():
    assert sys.modules["shop.dynamic"].answer() == 42


def test_a_constant_of_a_loaded_module():
    assert sys.modules["shop.dynamic"].LIMIT == 7


def test_a_name_is_replaced(monkeypatch):
    monkeypatch.setattr("shop.patched.send", lambda message: "none")
