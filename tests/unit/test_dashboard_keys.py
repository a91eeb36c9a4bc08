"""Keys on a real pseudo terminal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator

import pytest
from view_states import NOON, Story, failed, passed

from watchtest.core.events import CancelAsked, PauseAsked, QuitAsked, ResumeAsked, RunAsked
from watchtest.core.model import All, Lane, Only
from watchtest.views.keys import Keys, event_of

pty = pytest.importorskip("pty", reason="this system has no pseudo terminals")
termios = pytest.importorskip("termios", reason="this system has no termios")

A, B = "tests/test_a.py::test_a", "tests/test_a.py::test_b"


@pytest.fixture
def terminal() -> Iterator[tuple[int, int]]:
    """Our end and the user's end."""
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
        is_over = asyncio.Event()

        def take(key: str) -> None:
            keys.append(key)
            if key == "q":
                is_over.set()

        with Keys(ours, take, is_in_front=lambda _: True) as reader:
            assert reader.unavailable == ""
            assert modes(ours) != before
            os.write(user, b"r\x1b[A\x1bOPq")
            await asyncio.wait_for(is_over.wait(), 10)

    asyncio.run(main())
    assert keys == ["r", "q"]
    assert modes(ours) == before


def test_the_terminal_is_restored_after_a_crash(terminal: tuple[int, int]) -> None:
    ours, _ = terminal
    before = modes(ours)

    async def main() -> None:
        with Keys(ours, print, is_in_front=lambda _: True):
            raise RuntimeError("bug")

    with pytest.raises(RuntimeError, match="bug"):
        asyncio.run(main())
    assert modes(ours) == before


def test_a_terminal_that_is_not_in_front_is_left_alone(terminal: tuple[int, int]) -> None:
    ours, _ = terminal
    before = modes(ours)

    async def main() -> str:
        with Keys(ours, print) as reader:
            assert modes(ours) == before
            return reader.unavailable

    assert asyncio.run(main()) == "keys are not available in the background"


def test_an_input_that_is_no_terminal_says_so() -> None:
    async def main() -> str:
        reading, writing = os.pipe()
        try:
            with Keys(reading, print) as reader:
                return reader.unavailable
        finally:
            os.close(reading)
            os.close(writing)

    assert asyncio.run(main()) == "keys are not available: the input is no terminal"


def test_each_key_asks_for_its_own() -> None:
    story = Story().run("t1", failed(A), passed(B))
    state = story.state
    assert event_of("q", state, NOON) == QuitAsked(Lane.SAVE, NOON)
    assert event_of("R", state, NOON) == RunAsked(Lane.SAVE, NOON, All(because="asked for by key"))
    assert event_of("f", state, NOON) == RunAsked(Lane.SAVE, NOON, Only((A,), because="1 known to fail"))
    assert event_of("c", state, NOON) == CancelAsked(Lane.SAVE, NOON)
    assert event_of("p", state, NOON) == PauseAsked(Lane.SAVE, NOON)
    assert event_of("p", story.on(PauseAsked(Lane.SAVE, NOON)).state, NOON) == ResumeAsked(Lane.SAVE, NOON)
    assert event_of("h", state, NOON) is None
    assert event_of("\n", state, NOON) is None
