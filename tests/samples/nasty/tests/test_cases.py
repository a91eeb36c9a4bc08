import pytest

from tests.cases import PAIRS, cubes


@pytest.mark.parametrize(("number", "square"), PAIRS)
def test_squares(number, square):
    assert number**2 == square


@pytest.mark.parametrize(("number", "cube"), cubes())
def test_cubes(number, cube):
    assert number**3 == cube


def test_letters(letter):
    assert letter.islower()
