import pytest
from shop import store

SEEN = []


@pytest.fixture(scope="session")
def shared_store():
    opened = store.connect()
    yield opened
    assert closed(opened)


def closed(opened):
    return opened.close()


@pytest.fixture(scope="module")
def catalogue(shared_store):
    return {name: len(name) for name in shared_store.stock}


@pytest.fixture(scope="package")
def packet():
    return contents()


def contents():
    return "packet"


@pytest.fixture(scope="session", autouse=True)
def language():
    SEEN.append(tongue())


def tongue():
    return "en"


@pytest.fixture(scope="session")
def scales():
    return balanced()


def balanced():
    return "even"


def pytest_generate_tests(metafunc):
    if "letter" in metafunc.fixturenames:
        metafunc.parametrize("letter", generated())


def generated():
    from tests.cases import letters

    return letters()
