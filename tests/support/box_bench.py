"""A source tree held in memory, and a box under test that is used step by step."""

from __future__ import annotations

import asyncio
import io
import json
import tarfile
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from engine.images import PYTHON_313

from support.containers import recipe
from watchtest.boxes.box import Box
from watchtest.boxes.docker.docker_provider import DockerProvider
from watchtest.boxes.protocols import BoxProvider, BoxSession, Command, JobLimits, JobResult, JobSpec, PytestCommand
from watchtest.core.model import Delta, Entry, EntryKind, Snapshot
from watchtest.sources.tree_id import blob_id

T = TypeVar("T")


@dataclass
class Tree:
    """A source held in memory: path → content. A link's content is `-> target`, a folder's is None."""

    content: dict[str, bytes | None] = field(default_factory=dict)
    modes: dict[str, int] = field(default_factory=dict)

    def snapshot(self) -> Snapshot:
        return Snapshot("tree", {path: self.entry(path) for path in self.content})

    def entry(self, path: str) -> Entry:
        content = self.content[path]
        if content is None:
            return Entry(EntryKind.FOLDER, 0o755, 0, "")
        if content.startswith(b"-> "):
            return Entry(EntryKind.SYMLINK, 0o777, len(content) - 3, blob_id(content[3:]))
        return Entry(EntryKind.FILE, self.modes.get(path, 0o644), len(content), blob_id(content))

    def read(self, path: str, expect: Entry) -> bytes:
        content = self.content[path]
        assert content is not None
        return content[3:] if expect.kind is EntryKind.SYMLINK else content


class Bench:
    """A box under test, opened and used step by step in one event loop."""

    def __init__(self, provider: BoxProvider, python: str, image: str = PYTHON_313) -> None:
        """`python` is the interpreter as seen inside the box; "" if it has none."""
        self.provider = provider
        self.image = image
        self._python = python
        self.box = Box(provider)
        self._loop = asyncio.new_event_loop()
        self.rows: list[dict[str, Any]] = []

    @property
    def is_plain(self) -> bool:
        """Whether the box contains nothing but a shell."""
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

    def sh(self, script: str, limit_s: float = 30, silence_s: float = 30, requires: int | None = None) -> JobResult:
        job = JobSpec(Command(("/bin/sh", "-c", script)), JobLimits(limit_s, silence_s, 0.5), requires=requires)
        return self.do(self.open().run(job, self.rows.extend, lambda _text: None))

    def said(self, script: str) -> str:
        end = self.sh(script)
        assert end.exit_code == 0, end
        return end.output

    def pytest(self, *tests: str, limit_s: float = 30, silence_s: float = 30) -> JobResult:
        self.rows.clear()
        session = self.open()
        command = PytestCommand(self.python, tests=tests or None)
        job = JobSpec(command, JobLimits(limit_s, silence_s, 0.5), requires=session.generation)
        return self.do(session.run(job, self.rows.extend, lambda _text: None))

    def outcomes(self) -> dict[str, str]:
        return {row["test"]: row["outcome"] for row in self.rows if row["k"] == "test"}

    def close(self) -> None:
        self.do(self.box.close())
        self._loop.run_until_complete(self._loop.shutdown_default_executor())
        self._loop.close()


LIST = r"""
import hashlib, json, os, stat, sys
found = {}
for folder, folders, files in os.walk(b".", followlinks=False):
    folders[:] = [name for name in folders if not (folder == b"." and name == b".watchtest")]
    for name in folders + files:
        path = os.path.join(folder, name)
        status = os.lstat(path)
        text = path[2:].decode("utf-8", "surrogateescape")
        if stat.S_ISLNK(status.st_mode):
            found[text] = ["symlink", 0o777, os.readlink(path).hex()]
        elif stat.S_ISREG(status.st_mode):
            found[text] = ["file", status.st_mode & 0o777, open(path, "rb").read().hex()]
        elif not os.listdir(path):
            found[text] = ["folder", 0o755, ""]
print(json.dumps(found))
"""


def found_in(bench: Bench) -> dict[str, list[object]]:
    """Return the box's tree, read by a program inside it or as the engine shows it."""
    if bench.is_plain:
        return found_by_the_engine(bench)
    end = bench.sh(f"{bench.python} - <<'END'\n{LIST}\nEND")
    assert end.exit_code == 0, end.output
    found: dict[str, list[object]] = json.loads(end.output)
    return found


def found_by_the_engine(bench: Bench) -> dict[str, list[object]]:
    assert isinstance(bench.provider, DockerProvider)
    assert bench.box.info is not None
    stream, _ = bench.provider._api.get_archive(bench.box.info.id, bench.provider.root)
    found: dict[str, list[object]] = {}
    with tarfile.open(fileobj=io.BytesIO(b"".join(stream))) as tar:
        for member in tar:
            path = member.name.partition("/")[2]
            if not path or path.split("/")[0] == ".watchtest":
                continue
            found.pop(path.rpartition("/")[0], None)  # not an empty folder
            if member.issym():
                target = member.linkname.encode("utf-8", "surrogateescape")
                found[path] = ["symlink", 0o777, target.hex()]
            elif member.isdir():
                found[path] = ["folder", 0o755, ""]
            else:
                content = tar.extractfile(member)
                assert content is not None
                found[path] = ["file", member.mode & 0o777, content.read().hex()]
    return found


def expected(tree: Tree) -> dict[str, list[object]]:
    rows: dict[str, list[object]] = {}
    for path, content in tree.content.items():
        entry = tree.entry(path)
        body = b"" if content is None else tree.read(path, entry)
        rows[path] = [entry.kind.value, entry.mode, body.hex()]
    return rows


NASTY = """
import os, subprocess, sys, time
mark = sys.argv[1]
code = 'import time; time.sleep(600)'
subprocess.Popen([sys.executable, '-c', code, mark], start_new_session=True)
subprocess.Popen([sys.executable, '-c', code, mark], env={}, start_new_session=True)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.execv(sys.executable, [sys.executable, '-c', code, mark])
    os._exit(0)
for _ in range(20):
    subprocess.Popen([sys.executable, '-c', code, mark])
print('started', flush=True)
if len(sys.argv) > 2:
    time.sleep(600)
"""


def left_over(bench: Bench, mark: str) -> int:
    """Return how many processes with that argument run in the box, counted by a separate job."""
    # The mark is split in two, so that the search does not find itself.
    script = f"""
import glob
mark = {mark[:3]!r} + {mark[3:]!r}
found = 0
for file in glob.glob('/proc/[0-9]*/cmdline'):
    try:
        found += mark.encode() in open(file, 'rb').read()
    except OSError:
        pass
print(found)
"""
    return int(bench.said(f"{bench.python} - <<'END'\n{script}\nEND"))
