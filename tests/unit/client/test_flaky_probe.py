"""The tree of a probe stays the same, whatever is saved meanwhile."""

from __future__ import annotations

import pytest

from watchtest.client.flaky_probe import FrozenSource, Repeat
from watchtest.core.events import EVERYTHING
from watchtest.core.model import Entry, EntryKind, Outcome, Result, RunState, Snapshot
from watchtest.errors import SourceMoved

ALL = frozenset({EVERYTHING})


class Saved:
    """A source whose only file can be edited at any time."""

    def __init__(self) -> None:
        self.content = b"first"

    def snapshot(self, hint: frozenset[str]) -> Snapshot:
        assert hint == ALL
        digest = self.content.decode()
        return Snapshot(digest, {"a.py": Entry(EntryKind.FILE, 0o644, len(self.content), digest)})

    def read(self, path: str, expect: Entry) -> bytes:
        if expect.digest != self.content.decode():
            raise SourceMoved(f"{path} changed")
        return self.content


def test_until_it_is_frozen_it_follows_the_source() -> None:
    source = Saved()
    frozen = FrozenSource(source)
    assert frozen.snapshot(ALL).id == "first"
    source.content = b"second"
    assert frozen.snapshot(ALL).id == "second"


def test_once_frozen_a_save_changes_nothing() -> None:
    source = Saved()
    frozen = FrozenSource(source)
    frozen.freeze(frozen.snapshot(ALL))
    source.content = b"second"
    assert frozen.snapshot(ALL).id == "first"


def test_what_was_asked_for_twice_can_still_be_read_and_nothing_else_is_made_up() -> None:
    source = Saved()
    frozen = FrozenSource(source)
    entry = frozen.snapshot(ALL).entries["a.py"]
    assert [frozen.read("a.py", entry) for _ in range(2)] == [b"first", b"first"]
    source.content = b"second"
    assert frozen.read("a.py", entry) == b"first"
    other = frozen.snapshot(ALL).entries["a.py"]
    source.content = b"third"
    with pytest.raises(SourceMoved):
        frozen.read("a.py", other)


def test_a_repeat_is_red_when_one_of_its_tests_is() -> None:
    results = (Result("a", Outcome.PASSED, 0.1), Result("b", Outcome.ERROR, 0.1))
    assert Repeat("r", "t", RunState.FAILED, results).is_red
    assert not Repeat("r", "t", RunState.PASSED, results[:1]).is_red
