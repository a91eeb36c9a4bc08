"""The third law, from outside: after random file operations in any timing, the box equals the workspace.

A script that shares no code with watchtest reads both trees; the verdict names the tree by git's own id.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from support.watcher_process import Project

SEED = 20_240_613
OPERATIONS = int(os.environ.get("WATCHTEST_OPERATIONS", "60"))
SETTLINGS = 40
NAMES = ("a.py", "b.txt", "with space.txt", "ünïcödé-☃.txt", "data.bin", "empty", "-dash", "x.cfg", "new\nline", "日本")
FOLDERS = ("pkg", "deep", "with space", "ordner-ä", "docs")

# Green only if the box runs exactly the saved bytes: both files change in each round and keep their sizes.
TEST = """import pathlib, value

def test_value():
    assert value.VALUE == pathlib.Path("expected.txt").read_text()
"""


class Hand:
    """Makes random changes to files that can be reproduced."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.done: list[str] = []
        self.field = root / "field"
        self.field.mkdir()

    def act(self) -> None:
        action: Callable[[], str | None] = self.random.choice(
            (
                *(self.create,) * 5,
                *(self.edit_same_size,) * 4,
                *(self.append,) * 2,
                *(self.delete,) * 3,
                *(self.rename,) * 3,
                *(self.change_mode,) * 2,
                *(self.link,) * 2,
                *(self.swap_kind,) * 2,
                self.make_folder,
                self.delete_folder,
                self.move_folder,
                self.replace_as_editors_do,
            )
        )
        said = action()
        if said is None:
            said = self.create()
        self.done.append(said)

    def create(self) -> str:
        path = self._free()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(self._bytes())
        return f"create {path}"

    def edit_same_size(self) -> str | None:
        path = self._file(lambda file: file.stat().st_size > 0)
        if path is None:
            return None
        path.write_bytes(self.random.randbytes(path.stat().st_size))
        return f"edit {path}"

    def append(self) -> str | None:
        path = self._file()
        if path is None:
            return None
        with path.open("ab") as stream:
            stream.write(self._bytes())
        return f"append {path}"

    def replace_as_editors_do(self) -> str | None:
        path = self._file()
        if path is None:
            return None
        temporary = path.with_name(path.name + "~")
        temporary.write_bytes(self._bytes())
        temporary.replace(path)
        return f"replace {path}"

    def delete(self) -> str | None:
        path = self._file()
        if path is None:
            return None
        path.unlink()
        return f"delete {path}"

    def rename(self) -> str | None:
        path = self._file()
        if path is None:
            return None
        target = self._free()
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        return f"rename {path} {target}"

    def change_mode(self) -> str | None:
        path = self._file(lambda file: not file.is_symlink())
        if path is None:
            return None
        path.chmod(self.random.choice((0o644, 0o755, 0o600, 0o640, 0o444, 0o777, 0o700)))
        return f"chmod {path}"

    def link(self) -> str:
        path = self._free()
        path.parent.mkdir(parents=True, exist_ok=True)
        path.symlink_to(self.random.choice(("b.txt", "../pkg", "/etc/hostname", "nowhere at all", ".", path.name)))
        return f"link {path}"

    def swap_kind(self) -> str | None:
        """Replace a file with a folder, or a folder with a file."""
        path = self._file()
        if path is not None and self.random.random() < 0.5:
            path.unlink()
            path.mkdir()
            (path / "inside").write_bytes(self._bytes())
            return f"file to folder {path}"
        folder = self._folder()
        if folder is None:
            return None
        shutil.rmtree(folder)
        folder.write_bytes(self._bytes())
        return f"folder to file {folder}"

    def make_folder(self) -> str:
        path = self._free()
        path.mkdir(parents=True)
        return f"mkdir {path}"

    def delete_folder(self) -> str | None:
        folder = self._folder()
        if folder is None:
            return None
        shutil.rmtree(folder)
        return f"rmtree {folder}"

    def move_folder(self) -> str | None:
        folder = self._folder()
        if folder is None:
            return None
        target = self.field / f"moved {len(self.done)}"
        folder.rename(target)
        return f"move {folder} {target}"

    # -- choices -----------------------------------------------------------------------------------

    def _bytes(self) -> bytes:
        size = self.random.choice((0, 0, 1, 10, 10, 300, 5_000, 70_000))
        return self.random.randbytes(size)

    def _free(self) -> Path:
        folder = self.field
        for _ in range(self.random.randrange(4)):
            below = folder / self.random.choice(FOLDERS)
            if os.path.lexists(below) and (below.is_symlink() or not below.is_dir()):
                break
            folder = below
        path = folder / self.random.choice(NAMES)
        return path if not os.path.lexists(path) else folder / f"{len(self.done)} {path.name}"

    def _all(self) -> list[Path]:
        return sorted(path for path in self.field.rglob("*"))

    def _file(self, fits: Callable[[Path], bool] = lambda _file: True) -> Path | None:
        files = [path for path in self._all() if path.is_symlink() or path.is_file()]
        # Writing to a link would change its target outside the workspace.
        files = [path for path in files if not path.is_symlink() and fits(path)]
        return self.random.choice(files) if files else None

    def _folder(self) -> Path | None:
        folders = [path for path in self._all() if path.is_dir() and not path.is_symlink()]
        return self.random.choice(folders) if folders else None


