import os

import shop
from shop import *  # noqa: F403


def test_a_name_by_star_import():
    assert shop.starred() == "star"


def test_a_module_that_is_loaded_when_asked_for():
    assert shop.rarely.seldom() == "seldom"


def test_what_the_package_offers():
    assert gross(10) == 12  # noqa: F405


def test_a_name_that_is_not_offered():
    assert not hasattr(shop, "hidden")


def test_the_mode_of_all_tests():
    assert os.environ["SHOP_MODE"] == "open"
