"""Tests may replace any function of the standard library. Code that shares a process with them must neither break them
nor break itself."""

from __future__ import annotations

import pytest
from support.box_bench import Bench
from support.warm_bench import WarmBench

from watchtest.selection.recorded_rows import RecordingRows

pytestmark = [pytest.mark.in_two_boxes, pytest.mark.python_in_the_box]

REPLACED = (
    *("sys._getframe", "os.getpid", "os.write", "os.read", "os.pread", "os.lstat", "os.fstat", "os.readlink"),
    *("os.fsdecode", "os.sep", "os.curdir", "os.path.join", "os.path.split", "os.path.isabs", "os.path.abspath"),
    *("os.path.realpath", "os.path.relpath", "os.path.isfile", "os.path.basename", "os.path.dirname", "os.path.exists"),
    *("json.dumps", "json.loads", "time.time", "time.perf_counter", "linecache.getlines", "inspect.getsource"),
)
MODULE = """\
def answer():
    return open(__file__.replace("mod.py", "data.txt")).read()
"""
TESTS = """\
import importlib, os, pathlib

import pytest

import mod

REPLACED = {replaced!r}


def put(name, value):
    owner, _, attribute = name.rpartition(".")
    owner = os.path if owner == "os.path" else importlib.import_module(owner)
    was = getattr(owner, attribute)
    if value is None:
        delattr(owner, attribute)
    else:
        setattr(owner, attribute, value)
    return lambda: setattr(owner, attribute, was)


def boom(*_args, **_more):
    raise RuntimeError("replaced")


@pytest.mark.parametrize("value", [boom, None], ids=["raises", "gone"])
@pytest.mark.parametrize("name", REPLACED)
def test_without(name, value):
    content = "one\\n"
    put_back = put(name, value)
    try:
        text = mod.answer()
        for ask in (pathlib.Path("data.txt").is_file, lambda: os.path.getsize("data.txt"), lambda: os.listdir(".")):
            try:
                ask()
            except (RuntimeError, AttributeError, TypeError):
                pass  # what it asks itself may be what is gone
    finally:
        put_back()
    assert text == content


class Proxy:
    @property
    def __name__(self):
        raise RuntimeError("no name here")

    def __call__(self, path):
        return path


def test_a_call_of_something_without_a_dependable_name():
    stat = Proxy()
    assert [stat(os.curdir), os.stat(os.curdir).st_size > 0] == [".", True]


def test_red_without_getpid(monkeypatch):
    monkeypatch.setattr(os, "getpid", boom)
    assert mod.answer() == "two"
"""


PROJECT = {
    "pytest.ini": "[pytest]\n",
    "mod.py": MODULE,
    "data.txt": "one\n",
    "test_mod.py": TESTS.format(replaced=REPLACED),
}
RED = {"test_mod.py::test_red_without_getpid"}


@pytest.fixture
def warm_bench(bench: Bench) -> WarmBench:
    warm = WarmBench(bench, bench.python)
    warm.put(PROJECT)
    return warm


@pytest.mark.thorough
def test_recording_changes_no_outcome_and_hears_of_all_they_read(warm_bench: WarmBench) -> None:
    plain = warm_bench.cold()
    assert {test for test, outcome in plain.outcomes.items() if outcome != "passed"} == RED
    assert len(plain.outcomes) == 2 * len(REPLACED) + 2
    warm_bench.record = True
    for seen in (warm_bench.cold(), warm_bench.warm()):
        assert seen.verdicts == plain.verdicts, seen.end.output
        assert seen.failure(*RED) == plain.failure(*RED)
        recordings = RecordingRows()
        recordings.take(seen.rows)
        tests = recordings.recorded({}).tests
        reading = [test for test in plain.outcomes if "dependable" not in test]
        assert [test for test in reading if "data.txt" not in tests[test].files] == []