@pytest.mark.thorough
def test_the_box_holds_exactly_the_workspace_after_each_of_many_random_operations(project: Project) -> None:
    project.save("test_value.py", TEST)
    # Without this, pytest would endlessly follow links to their own folder.
    project.save("pytest.ini", "[pytest]\ntestpaths = test_value.py\n")
    project.save("value.py", 'VALUE = "0000"\n')
    project.save("expected.txt", "0000")
    hand = Hand(project.root, SEED)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    sizes = [1] * SETTLINGS
    for _ in range(OPERATIONS - SETTLINGS):
        sizes[hand.random.randrange(SETTLINGS)] += 1
    for number, size in enumerate(sizes, 1):
        began = len(hand.done)
        is_burst = hand.random.random() < 0.5
        for _ in range(size):
            hand.act()
            if not is_burst:
                time.sleep(hand.random.choice((0.0, 0.01, 0.06, 0.12)))  # the random timing is the point of the test
        project.save("value.py", f'VALUE = "{number:04}"\n')
        project.save("expected.txt", f"{number:04}")  # the last one: a tree that has it has everything before it
        watcher.wait_for_verdict("passed")
        assert project.box_tree() == project.tree(), f"seed {SEED}, after {hand.done[began:]}"
    assert len(hand.done) == OPERATIONS
    kinds = [row[0] for row in project.tree().values()]
    assert {"file", "symlink", "folder"} == set(kinds), "this seed makes too few changes"
    watcher.must_be_tidy()


def test_what_tests_do_to_the_mirror_is_undone_before_the_next_run(project: Project) -> None:
    """A test that edits, deletes or replaces files of the tree affects neither the mirror nor the next verdict."""
    project.save("data/one.txt", "one")
    project.save("data/two.txt", "two")
    project.save("data/three.txt", "3")
    project.save("link.txt", "a file")
    project.save(
        "test_vandal.py",
        "import os, pathlib, shutil\n\n"
        "def test_vandal():\n"
        "    assert sorted(os.listdir('data')) == ['one.txt', 'three.txt', 'two.txt']\n"
        "    assert pathlib.Path('data/one.txt').read_text() == 'one'\n"
        "    assert not os.path.islink('link.txt')\n"
        "    pathlib.Path('data/one.txt').write_text('eno')\n"
        "    os.unlink('data/two.txt'); os.mkdir('data/two.txt')\n"
        "    os.chmod('data/three.txt', 0)\n"
        "    os.unlink('link.txt'); os.symlink('/etc', 'link.txt')\n",
    )
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    for number in range(2):
        project.save("other.txt", str(number))
        watcher.wait_for_verdict("passed")
    project.save("test_vandal.py", "def test_calm():\n    pass\n")
    watcher.wait_for_verdict("passed")
    assert project.box_tree() == project.tree()


def test_ignored_files_never_reach_the_box_and_start_no_run(project: Project) -> None:
    project.save(".gitignore", "*.log\nbuild/\n!keep.log\n")
    project.save("test_it.py", "def test_it():\n    pass\n")
    project.save("noise.log", "noise")
    project.save("build/out.txt", "noise")
    project.save("keep.log", "signal")
    watcher = project.watch()
    first = watcher.wait_for_verdict("passed")
    assert set(project.box_tree()) == {".gitignore", "test_it.py", "keep.log"}
    project.save("noise.log", "more noise")
    project.save("build/deep/out.txt", "more noise")
    project.save("keep.log", "new signal")
    second = watcher.wait_for_verdict("passed")
    assert second["run_id"] != first["run_id"]
    assert watcher.output.count("syncing · run") == 2
    assert set(project.box_tree()) == {".gitignore", "test_it.py", "keep.log"}
    project.save(".gitignore", "build/\n")
    watcher.wait_for_verdict("passed")
    assert set(project.box_tree()) == {".gitignore", "test_it.py", "keep.log", "noise.log"}
