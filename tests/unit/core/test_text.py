"""Untrusted text is made harmless."""

from __future__ import annotations

import time
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watchtest.core.text import clean, cut, cut_front, duration, encodable, one_line, tail

NASTY = st.text(alphabet=st.one_of(st.characters(), st.sampled_from("\x1b[]P^_X\\\x07\x9b\x9d\x90\x9c0;m\r\n\t\u202e")))


@given(NASTY)
def test_nothing_that_steers_a_terminal_is_left(text: str) -> None:
    left = clean(text)
    assert not [letter for letter in left if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\n\t"]
    assert not set(left) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
    assert clean(left) == left
    left.encode()


@given(st.text(alphabet=st.characters(categories=["L", "N", "P", "Zs"]), max_size=200))
def test_ordinary_text_stays_as_it_is(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("\x1b[1;31mred\x1b[0m", "red"),
        ("\x1b]0;title\x07name", "name"),
        ("\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPq#0\x1b\\pic", "pic"),
        ("\x9b2Jc1", "c1"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("open \x1b]0;never closed", "open 0;never closed"),
        ("bell\x07\x00\x08", "bell"),
        ("a\udcffb", "a\ufffdb"),
        ("\x1b(Bascii\x1bc", "ascii"),
        ("tab\tand ünïcode ✔", "tab\tand ünïcode ✔"),
    ],
)
def test_each_kind_of_sequence_goes(text: str, left: str) -> None:
    assert clean(text) == left


@pytest.mark.parametrize("piece", ["\x1b]", "\x9d", "\x1b[", "\x1b]\x1b", "\x9b0", "\x1b "])
def test_a_megabyte_of_openings_is_cleaned_in_no_time(piece: str) -> None:
    began = time.perf_counter()
    clean(piece * (1_000_000 // len(piece)))
    assert time.perf_counter() - began < 5


def test_cuts_keep_their_limit_and_say_that_they_cut() -> None:
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
    assert cut_front("abcdefg", 6) == "…cdefg"
    assert cut_front("abcdef", 6) == "abcdef"
    assert len(cut("x" * 10**6, 100)) == len(cut_front("x" * 10**6, 100)) == 100


def test_one_line_is_the_first_that_says_something() -> None:
    assert one_line("\n\n  assert  1 ==\t2 \n  + more") == "assert 1 == 2"
    assert one_line("a\u2028b") == "a"
    assert one_line("") == ""


def test_a_tail_has_the_last_lines_without_empty_ends() -> None:
    assert tail("1\n2\n3\n\n\n", 2) == ("2", "3")
    assert tail("", 5) == ()


def test_a_console_that_knows_no_tick_gets_a_question_mark() -> None:
    assert encodable("✔ ok", "ascii") == "? ok"
    assert encodable("✔ ok", None) == "✔ ok"


@pytest.mark.parametrize(
    ("seconds", "said"), [(-1, "0.0s"), (0.84, "0.8s"), (12.3, "12s"), (63, "1m03s"), (7300, "2h01m")]
)
def test_durations_are_short(seconds: float, said: str) -> None:
    assert duration(seconds) == said


def test_harmless_text_of_many_lines_is_told_from_the_rest_quickly() -> None:
    text = "a line of ärger\twith a tab\n" * 400_000
    began = time.process_time()
    assert clean(text) == text
    assert time.process_time() - began < 0.5  # a regular expression would take seconds on it
