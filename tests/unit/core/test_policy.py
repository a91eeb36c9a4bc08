"""Which test files run first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from watchtest.core.model import Failure, Outcome, Result
from watchtest.core.policy import UNKNOWN, file_order


def known(*results: tuple[str, float, bool]) -> dict[str, Result]:
    return {
        test: Result(test, Outcome.FAILED, duration_s, Failure("E", ""))
        if is_red
        else Result(test, Outcome.PASSED, duration_s)
        for test, duration_s, is_red in results
    }


TESTS = known(
    ("slow.py::a", 5.0, False),
    ("quick.py::a", 0.1, False),
    ("quick.py::b", 0.1, False),
    ("edited.py::a", 9.0, False),
    ("red.py::a", 3.0, False),
    ("red.py::b", 0.0, True),
)


def test_red_files_come_first_then_changed_then_unknown_then_the_shortest() -> None:
    assert file_order(TESTS, {"edited.py", "code.py"}) == ("red.py", "edited.py", UNKNOWN, "quick.py", "slow.py")


def test_of_two_red_files_the_changed_one_goes_first_and_then_the_shorter() -> None:
    red = known(("a.py::t", 1.0, True), ("b.py::t", 2.0, True), ("c.py::t", 0.5, True))
    assert file_order(red, {"b.py"}) == ("b.py", "c.py", "a.py", UNKNOWN)


def test_a_file_counts_by_the_time_of_all_its_tests() -> None:
    many = known(*((f"many.py::t{number}", 0.3, False) for number in range(10)), ("one.py::t", 1.0, False))
    assert file_order(many, ()) == (UNKNOWN, "one.py", "many.py")


def test_where_nothing_is_known_nothing_is_ordered() -> None:
    assert file_order({}, {"a.py"}) == ()


@given(
    st.dictionaries(
        st.sampled_from([f"{file}.py::{test}" for file in "abcde" for test in "xy"]),
        st.tuples(st.floats(0, 10), st.booleans()),
        min_size=1,
    ),
    st.sets(st.sampled_from(["a.py", "b.py", "z.py"])),
)
def test_every_known_file_has_exactly_one_place(tests: dict[str, tuple[float, bool]], changed: set[str]) -> None:
    order = file_order(known(*((test, *rest) for test, rest in tests.items())), changed)
    assert sorted(order) == sorted({UNKNOWN} | {test.partition("::")[0] for test in tests})
