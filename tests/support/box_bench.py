"""A tree made of values, and a box under test that is used step by step."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.images import PYTHON_313

from support.containers import recipe
from watchtest.boxes.box import Box
from watchtest.boxes.protocols import BoxSession, Command, Job, JobEnd, Limits, Place, PytestWish
from watchtest.core.model import Delta, Entry, Kind, Snapshot
from watchtest.sources.tree_id import blob_id

T = TypeVar("T")


@dataclass
class Tree:
    """A source made of values: path → content; a link's content is `-> target`, a folder's is None."""

    content: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        return Snapshot("tree", {path: self.entry(path) for path in self.content})

    def entry(self, path: str) -> Entry:
        content = self.content[path]
        if content is None:
            return Entry(Kind.FOLDER, 0o755, 0, "")
        if content.startswith(b"-> "):
            return Entry(Kind.SYMLINK, 0o777, len(content) - 3, blob_id(content[3:]))
        return Entry(Kind.FILE, self.modes.get(path, 0o644), len(content), blob_id(content))

    def read(self, path: str, expect: Entry) -> bytes:
        content = self.content[path]
        assert content is not None
        return content[3:] if expect.kind is Kind.SYMLINK else content


class Bench:
    """A box under test, opened and used step by step in one event loop."""

    def __init__(self, place: Place, python: str, image: str = PYTHON_313) -> None:
        """`python`: its interpreter, as seen from inside; "" if it has none."""
        self.place = place
        self.image = image
        self._python = python
        self.box = Box(place)
        self._loop = asyncio.new_event_loop()
        self.rows: list[dict[str, Any]] = []

    @property
    def is_plain(self) -> bool:
        """Nothing but a shell is in it."""
        return not self._python

    @property
    def python(self) -> str:
        assert self._python, "the test needs the mark python_in_the_box"
        return self._python

    def do(self, action: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(asyncio.wait_for(action, 60))

    def open(self) -> BoxSession:
        session, _ = self.do(self.box.ensure(recipe(self.image), lambda _text: None))
        return session

    def sync(self, tree: Tree) -> Delta:
        session = self.open()
        self.do(session.refresh())
        return self.do(session.sync(tree.snapshot(), tree.read))[1]

    def sh(self, script: str, limit_s: float = 30, silence_s: float = 30, requires: int | None = None) -> JobEnd:
        job = Job(Command(("/bin/sh", "-c", script)), Limits(limit_s, silence_s, 0.5), requires=requires)
        return self.do(self.open().run(job, self.rows.extend, lambda _text: None))

    def said(self, script: str) -> str:
        end = self.sh(script)
        assert end.exit_code == 0, end
        return end.output

    def pytest(self, *tests: str, limit_s: float = 30, silence_s: float = 30) -> JobEnd:
        self.rows.clear()
        session = self.open()
        wish = PytestWish(self.python, tests=tests or None)
        job = Job(wish, Limits(limit_s, silence_s, 0.5), requires=session.generation)
        return self.do(session.run(job, self.rows.extend, lambda _text: None))

    def outcomes(self) -> dict[str, str]:
        return {row["test"]: row["outcome"] for row in self.rows if row["k"] == "test"}

    def close(self) -> None:
        self.do(self.box.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()
