"""Law 3 for every kind of box: after a sync the tree equals the snapshot, whatever was there before."""

from __future__ import annotations

import hashlib
import random

import pytest
from support.box_bench import Bench, Tree, expected, found_in

from watchtest.core.model import Entry, EntryKind
from watchtest.errors import BoxError


def test_files_links_modes_and_empty_folders_arrive_as_they_are(bench: Bench) -> None:
    tree = Tree(
        {
            "a.py": b"x = 1\n",
            "deep/er/b.bin": bytes(range(256)),
            "empty": b"",
            "with space/ünï\udcff.txt": b"odd names",
            "run.sh": b"#!/bin/sh\n",
            "link": b"-> deep/er/b.bin",
            "dangling": b"-> /nowhere/at all",
            "hollow/inner": None,
        },
        {"run.sh": 0o755, "a.py": 0o600},
    )
    bench.sync(tree)
    assert found_in(bench) == expected(tree)


def test_a_second_sync_of_the_same_tree_does_nothing(bench: Bench) -> None:
    tree = Tree({"a.py": b"1", "folder": None, "link": b"-> a.py"})
    bench.sync(tree)
    assert not bench.sync(tree)


def test_what_is_gone_from_the_snapshot_is_gone_from_the_box(bench: Bench) -> None:
    bench.sync(Tree({"a/b/c.py": b"1", "a/d.py": b"2", "e.py": b"3"}))
    bench.sync(Tree({"e.py": b"3"}))
    assert found_in(bench) == expected(Tree({"e.py": b"3"}))


def test_a_file_becomes_a_folder_and_a_folder_a_file(bench: Bench) -> None:
    bench.sync(Tree({"x": b"file", "y/z": b"file"}))
    other = Tree({"x/inner": b"file", "y": b"file"})
    bench.sync(other)
    assert found_in(bench) == expected(other)


def test_a_link_becomes_a_folder_without_writing_through_it(bench: Bench) -> None:
    bench.sync(Tree({"target/a": b"mine", "way": b"-> target"}))
    other = Tree({"target/a": b"mine", "way/a": b"other"})
    bench.sync(other)
    assert found_in(bench) == expected(other)


def test_what_tests_did_to_the_tree_is_undone_before_the_next_run(bench: Bench) -> None:
    tree = Tree({"a.py": b"right", "b/c.py": b"right", "d": b"-> a.py", "e": b"right"})
    bench.sync(tree)
    bench.said("printf wrong > a.py; rm -r b; ln -sfn /tmp d; chmod 700 e")
    bench.sync(tree)
    assert found_in(bench) == expected(tree)


def test_a_same_size_change_by_a_test_in_the_same_instant_is_undone(bench: Bench) -> None:
    tree = Tree({"a.py": b"right"})
    for _ in range(10):
        bench.sync(tree)
        bench.said("printf wrong > a.py")
        bench.sync(tree)
        assert bench.said("cat a.py") == "right"


def test_what_was_made_in_the_box_stays(bench: Bench) -> None:
    bench.sync(Tree({"a.py": b"1", "made/by_us.py": b"2"}))
    bench.said("echo kept > notes.txt; echo kept > made/by_box.txt")
    bench.sync(Tree({"a.py": b"2"}))
    assert bench.said("cat notes.txt made/by_box.txt; ls made") == "kept\nkept\nby_box.txt\n"


def test_a_new_session_finds_what_the_last_one_left(bench: Bench) -> None:
    bench.sync(Tree({"a.py": b"1", "old.py": b"1", "same.py": b"1"}))
    bench.said("printf 2 > a.py")
    bench.do(bench.box.disconnect())
    delta = bench.sync(Tree({"a.py": b"1", "same.py": b"1"}))
    assert set(delta.write) == {"a.py"}
    assert delta.remove == ("old.py",)
    assert found_in(bench) == expected(Tree({"a.py": b"1", "same.py": b"1"}))


def test_large_files_arrive_whole(bench: Bench) -> None:
    big = random.Random(1).randbytes(9 * 1024 * 1024 + 3)
    bench.sync(Tree({"big": big, "small": b"1"}))
    assert bench.said("sha1sum < big").split()[0] == hashlib.sha1(big).hexdigest()


def test_random_histories_end_in_the_same_tree(bench: Bench) -> None:
    chance = random.Random(7)
    names = ["a", "b", "c", "d e", "ü"]
    tree = Tree()
    for _ in range(15 if bench.is_plain else 60):  # without an agent each sync takes a third of a second
        for _ in range(chance.randint(1, 4)):
            mutate(tree, chance, names)
        bench.sync(tree)
        assert found_in(bench) == expected(tree)


