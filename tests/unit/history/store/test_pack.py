"""Packs, signatures, chains of changes and moved files: they survive round trips, and unknown answers stay unknown."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchtest.core.model import Entry, EntryKind, Failure, Location
from watchtest.history.store.failure_signature import SIGNATURE_LIMIT, mask, signature
from watchtest.history.store.pack import (
    pack_durations,
    pack_outcomes,
    pack_roster,
    unpack_durations,
    unpack_outcomes,
    unpack_roster,
)
from watchtest.history.store.test_lineage import moved_files
from watchtest.history.store.tree_changes import changed_between, net_changes, pack_changes, unpack_changes

# -- packs -----------------------------------------------------------------------------------------


@given(st.sets(st.integers(1, 2**31)).map(sorted))
def test_a_roster_comes_back_and_equal_ones_have_one_digest(tests: list[int]) -> None:
    blob, digest = pack_roster(tests)
    assert unpack_roster(blob) == tests
    assert pack_roster(tuple(tests))[1] == digest
    assert pack_roster([*tests, 2**31 + 5])[1] != digest


@given(st.binary().map(lambda data: bytes(1 + each % 6 for each in data)))
def test_outcomes_come_back(codes: bytes) -> None:
    assert unpack_outcomes(pack_outcomes(codes), len(codes)) == codes


@given(st.lists(st.integers(0, 10**12)))
def test_durations_come_back_to_three_digits(spent: list[int]) -> None:
    for was, kept in zip(spent, unpack_durations(pack_durations(spent)), strict=True):
        assert abs(kept - was) <= max(0.5, was * 0.005)


def test_round_durations_are_kept_exactly() -> None:
    spent = [0, 1, 999, 250_000, 500_000, 12_300, 1_000_000, 61_000_000]
    assert unpack_durations(pack_durations(spent)) == spent


def test_a_green_run_of_five_hundred_tests_takes_less_than_two_bytes_a_test() -> None:
    durations = [1_000 + 37 * number % 800 for number in range(500)]
    assert pack_outcomes(b"\1" * 500) is None
    assert len(pack_durations(durations)) < 1000
    assert len(pack_roster(range(1, 501))[0]) < 60


# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("assert 1 == 2", "assert 17 == -3.5e4"),
        ("<Thing object at 0x7f00aa>", "<Thing object at 0x7f99bc>"),
        ("no such file /tmp/pytest-of-me/pytest-3/x.txt", "no such file /tmp/pytest-of-you/y"),
        ("at 2024-01-02T03:04:05.678Z", "at 2025-11-12 13:14"),
        ("job 123e4567-e89b-12d3-a456-426614174000 failed", "job 00000000-0000-0000-0000-00000000abcd failed"),
        ("commit deadbeef12345678", "commit 0123456789abcdef01"),
        ("two\n   lines", "two lines"),
    ],
)
def test_what_differs_by_chance_is_masked(one: str, other: str) -> None:
    assert mask(one) == mask(other)


@pytest.mark.parametrize(
    ("one", "other"), [("KeyError: 'name'", "KeyError: 'size'"), ("test_a failed", "test_b failed"), ("utf8", "utf16x")]
)
def test_what_differs_in_meaning_is_not(one: str, other: str) -> None:
    assert mask(one) != mask(other)


def test_a_signature_names_exception_message_and_function() -> None:
    failure = Failure("ZeroDivisionError", "division by 0", crash=Location("src/a.py", 3), function="Shop.total")
    assert signature(failure) == "ZeroDivisionError: division by # in Shop.total"


def test_a_test_that_says_no_itself_shares_its_signature_with_its_neighbours() -> None:
    def said(test: str, message: str) -> str:
        failure = Failure("AssertionError", message, crash=Location("t.py", 3), function=f"TestIt.{test}")
        return signature(failure, f"t.py::TestIt::{test}[a::b]")

    one, other = "assert 4 == 3\n +  where 4 = total([1, 2])", "assert 1 == 0\n +  where 1 = total([])"
    assert said("test_one", one) == said("test_other", other)
    assert said("test_one", one) == "AssertionError: assert # == # + where # = total([#]) in t.py"
    helper = Failure("AssertionError", one, crash=Location("t.py", 3), function="check")
    assert signature(helper, "t.py::test_one").endswith(" in check")


def test_without_a_function_the_file_stands_for_it_and_the_kind_is_said_once() -> None:
    assert signature(Failure("KeyError", "KeyError: 'a'", where=Location("t.py", 3))) == "KeyError: 'a' in t.py"
    assert signature(Failure("", "")) == "unknown"


@given(st.text(max_size=3000))
def test_a_signature_is_short_whatever_was_said(message: str) -> None:
    assert len(signature(Failure("K", message, function="f"))) <= SIGNATURE_LIMIT + 5


def test_a_huge_message_takes_no_time() -> None:
    assert len(mask("1a" * 5_000_000)) <= SIGNATURE_LIMIT


# -- chains ----------------------------------------------------------------------------------------


def entry(digest: str, mode: int = 0o644) -> Entry:
    return Entry(EntryKind.FILE, mode, 1, digest)


def test_a_link_holds_what_was_and_what_is() -> None:
    before, after = changed_between({"a": entry("1"), "b": entry("2")}, {"b": entry("3"), "c": entry("4", 0o755)})
    assert unpack_changes(pack_changes((before, after))) == (before, after)
    assert (before["a"], after["a"]) == ("10", None)
    assert before["c"] is None
    assert set(after) == {"a", "b", "c"}


def test_what_was_changed_back_has_not_changed() -> None:
    chain = [({"a": "y"}, {"a": "x"}), ({"a": "x", "b": "1"}, {"a": "y", "b": "2"})]
    assert net_changes([], chain) == ({"b": "1"}, {"b": "2"})
    assert net_changes(chain, []) == ({"b": "2"}, {"b": "1"})


def test_two_branches_meet_where_they_parted() -> None:
    one, other = ({"a": "x"}, {"a": "y"}), ({"a": "x", "b": None}, {"a": "z", "b": "n"})
    assert net_changes([one], [other]) == ({"a": "y", "b": None}, {"a": "z", "b": "n"})
    assert net_changes([], []) == ({}, {})


# -- moves -----------------------------------------------------------------------------------------


def test_a_file_of_the_same_content_was_moved() -> None:
    before, after = {"t/old.py": "d", "t/new.py": None}, {"t/old.py": None, "t/new.py": "d"}
    assert moved_files(before, after, {}) == {"t/new.py": "t/old.py"}


def test_a_file_with_most_of_the_names_was_moved_and_edited() -> None:
    before, after = {"old.py": "1", "new.py": None}, {"old.py": None, "new.py": "2"}
    tests = {"old.py": {"a", "b", "c", "d"}, "new.py": {"a", "b", "c", "e"}}
    assert moved_files(before, after, tests) == {"new.py": "old.py"}
    assert moved_files(before, after, {**tests, "new.py": {"a", "x", "y"}}) == {}


def test_a_copy_is_no_move_and_two_that_could_be_are_none() -> None:
    assert moved_files({"new.py": None}, {"new.py": "d"}, {}) == {}
    before = {"a/one.py": "d", "b/two.py": "d", "c/three.py": None}
    after = {"a/one.py": None, "b/two.py": None, "c/three.py": "d"}
    assert moved_files(before, after, {}) == {}
    assert moved_files({**before, "c/one.py": None}, {**after, "c/one.py": "d"}, {})["c/one.py"] == "a/one.py"
