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


def test_the_limit(pytestconfig):
    assert pytestconfig.stash_of_shop == 3


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
