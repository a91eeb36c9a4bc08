"""What the links of a tree lead to, compared with what the file system says."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchtest.core.model import Entry, EntryKind
from watchtest.selection.linked_paths import MOST_PATHS, follow_links

FILE = Entry(EntryKind.FILE, 0o644, 1, "d")


def tree(*files: str, **links: str) -> tuple[dict[str, Entry], dict[str, str]]:
    targets = {path.replace("__", "/"): target for path, target in links.items()}
    link = Entry(EntryKind.SYMLINK, 0o777, 1, "l")
    return {**dict.fromkeys(files, FILE), **dict.fromkeys(targets, link)}, targets


def test_a_file_is_shown_by_each_link_to_it_and_to_a_folder_around_it() -> None:
    found = follow_links(*tree("real/in/a.py", alias="real", again="alias/in", file="again/a.py"))
    assert found.real == dict.fromkeys(("alias/in/a.py", "again/a.py", "file"), "real/in/a.py")
    assert found.circles == {}


def test_links_out_of_the_tree_into_nothing_and_to_themselves_show_nothing() -> None:
    found = follow_links(*tree("a.py", out="../x", etc="/etc", none="b.py", itself="itself", one="two", two="one"))
    assert (found.real, found.circles) == ({}, {})


def test_a_link_to_a_folder_around_it_is_a_circle() -> None:
    found = follow_links(*tree("a/b.py", "c/d.py", a__up="..", c__to="../a", a__itself="."))
    assert found.circles == {"a/up": "", "a/itself": "a", "c/to/up": "", "c/to/itself": "a"}
    assert found.real == {"c/to/b.py": "a/b.py"}


def test_links_that_multiply_are_given_up_and_concern_everything() -> None:
    links = {f"l{number}": f"f{number}" for number in range(2)}
    names = {f"f{depth}__{side}": f"../f{depth + 1}" for depth in range(30) for side in "ab"}
    entries, targets = tree("f30/a.py", **links, **names)
    found = follow_links(entries, targets)
    assert len(found.real) <= 2 * MOST_PATHS
    assert "" in found.circles.values()


@pytest.mark.parametrize("seed", range(100))
def test_random_links_lead_where_the_file_system_says(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    folders = ["", "a/", "b/", "a/c/", "b/d/e/"]
    for folder in folders:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
        (tmp_path / folder / "x.py").write_text("")
    targets: dict[str, str] = {}
    for number in range(chance.randint(1, 6)):
        path = f"{chance.choice(folders)}l{number}"
        goal = chance.choice([*folders, "a/x.py", "nowhere", *targets, *(f"{link}/c" for link in targets)])
        targets[path] = chance.choice(["", "./"]) + os.path.relpath(tmp_path / goal, (tmp_path / path).parent)
        (tmp_path / path).symlink_to(targets[path])
    entries, links = tree(*(f"{folder}x.py" for folder in folders), **targets)
    found = follow_links(entries, links)
    for path, real in found.real.items():
        assert (tmp_path / path).resolve() == (tmp_path / real).resolve()
    shown = {file.relative_to(tmp_path).as_posix() for file in walk(tmp_path, (tmp_path.resolve(),))}
    assert set(found.real) == {path for path in shown if path not in entries or path in links}


def walk(folder: Path, way: tuple[Path, ...]) -> Iterator[Path]:
    """Yield all files below a folder, also through links, except for those that lead back to a folder on the way."""
    for child in folder.iterdir():
        real = child.resolve() if child.exists() else child
        if child.is_file():
            yield child
        elif child.is_dir() and not (child.is_symlink() and any(each.is_relative_to(real) for each in way)):
            yield from walk(child, (*way, real))
