"""Files that native code opens are observed by inotify."""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

import pytest

from watchtest.agent.record.opened_files import LOST, OpenedFiles

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")


def by_c(path: Path) -> None:
    library = ctypes.CDLL(None)
    library.fopen.restype = ctypes.c_void_p
    library.fclose.argtypes = [ctypes.c_void_p]
    library.fclose(library.fopen(os.fsencode(path), b"r"))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("pear")
    return tmp_path / "data" / "words.txt"


def test_a_file_that_c_code_opens_is_heard_of_once(tmp_path: Path, data: Path) -> None:
    opened = OpenedFiles(str(tmp_path))
    assert opened.start()
    by_c(data)
    assert opened.collect() == {"data/words.txt"}
    assert opened.collect() == set()
    opened.stop()


def test_one_that_python_opens_is_known_already(tmp_path: Path, data: Path) -> None:
    opened = OpenedFiles(str(tmp_path))
    assert opened.start()
    opened.by_python.add("data/words.txt")
    data.read_text()
    assert opened.collect() == set()
    opened.stop()


def test_who_closes_every_file_loses_what_was_opened_and_nothing_after_that(tmp_path: Path, data: Path) -> None:
    opened = OpenedFiles(str(tmp_path))
    assert opened.start()
    os.close(opened._file)
    os.close(opened._poll.__self__.fileno())
    by_c(data)
    assert opened.collect() == {LOST}
    by_c(data)
    assert opened.collect() == {"data/words.txt"}
    opened.stop()


def test_without_the_means_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("watchtest.agent.record.opened_files.epoll", None)
    opened = OpenedFiles(str(tmp_path))
    assert not opened.start()
    assert opened.collect() == ()
    opened.stop()
