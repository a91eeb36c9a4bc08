import pytest

from tests import conftest


def test_a_basket(basket):
    assert basket == ["egg"]


def test_a_catalogue(catalogue):
    assert catalogue == {"screw": 5, "nail": 4}


def test_a_second_look_at_the_catalogue(catalogue):
    assert len(catalogue) == 2


def test_a_packet(packet):
    assert packet == "packet"


def test_the_language():
    assert conftest.SEEN == ["en"]


def test_a_fixture_by_its_name(request):
    assert request.getfixturevalue("basket") == ["egg"]


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_wide_fixture_by_its_name(request, time):
    assert request.getfixturevalue("scales") == "even"


@pytest.fixture(scope="module")
def weighing(request):
    return request.getfixturevalue("scales")


@pytest.mark.parametrize("time", ["first", "second"])
def test_a_fixture_that_asks_for_another_by_its_name(weighing, time):
    assert weighing == "even"


def test_the_limit(pytestconfig):
    assert pytestconfig.stash_of_shop == 3


def test_what_the_session_has_found(pytestconfig):
    assert "print_program.py" in pytestconfig.stash_of_files
    assert "new.txt" not in pytestconfig.stash_of_files


class TestOldStyle:
    @classmethod
    def setup_class(cls):
        cls.made = made_for_all()

    def test_one(self):
        assert self.made == "made"

    def test_two(self):
        assert self.made == "made"


def made_for_all():
    return "made"
