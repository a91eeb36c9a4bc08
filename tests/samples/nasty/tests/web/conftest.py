import pytest


@pytest.fixture
def page():
    return "<html>"
