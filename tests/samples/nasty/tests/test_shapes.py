import asyncio

from shop import shapes


def test_lambdas():
    assert shapes.by_size["large"]() == 10


def test_a_function_in_a_function():
    assert shapes.adder(1)(2) == 3


def test_a_generator():
    assert list(shapes.countdown(2)) == [2, 1]


def test_a_coroutine():
    assert asyncio.run(shapes.fetch()) == "fetched"


def test_a_context_manager():
    with shapes.opened() as it:
        assert it == "opened"


def test_a_comprehension():
    assert shapes.squares(3) == [0, 1, 4]


def test_two_lambdas_of_one_line():
    assert [way() for way in shapes.ways()] == ["here", "there"]
