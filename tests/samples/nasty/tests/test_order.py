"""What no selection can see: a test that leaves something for the next one."""

from shop import globals as state


def replaced():
    return "replaced"


def test_first_sets_the_mode():
    state.STATE["mode"] = chosen()


def chosen():
    return "wild"


def test_second_finds_it():
    assert state.mode() == "wild"


def test_first_replaces_a_function():
    state.helper = replaced


def test_first_replaces_another_function():
    state.label = str.upper


def test_second_calls_the_replacement():
    assert state.helper() == "replaced"
