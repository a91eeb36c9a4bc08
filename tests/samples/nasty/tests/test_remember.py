"""Each thing twice: whoever comes first finds it out, the other uses what was found."""

import pytest
from shop import remember


@pytest.mark.parametrize("time", ["first", "second"])
class TestTwice:
    def test_a_cached_function(self, time):
        assert remember.cached_rate("low") == 5

    def test_a_table(self, time):
        assert remember.kept_rate("high") == 21

    def test_a_global_name(self, time):
        assert remember.settings()["name"] == "shop"

    def test_the_only_one(self, time):
        assert remember.Catalogue.only().pages == 3

    def test_a_cached_property(self, time):
        assert remember.SHARED.title == "catalogue"

    def test_a_lazy_attribute(self, time):
        assert remember.SHARED.index == ["a", "b"]
