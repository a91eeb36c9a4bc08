"""Each thing twice, as in test_remember.py."""

import pytest
from shop import habits


@pytest.mark.parametrize("time", ["first", "second"])
class TestTwice:
    def test_a_decorator_of_our_own(self, time):
        assert habits.weight("egg") == 3

    def test_an_attribute_that_may_be_missing(self, time):
        for _ in range(9):
            habits.Shelf()  # where these were, others will be
        assert habits.shelf().label == "for sale"

    def test_an_item_of_an_attribute(self, time):
        assert habits.shelf().price("ham") == 30

    def test_a_list_that_is_filled(self, time):
        assert habits.words() == ["s", "t"]
