"""A box whose agent cannot be reached is repaired step by step: restarted, then created anew."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from support.containers import recipe

from watchtest.boxes.box import Box, Repair
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec
from watchtest.boxes.protocols import Note, OpenBox, Recipe
from watchtest.errors import BoxDamaged, BoxError, ChannelLost


class RecordingProvider(LocalProvider):
    """Fails to open the box with these errors, one after the other, and records how it is repaired."""

    def __init__(self, folder: Path, *errors: BoxError) -> None:
        super().__init__(LocalSpec(folder, "workspace", python=sys.executable, sandbox="off"), {})
        self.errors = list(errors)
        self.done: list[str] = []

    def open(self, agent: bytes, recipe: Recipe, note: Note) -> OpenBox:
        self.done.append("open")
        raise self.errors.pop(0)

    def kill(self) -> None:
        self.done.append("kill")

    def discard(self) -> None:
        self.done.append("discard")


def tried(box: Box, notes: list[str], times: int) -> None:
    async def ensure() -> None:
        for _ in range(times):
            with pytest.raises(BoxError):
                await box.ensure(recipe("image"), notes.append)

    asyncio.run(ensure())


def test_a_box_that_cannot_be_reached_is_restarted_then_recreated_and_then_left_alone(tmp_path: Path) -> None:
    provider = RecordingProvider(tmp_path, *(ChannelLost("no answer") for _ in range(4)))
    notes: list[str] = []
    tried(Box(provider), notes, 4)
    assert provider.done == ["open", "kill", "open", "kill", "discard", "open", "open"]
    assert notes == ["no answer: restarting the box", "no answer: recreating the box"]


def test_a_damaged_box_is_recreated_at_once(tmp_path: Path) -> None:
    provider = RecordingProvider(tmp_path, BoxDamaged("gone"), ChannelLost("no answer"))
    tried(Box(provider), [], 2)
    assert provider.done == ["open", "kill", "discard", "open"]


def test_an_error_that_a_new_box_would_have_too_repairs_nothing(tmp_path: Path) -> None:
    provider = RecordingProvider(tmp_path, *(BoxError("no Python in the image") for _ in range(3)))
    tried(Box(provider), [], 3)
    assert provider.done == ["open"] * 3


def test_a_local_box_is_killed_and_kept_when_a_run_cannot_be_stopped(tmp_path: Path) -> None:
    provider = RecordingProvider(tmp_path, ChannelLost("no answer"))
    box = Box(provider)
    asyncio.run(box.kill("the run did not end"))
    assert provider.done == ["kill"]
    tried(box, [], 1)
    assert provider.done == ["kill", "kill", "open"], "it has no image to come back from"


def test_the_stronger_repair_wins(tmp_path: Path) -> None:
    provider = RecordingProvider(tmp_path, ChannelLost("no answer"))
    box = Box(provider)
    box.condemn("pytest was changed")
    box.condemn("no answer", Repair.KILL)
    tried(box, [], 1)
    assert provider.done == ["kill", "discard", "open"]
