"""A recipe also depends on what the machine has and on what earlier runs showed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from support.project_recipes import HOST, snapshot_of

from watchtest.boxes.protocols import NamedImage, Recipe
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.boxes.recipe.recipe_maker import RecipeMaker
from watchtest.core.model import Entry, Execution, Failure, Outcome, Result
from watchtest.workspace.added_dependencies import AddedDependencies

FILES = {"pyproject.toml": '[project]\nname="x"\nrequires-python=">=3.11"\n[dependency-groups]\ndocs=["httpx>=1"]\n'}
SNAPSHOT = snapshot_of(FILES)


def read(path: str, _entry: Entry) -> bytes:
    return FILES[path].encode()


def maker(
    folder: Path,
    images: Callable[[], frozenset[str]] = frozenset,
    image: str = "auto",
    setup: tuple[str, ...] | str = "auto",
) -> RecipeMaker:
    settings = RecipeInput(HOST, (), lambda _snapshot: True, image, "", setup)
    return RecipeMaker(settings, AddedDependencies(folder / "added.json"), images)


def image_of(recipe: Recipe | None) -> str:
    assert recipe is not None
    assert isinstance(recipe.image, NamedImage)
    return recipe.image.name


def test_the_engine_is_asked_once_so_that_the_choice_is_stable(tmp_path: Path) -> None:
    answers = [frozenset({"python:3.13-slim"}), frozenset({"python:3.12-slim"})]
    recipes = maker(tmp_path, lambda: answers.pop(0))
    assert [image_of(recipes.recipe(SNAPSHOT, read)) for _ in range(2)] == ["python:3.13-slim"] * 2


def test_the_engine_is_not_asked_if_the_settings_name_the_image(tmp_path: Path) -> None:
    assert image_of(maker(tmp_path, lambda: 1 / 0, image="mine").recipe(SNAPSHOT, read)) == "mine"  # type: ignore[arg-type, return-value]


def test_after_a_failed_pull_other_allowed_images_are_tried_but_not_for_ever(tmp_path: Path) -> None:
    recipes = maker(tmp_path)
    first = recipes.recipe(SNAPSHOT, read)
    second = recipes.next_recipe(first, SNAPSHOT, read)
    assert (image_of(first), image_of(second)) == ("python:3.12-slim", "python:3.15-slim")
    assert second is not None
    assert image_of(recipes.recipe(SNAPSHOT, read)) == "python:3.15-slim", "the next run has the same image"
    third = recipes.next_recipe(second, SNAPSHOT, read)
    assert image_of(third) == "python:3.14-slim"
    assert third is not None
    assert recipes.next_recipe(third, SNAPSHOT, read) is None
    assert image_of(recipes.recipe(SNAPSHOT, read)) == "python:3.12-slim", "and later it starts again"


def test_an_image_that_the_settings_name_has_no_substitute(tmp_path: Path) -> None:
    recipes = maker(tmp_path, image="mine")
    assert recipes.next_recipe(recipes.recipe(SNAPSHOT, read), SNAPSHOT, read) is None


def lacking(module: str) -> Execution:
    failure = Failure("ModuleNotFoundError", f"No module named '{module}'")
    return Execution(2, frozenset(), {}, (Result("test_a.py", Outcome.ERROR, 0.0, failure),))


def test_what_tests_lack_becomes_part_of_the_recipe(tmp_path: Path) -> None:
    recipes = maker(tmp_path)
    before = recipes.recipe(SNAPSHOT, read)
    found = recipes.missing(lacking("httpx"), SNAPSHOT, read)
    assert found.installable == (("httpx", "tests need httpx; named by group docs in pyproject.toml"),)
    recipes.added.add(["httpx"])
    after = maker(tmp_path).recipe(SNAPSHOT, read)
    assert after.commands[:-1] == before.commands
    assert after.commands[-1].startswith("pip install 'httpx>=1' ||")
    assert after.key != before.key
    assert not recipes.missing(lacking("httpx"), SNAPSHOT, read).installable, "only once"


def test_what_setup_installs_anyway_is_not_added(tmp_path: Path) -> None:
    files = {
        "requirements.txt": "a==1",
        "requirements-test.txt": "b\n",
        "docs-requirements.txt": "a>=1\nb\nc\n",
        "tox.ini": "[testenv]\ndeps = d\n",
    }
    recipes, snapshot = maker(tmp_path), snapshot_of(files)
    for name in "abd":
        found = recipes.missing(lacking(name), snapshot, lambda path, _: files[path].encode())
        assert not found.installable, name
    assert recipes.missing(lacking("c"), snapshot, lambda path, _: files[path].encode()).installable


def test_a_setup_that_the_user_gives_gets_no_additions(tmp_path: Path) -> None:
    found = maker(tmp_path, setup=("make",)).missing(lacking("httpx"), SNAPSHOT, read)
    assert not found.installable
    assert "box.setup keeps it" in found.reports[0]