def mutate(tree: Tree, chance: random.Random, names: list[str]) -> None:
    path = "/".join(chance.choices(names, k=chance.randint(1, 3)))
    for other in list(tree.content):
        if other == path or other.startswith(path + "/") or path.startswith(other + "/"):
            del tree.content[other]
    kind = chance.choice(["file", "file", "file", "link", "folder", "nothing"])
    if kind == "file":
        tree.content[path] = chance.randbytes(chance.choice([0, 5, 5, 5, 3000]))
        tree.modes[path] = chance.choice([0o644, 0o755, 0o600, 0o400])
    elif kind == "link":
        tree.content[path] = b"-> " + chance.choice([b"a", b"../b", b"/etc", b"nowhere"])
    elif kind == "folder":
        tree.content[path] = None


@pytest.mark.parametrize("path", ["../out", "/etc/passwd", "a/../../out", "a//b", "./a", "", ".watchtest/x", "a/./b"])
def test_paths_that_could_leave_the_root_are_refused(bench: Bench, path: str) -> None:
    tree = Tree({path: b"evil"})
    with pytest.raises(BoxError, match="refusing the path"):
        bench.sync(tree)
    good = Tree({"a": b"1"})
    bench.sync(good)
    assert found_in(bench) == expected(good)


def test_content_that_was_damaged_on_its_way_is_refused(bench: Bench) -> None:
    tree = Tree({"a": b"right"})
    session = bench.open()
    with pytest.raises(BoxError, match="damaged"):
        bench.do(session.sync(tree.snapshot(), lambda _path, _entry: b"wrong"))
    bench.sync(tree)
    assert found_in(bench) == expected(tree)


def test_a_run_for_another_generation_is_refused(bench: Bench) -> None:
    bench.sync(Tree({"a": b"1"}))
    generation = bench.open().generation
    bench.sync(Tree({"a": b"2"}))
    with pytest.raises(BoxError, match=f"requires generation {generation}"):
        bench.sh("true", requires=generation)


@pytest.mark.python_in_the_box
def test_a_same_size_edit_within_a_second_runs_the_new_code(bench: Bench) -> None:
    test = b"import value\ndef test_it():\n    assert value.X == %d\n"
    for number in range(1, 5):
        bench.sync(Tree({"value.py": b"X = %d\n" % number, "test_value.py": test % number}))
        end = bench.pytest()
        assert bench.outcomes() == {"test_value.py::test_it": "passed"}, end.output


@pytest.mark.python_in_the_box
def test_a_link_to_other_code_runs_that_code(bench: Bench) -> None:
    """Both targets have the same size and modification time, as after a checkout."""
    test = b"import mod, other.alias\ndef test_it():\n    assert (mod.X, other.alias.X) == (%d, %d)\n"
    files = {"v1.py": b"X = 1\n", "v2.py": b"X = 2\n", "other/alias.py": b"-> ../v1.py", "other/__init__.py": b""}
    bench.sync(Tree({**files, "mod.py": b"-> v1.py", "test_mod.py": test % (1, 1)}))
    bench.pytest()
    assert bench.outcomes() == {"test_mod.py::test_it": "passed"}
    bench.sync(Tree({**files, "v1.py": b"X = 3\n", "mod.py": b"-> v2.py", "test_mod.py": test % (2, 3)}))
    end = bench.pytest()
    assert bench.outcomes() == {"test_mod.py::test_it": "passed"}, end.output


def test_strange_things_in_the_bytecode_folder_are_no_obstacle(bench: Bench) -> None:
    bench.sync(Tree({"m.py": b"1"}))
    bench.said("mkdir -p __pycache__/m.d")
    bench.sync(Tree({"m.py": b"2"}))
    assert bench.said("cat m.py") == "2"
    bench.sync(Tree())


@pytest.mark.python_in_the_box
def test_a_deleted_package_cannot_be_imported_any_more(bench: Bench) -> None:
    test = b"import importlib.util\ndef test_it():\n    assert importlib.util.find_spec('gone') is %s\n"
    bench.sync(Tree({"gone/__init__.py": b"", "gone/inner.py": b"", "test_gone.py": test % b"not None"}))
    bench.pytest()
    assert bench.outcomes() == {"test_gone.py::test_it": "passed"}
    bench.said(f"{bench.python} -c 'import gone.inner'")
    bench.sync(Tree({"test_gone.py": test % b"None"}))
    bench.pytest()
    assert bench.outcomes() == {"test_gone.py::test_it": "passed"}


def test_entries_of_the_box_are_the_same_values_as_those_of_the_host(bench: Bench) -> None:
    bench.sync(Tree({"a": b"1", "f": None}))
    session = bench.open()
    bench.do(bench.box.disconnect())
    session = bench.open()
    assert session._tree == {
        "a": Entry(EntryKind.FILE, 0o644, 1, Tree({"a": b"1"}).entry("a").digest),
        "f": Entry(EntryKind.FOLDER, 0o755, 0, ""),
    }
