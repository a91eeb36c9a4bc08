"""The inotify stream reports exactly the changed files, wakes up for nothing else, and reports lost events."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from watchtest.core.events import EVERYTHING

if sys.platform != "linux":
    pytest.skip("inotify exists only on Linux", allow_module_level=True)

from watchtest.sources.inotify import InotifyStream

LIMIT_S = 10.0


class Waiting(threading.Thread):
    """One call of `wait` and its result."""

    def __init__(self, source: InotifyStream) -> None:
        super().__init__(daemon=True)
        self._source = source
        self.found: frozenset[str] | None = None
        self.start()

    def run(self) -> None:
        self.found = self._source.wait()

    def result(self) -> frozenset[str]:
        self.join(LIMIT_S)
        assert self.found is not None
        return self.found


@contextmanager
def subscribed(root: Path, *folders: str) -> Iterator[InotifyStream]:
    source = InotifyStream(str(root), folders)
    try:
        yield source
    finally:
        source.close()


def test_each_kind_of_change_names_its_path(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    code = tmp_path / "src" / "code.py"
    code.write_text("1")
    changes = {
        "written": lambda: code.write_text("2"),
        "a mode": lambda: code.chmod(0o755),
        "moved": lambda: code.rename(tmp_path / "src" / "other.py"),
        "moved back": lambda: (tmp_path / "src" / "other.py").rename(code),
        "removed": lambda: code.unlink(),
        "made": lambda: code.write_text("3"),
    }
    with subscribed(tmp_path, "", "src") as source:
        for name, change in changes.items():
            change()
            found = source.wait()
            assert "src/code.py" in found, name
            assert found <= {"src/code.py", "src/other.py"}, name
        os.mkdir(b"%s/\xff" % os.fsencode(tmp_path))  # noqa: PTH102  no path of text has this name
        assert source.wait() == {"\udcff"}


def test_folders_below_and_behind_links_are_not_watched(tmp_path: Path) -> None:
    for folder in ("src/below", "elsewhere"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "link").symlink_to("elsewhere")
    with pytest.raises(NotADirectoryError):
        InotifyStream(str(tmp_path), ["link"])
    with pytest.raises(FileNotFoundError):
        InotifyStream(str(tmp_path), ["nowhere"])
    with subscribed(tmp_path, "src") as source:
        (tmp_path / "src" / "below" / "x").write_text("")
        (tmp_path / "src" / "y").write_text("")
        assert source.wait() == {"src/y"}


def test_the_end_of_a_folder_is_told_and_of_the_root_means_everything(tmp_path: Path) -> None:
    (tmp_path / "root" / "src").mkdir(parents=True)
    with subscribed(tmp_path / "root", "", "src") as source:
        (tmp_path / "root" / "src").rmdir()
        assert source.wait() == {"src"}
        (tmp_path / "root").rename(tmp_path / "moved")
        assert source.wait() == {EVERYTHING}


def test_an_overflow_of_the_queue_means_everything(tmp_path: Path) -> None:
    limit = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if limit > 100_000:
        pytest.skip(f"the queue holds {limit} events")
    files = [tmp_path / "a", tmp_path / "b"]
    for file in files:
        file.touch()
    with subscribed(tmp_path, "") as source:
        for number in range(limit + 10):
            os.utime(files[number % 2])  # alternate, because two equal events in a row are merged
        assert EVERYTHING in source.wait()
        files[0].write_text("1")
        assert source.wait() == {"a"}, "and it goes on"


def test_who_waits_is_woken_by_a_change_or_by_the_end(tmp_path: Path) -> None:
    with subscribed(tmp_path, "") as source:
        waiting = Waiting(source)
        time.sleep(0.1)
        assert waiting.found is None
        (tmp_path / "a").write_text("")
        assert waiting.result() == {"a"}
        waiting = Waiting(source)
        time.sleep(0.05)
        source.end()
        assert waiting.result() == frozenset()
        assert source.wait() == frozenset(), "also later"


def test_writes_in_a_row_are_told_at_once_and_a_writer_that_never_stops_does_not_hold_it_up(tmp_path: Path) -> None:
    with subscribed(tmp_path, "") as source:
        for name in "abc":
            (tmp_path / name).write_text("")
        assert source.wait() == {"a", "b", "c"}
        is_over = threading.Event()

        def write() -> None:
            while not is_over.wait(0.001):
                (tmp_path / "log").write_text(str(time.monotonic()))

        writer = threading.Thread(target=write)
        writer.start()
        try:
            waiting = Waiting(source)
            assert waiting.result() == {"log"}
        finally:
            is_over.set()
            writer.join(LIMIT_S)
