from pathlib import Path

import pytest


def pytest_configure(config):
    config.stash_of_shop = limit()
    config.stash_of_files = sorted(path.name for path in (Path(__file__).parent / "tools").iterdir())


def limit():
    return 3


def pytest_runtest_setup(item):
    if item.get_closest_marker("slow") and not slow_tests_run():
        pytest.skip("slow")


def slow_tests_run():
    return True


@pytest.fixture
def basket():
    return filled([])


def filled(basket):
    return [*basket, "egg"]
