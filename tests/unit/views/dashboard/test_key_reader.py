"""Reads keys from a real pseudo-terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest

from watchtest.views.dashboard.key_reader import KeyReader

pty = pytest.importorskip("pty", reason="this system has no pseudo terminals")
termios = pytest.importorskip("termios", reason="this system has no termios")


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Return our end and the user's end."""
    user, ours = pty.openpty()
    yield ours, user
    os.close(ours)
    os.close(user)


def modes(descriptor: int) -> list[object]:
    found: list[object] = termios.tcgetattr(descriptor)
    return found


def test_keys_arrive_one_by_one_and_sequences_do_not(terminal: tuple[int, int]) -> None:
    ours, user = terminal
    before = modes(ours)
    keys: list[str] = []

    async def main() -> None:
        is_over, is_escaped = asyncio.Event(), asyncio.Event()

        def take(key: str) -> None:
            keys.append(key)
            if key == "escape":
                is_escaped.set()
            if key == "q":
                is_over.set()

        with KeyReader(ours, take, is_in_foreground=lambda _: True) as reader:
            assert reader.unavailable == ""
            assert modes(ours) != before
            assert not termios.tcgetattr(ours)[0] & termios.IXON
            os.write(user, b"r\x1b[A\x1bOP\x1b[15~\x1b")
            await asyncio.wait_for(is_escaped.wait(), 10)
            os.write(user, b"\x13q")  # Ctrl-S, pressed out of habit
            await asyncio.wait_for(is_over.wait(), 10)

    asyncio.run(main())
    assert keys == ["r", "up", "escape", "q"]
    assert modes(ours) == before


def test_the_terminal_is_restored_after_a_crash(terminal: tuple[int, int]) -> None:
    ours, _ = terminal
    before = modes(ours)

    async def main() -> None:
        with KeyReader(ours, print, is_in_foreground=lambda _: True):
            raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        asyncio.run(main())
    assert modes(ours) == before


def test_a_terminal_that_is_not_in_front_is_left_alone(terminal: tuple[int, int]) -> None:
    ours, _ = terminal
    before = modes(ours)

    async def main() -> str:
        with KeyReader(ours, print) as reader:
            assert modes(ours) == before
            return reader.unavailable

    assert asyncio.run(main()) == "keys are not available in the background"


def test_an_input_that_is_no_terminal_says_so() -> None:
    async def main() -> str:
        reading, writing = os.pipe()
        try:
            with KeyReader(reading, print) as reader:
                return reader.unavailable
        finally:
            os.close(reading)
            os.close(writing)

    assert asyncio.run(main()) == "keys are not available: standard input is not a terminal"
