"""How a run handles a selection that fails: our defect costs time, but never a verdict."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watchtest.core.model import All, Lane
from watchtest.errors import BoxError
from watchtest.pipeline import Pipeline


def selected(error: Exception) -> tuple[All, list[str]]:
    async def select(_context: Any) -> Any:
        raise error

    nothing = cast(Any, None)
    testing = cast(Any, SimpleNamespace(select=select))
    services = cast(Any, SimpleNamespace(lives=()))
    pipeline = Pipeline(Lane.SAVE, nothing, nothing, nothing, services, nothing, testing, "", lambda: True)
    notes: list[str] = []
    context = cast(
        Any,
        SimpleNamespace(run=SimpleNamespace(id="s.1"), note=notes.append, selection_input=SimpleNamespace(base=None)),
    )
    return cast(All, asyncio.run(pipeline._selection(context))), notes


def test_after_a_bug_in_a_selection_everything_runs_and_it_is_said() -> None:
    selection, notes = selected(KeyError("no such unit"))
    assert isinstance(selection, All)
    assert "bug in watchtest" in selection.because
    assert "KeyError" in selection.because
    assert notes == ["a bug in watchtest: the affected tests cannot be determined; the log has the details"]


def test_a_box_that_is_lost_meanwhile_is_no_such_bug() -> None:
    with pytest.raises(BoxError):
        selected(BoxError("gone"))
