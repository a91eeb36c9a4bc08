import pytest
from shop import gross, prices
from shop.prices import net, rounded


def test_gross():
    assert gross(100) == 120


def test_net():
    assert net(120) == 100


def test_net_of_nothing():
    assert net(0) == 0


def test_rounded():
    assert rounded(1.26) == 1


def test_labels():
    assert prices.labels() == ["1", "2"]


def test_a_docstring_is_there():
    assert prices.undocumented.__doc__ == "Nothing to see."


def test_annotations():
    assert prices.annotated.__annotations__ == {"amount": int, "return": "int"}


@pytest.mark.slow
def test_that_is_slow():
    assert prices.annotated(1) == 1
