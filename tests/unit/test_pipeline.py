"""How a run handles a selection that fails, dependencies that are missing, and images that cannot be pulled."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from watchtest.boxes.environment import Standing
from watchtest.boxes.protocols import NamedImage, Recipe, StopSignal
from watchtest.boxes.recipe.languages.python.missing_modules import MissingDependencies
from watchtest.core.model import All, Execution, Lane, StopReason
from watchtest.errors import BoxError, ImageError
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


def superseded(
    stopped: StopReason | None = None, *, is_audit: bool = False, standing: Standing = Standing.CLEAN
) -> tuple[bool, list[str], list[str]]:
    """Return whether a run is repeated after it lacked a dependency, the notes, and what was remembered."""
    added: list[str] = []
    missing = MissingDependencies((("httpx", "tests need httpx; named by x"),), ("tests need other",))
    recipes = cast(Any, SimpleNamespace(missing=lambda *_: missing, added=SimpleNamespace(add=added.extend)))
    nothing, source = cast(Any, None), cast(Any, SimpleNamespace(read=None))
    pipeline = Pipeline(Lane.SAVE, source, nothing, nothing, nothing, recipes, nothing, "", lambda: True)
    notes: list[str] = []
    run = SimpleNamespace(is_audit=is_audit)
    context = SimpleNamespace(run=run, note=notes.append, signal=StopSignal(), snapshot=None)
    execution = Execution(2, frozenset(), {}, stopped=stopped)
    synced = SimpleNamespace(standing=standing, info=SimpleNamespace(id="box"))
    return asyncio.run(pipeline._add_missing(cast(Any, context), execution, cast(Any, synced))), notes, added


def test_a_run_that_lacks_what_the_project_names_is_repeated_and_the_reason_is_noted() -> None:
    assert superseded() == (
        True,
        ["tests need other", "installing httpx and running the tests again: tests need httpx; named by x"],
        ["httpx"],
    )


def test_a_run_that_was_stopped_and_an_audit_install_nothing() -> None:
    assert superseded(StopReason.TIMED_OUT) == (False, [], [])
    assert superseded(is_audit=True) == (False, [], [])


def test_a_box_that_waits_for_its_new_dependencies_lacks_nothing_yet() -> None:
    assert superseded(standing=Standing.OUTDATED) == (False, [], [])


class BoxWithImages:
    """Opens only boxes of the images that exist."""

    def __init__(self, *images: str) -> None:
        self.images = images
        self.recipe: Recipe | None = None

    async def ensure(self, recipe: Recipe, _note: object) -> tuple[str, str]:
        assert isinstance(recipe.image, NamedImage)
        if recipe.image.name not in self.images:
            raise ImageError(f"cannot pull {recipe.image.name}")
        self.recipe = recipe
        return "session", recipe.image.name


def opened(*images: str) -> tuple[str, list[str]]:
    recipes = [Recipe(NamedImage(name), "", (), needs_pytest=False, key="") for name in ("a", "b")]
    waiting = [recipes[1], None]
    maker = cast(Any, SimpleNamespace(next_recipe=lambda *_: waiting.pop(0)))
    nothing, source = cast(Any, None), cast(Any, SimpleNamespace(read=None, snapshot=lambda _paths: None))
    box = cast(Any, BoxWithImages(*images))
    pipeline = Pipeline(Lane.SAVE, source, box, nothing, nothing, maker, nothing, "", lambda: True)
    notes: list[str] = []
    _, info = asyncio.run(pipeline._open_box(recipes[0], frozenset(), notes.append))
    return str(info), notes


def test_if_an_image_cannot_be_pulled_the_next_one_is_used_and_that_is_noted() -> None:
    assert opened("b") == ("b", ["cannot pull a: trying another version that the project allows"])


def test_if_no_image_can_be_pulled_the_error_of_the_preferred_one_counts() -> None:
    with pytest.raises(ImageError, match="cannot pull a"):
        opened()
