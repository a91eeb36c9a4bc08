"""What a job has written is deleted when it has filled the disk; nothing else is."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from watchtest.agent.jobs.disk_watch import WORTH_DELETING, DiskWatch


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    command = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", str(tmp_path)]
    if subprocess.run(command, capture_output=True, timeout=10, check=False).returncode != 0:
        pytest.skip("NO SMALL DISK: mounting needs root")
    yield tmp_path
    subprocess.run(["umount", "-l", str(tmp_path)], timeout=10, check=True)


def test_a_disk_that_a_job_fills_is_named_and_usable_afterwards(small_disk: Path) -> None:
    (small_disk / "before").write_bytes(bytes(2 * WORTH_DELETING))
    time.sleep(0.05)  # the kernel's clock for files is coarse
    watch = DiskWatch(str(small_disk), ["/nowhere"])
    assert watch.filled_now() == ""
    (small_disk / "folder").mkdir()
    while not watch.filled_now():
        with (small_disk / "folder" / "full").open("ab") as stream:
            stream.write(bytes(WORTH_DELETING))
    (small_disk / "small").write_bytes(b"kept")
    assert watch.filled_now() == str(small_disk)
    watch.clean()
    assert watch.filled_now() == ""
    assert sorted(path.name for path in small_disk.rglob("*") if path.is_file()) == ["before", "small"]


def test_a_disk_that_is_full_before_the_job_is_not_its_doing(small_disk: Path) -> None:
    (small_disk / "full").write_bytes(bytes(8 * 1024 * 1024 - 4096))
    watch = DiskWatch(str(small_disk), [])
    (small_disk / "little").write_bytes(b"x")
    assert watch.filled_now() == ""


def test_another_disk_below_the_folder_is_left_alone(small_disk: Path) -> None:
    watch = DiskWatch(str(small_disk.parent), [])
    (small_disk / "written").write_bytes(bytes(2 * WORTH_DELETING))
    watch.clean()
    assert (small_disk / "written").exists()


def test_a_deep_tree_is_cleaned_too(tmp_path: Path) -> None:
    watch = DiskWatch(str(tmp_path), [])
    folder = str(tmp_path)
    for _ in range(1200):
        folder += "/d"
        os.mkdir(folder)  # noqa: PTH102  pathlib is slow with such paths
    file = Path(folder, "written")
    file.write_bytes(bytes(2 * WORTH_DELETING))
    watch.clean()
    assert not file.exists()
    subprocess.run(["rm", "-r", str(tmp_path / "d")], timeout=10, check=True)  # pytest's own clean-up is recursive


def test_what_others_write_to_the_folder_for_temporary_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    watch = DiskWatch(str(tmp_path / "tree"), ["/tmp"])
    with tempfile.NamedTemporaryFile(dir="/tmp") as file:
        file.write(bytes(2 * WORTH_DELETING))
        file.flush()
        watch.clean()
        assert Path(file.name).exists()
