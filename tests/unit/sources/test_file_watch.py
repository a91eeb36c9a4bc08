"""The file watcher on the real file system: which changes it reports, which it ignores, and that it misses none."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from watchtest.core.events import EVERYTHING
from watchtest.errors import WorkspaceError
from watchtest.sources.file_watch import BURST, WatchTiming, watch
from watchtest.sources.inotify import InotifyStream
from watchtest.sources.streams import PollStream, TreeStream
from watchtest.sources.worktree import Worktree

ALL = frozenset({EVERYTHING})
DEADLINE_S = 20.0
QUIET_S = 0.5

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="watches POSIX file systems")


@pytest.fixture
def environ(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    home = tmp_path_factory.mktemp("home")
    return {"PATH": os.environ["PATH"], "HOME": str(home), "GIT_CONFIG_NOSYSTEM": "1"}


@pytest.fixture
def root(tmp_path: Path, environ: Mapping[str, str]) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    subprocess.run(["git", "init", "-q", "."], cwd=folder, env=dict(environ), check=True, timeout=60)
    (folder / ".gitignore").write_text("*.log\nout/\n")
    (folder / "src").mkdir()
    (folder / "out").mkdir()
    (folder / "src" / "code.py").write_text("1")
    return folder


def run_program(*command: str, folder: Path, environ: Mapping[str, str] | None = None) -> None:
    environ = None if environ is None else dict(environ)
    subprocess.run(command, cwd=folder, env=environ, check=True, timeout=60, capture_output=True)


def odd(folder: Path, name: bytes) -> Path:
    """Return a path whose name is not UTF-8."""
    return Path(os.fsdecode(os.fsencode(folder) + b"/" + name))


class Watched:
    """A running watcher with its batches in a queue."""

    def __init__(self, root: Path, worktree: Worktree) -> None:
        self.root, self.worktree = root, worktree
        self.batches: asyncio.Queue[frozenset[str] | Exception] = asyncio.Queue()
        self.stop = asyncio.Event()
        self.notes: list[str] = []
        self.skew_s = 0.0

    async def pump(self, is_polling: bool) -> None:
        timing = WatchTiming(50, 1000, poll_s=0.1, wall=lambda: time.time() + self.skew_s)
        try:
            async for batch in watch(
                self.root,
                scope=self.worktree,
                timing=timing,
                stop=self.stop,
                note=self.notes.append,
                is_polling=is_polling,
            ):
                self.batches.put_nowait(batch)
        except WorkspaceError as error:
            self.batches.put_nowait(error)

    async def next(self) -> frozenset[str]:
        batch = await asyncio.wait_for(self.batches.get(), DEADLINE_S)
        if isinstance(batch, Exception):
            raise batch
        return batch

    async def until(self, *paths: str) -> frozenset[str]:
        """Collect batches until all these paths were reported."""
        told = frozenset[str]()
        deadline = time.monotonic() + DEADLINE_S
        while not told >= set(paths) and time.monotonic() < deadline:
            told |= await self.next()
        assert told >= set(paths)
        return told

    async def is_quiet(self) -> bool:
        """Whether nothing more is reported. The only proof of silence is to listen for a while."""
        try:
            return not await asyncio.wait_for(self.batches.get(), QUIET_S)
        except TimeoutError:
            return True


@asynccontextmanager
async def watcher(root: Path, environ: Mapping[str, str], is_polling: bool = False) -> AsyncIterator[Watched]:
    watched = Watched(root, Worktree(root, ignore=(), include=(), environ=environ))
    task = asyncio.create_task(watched.pump(is_polling))
    try:
        assert await watched.next() == ALL
        yield watched
    finally:
        watched.stop.set()
        await asyncio.wait_for(task, DEADLINE_S)


def both_ways(test: Callable[[Path, Mapping[str, str], bool], None]) -> Callable[[Path, Mapping[str, str], bool], None]:
    return pytest.mark.parametrize("is_polling", [False, True], ids=["told", "polling"])(test)


@both_ways
def test_a_save_is_told_with_its_path(root: Path, environ: Mapping[str, str], is_polling: bool) -> None:
    async def run() -> None:
        async with watcher(root, environ, is_polling) as watched:
            (root / "src" / "code.py").write_text("2")
            assert await watched.next() == {"src/code.py"}
            (root / "src" / "code.py").chmod(0o755)
            assert await watched.next() == {"src/code.py"}
            (root / "src" / "code.py").unlink()
            assert await watched.next() == {"src/code.py"}
            (root / "link").symlink_to("src")
            assert await watched.next() == {"link"}
            assert await watched.is_quiet()

    asyncio.run(run())


@both_ways
def test_what_is_left_out_is_not_told_even_if_it_is_new(
    root: Path, environ: Mapping[str, str], is_polling: bool
) -> None:
    async def run() -> None:
        async with watcher(root, environ, is_polling) as watched:
            (root / "out" / "x").write_text("")
            (root / "src" / "new.log").write_text("")
            (root / "src" / "out").mkdir()
            (root / "src" / "out" / "y").write_text("")
            (root / ".watchtest").mkdir()
            (root / ".watchtest" / "status.json").write_text("")
            (root / ".git" / "some-lock").write_text("")
            assert await watched.is_quiet()
            (root / "src" / "code.py").write_text("2")
            assert await watched.next() == {"src/code.py"}

    asyncio.run(run())


def test_git_status_in_a_loop_tells_nothing(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        run_program("git", "add", "-A", folder=root, environ=environ)
        async with watcher(root, environ) as watched:
            for _ in range(5):
                (root / ".git" / "index").touch()
                run_program("git", "status", folder=root, environ=environ)
            assert await watched.is_quiet()

    asyncio.run(run())


@both_ways
def test_changes_in_a_new_folder_are_told_however_soon_they_come(
    root: Path, environ: Mapping[str, str], is_polling: bool
) -> None:
    async def run() -> None:
        async with watcher(root, environ, is_polling) as watched:
            (root / "a" / "b" / "c").mkdir(parents=True)
            (root / "a" / "b" / "c" / "soon").write_text("1")
            told = await watched.next()
            assert EVERYTHING in told or "a/b/c/soon" in told
            while not await watched.is_quiet():
                pass
            (root / "a" / "b" / "c" / "later").write_text("1")
            assert await watched.next() == {"a/b/c/later"}
            (root / "a").rename(root / "z")
            await watched.next()
            while not await watched.is_quiet():
                pass
            (root / "z" / "b" / "c" / "later").write_text("2")
            assert await watched.next() == {"z/b/c/later"}

    asyncio.run(run())


@both_ways
def test_no_edit_is_missed_while_folders_come_and_go(root: Path, environ: Mapping[str, str], is_polling: bool) -> None:
    """After each storm of changes, the last snapshot that the batches caused equals the workspace."""

    async def run() -> None:
        async with watcher(root, environ, is_polling) as watched:
            known = watched.worktree.snapshot()
            for number in range(12):
                place = root / f"d{number % 3}" / f"e{number}"
                place.mkdir(parents=True, exist_ok=True)
                for name in "xyz":
                    (place / name).write_text(str(number))
                    await asyncio.sleep(0)
                if number % 4 == 3:
                    shutil.rmtree(root / "d0", ignore_errors=True)
                deadline = time.monotonic() + DEADLINE_S
                expected = Worktree(root, ignore=(), include=(), environ=environ).snapshot().entries
                while known.entries != expected and time.monotonic() < deadline:
                    known = watched.worktree.snapshot(await watched.next())
                assert known.entries == expected

    asyncio.run(run())


class Belated:
    """A scope in which a folder appears after the folders were listed and before they are subscribed."""

    def __init__(self, worktree: Worktree, late: Path) -> None:
        self.worktree, self.late = worktree, late
        self.relevant = worktree.relevant

    def folders(self) -> tuple[str, ...]:
        found = self.worktree.folders()
        self.late.mkdir(exist_ok=True)
        return found


def test_a_folder_made_while_it_subscribes_is_subscribed_too(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        scope = Belated(Worktree(root, ignore=(), include=(), environ=environ), root / "late")
        stop, notes = asyncio.Event(), list[str]()
        async with aclosing(
            watch(root, scope=scope, timing=WatchTiming(50, 1000), stop=stop, note=notes.append)
        ) as batches:
            assert await anext(batches) == ALL
            (root / "late" / "file").write_text("1")
            assert await asyncio.wait_for(anext(batches), DEADLINE_S) == {"late/file"}
            assert notes == []

    asyncio.run(run())


def test_a_link_out_of_the_workspace_is_not_followed(root: Path, environ: Mapping[str, str], tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (root / "src" / "elsewhere").symlink_to(outside)

    async def run() -> None:
        async with watcher(root, environ) as watched:
            (outside / "file").write_text("1")
            assert await watched.is_quiet()

    asyncio.run(run())


def test_a_burst_of_saves_is_one_batch(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        async with watcher(root, environ) as watched:
            names = {f"src/f{number}" for number in range(300)}
            for name in sorted(names):
                (root / name).write_text("1")
            assert await watched.next() == names
            assert await watched.is_quiet()

    asyncio.run(run())


def test_a_burst_that_may_have_overflowed_the_queue_means_everything(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        async with watcher(root, environ) as watched:
            for number in range(2 * BURST + 1):  # on a slow machine the first of them may arrive before the rest
                (root / "src" / f"f{number}").write_text("1")
            told = frozenset[str]()
            while EVERYTHING not in told:
                told = await watched.next()

    asyncio.run(run())


def test_a_save_that_never_ends_is_told_when_the_cap_is_reached(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        async with watcher(root, environ) as watched:
            deadline = time.monotonic() + DEADLINE_S
            number = 0
            while watched.batches.empty() and time.monotonic() < deadline:
                number += 1
                (root / "src" / "code.py").write_text(str(number))
                await asyncio.sleep(0.005)
            assert not watched.batches.empty(), "reported while saving still went on"

    asyncio.run(run())


def test_a_changed_ignore_file_changes_what_is_watched(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        async with watcher(root, environ) as watched:
            (root / ".gitignore").write_text("src/\n")
            assert EVERYTHING in await watched.next()
            (root / "src" / "code.py").write_text("2")
            assert await watched.is_quiet()
            (root / "out" / "x").write_text("")
            assert await watched.next() == {"out/x"}

    asyncio.run(run())


def test_names_that_are_not_utf_8_are_told_like_all_others(root: Path, environ: Mapping[str, str]) -> None:
    odd(root, b"\xff").mkdir()

    async def run() -> None:
        async with watcher(root, environ) as watched:
            odd(root, b"\xff/x").write_text("1")
            assert await watched.next() == {"\udcff/x"}
            odd(root, b"\xfe").write_text("1")
            assert await watched.next() == {"\udcfe"}
            assert not watched.notes

    asyncio.run(run())


def test_a_source_that_is_ended_lets_its_waiter_go(root: Path) -> None:
    for source in (InotifyStream(str(root), [""]), TreeStream(str(root)), PollStream(str(root), lambda: [""], 60.0)):
        found: list[frozenset[str]] = []
        waiter = threading.Thread(target=lambda source=source, found=found: found.append(source.wait()))  # type: ignore[misc]
        waiter.start()
        source.end()
        waiter.join(10)
        assert found == [frozenset()], source
        source.close()


def test_a_whole_tree_tells_of_what_is_deep_in_it(root: Path) -> None:
    (root / "src" / "deep").mkdir()
    source = TreeStream(str(root))
    (root / "src" / "deep" / "a.py").write_text("1")
    assert "src/deep/a.py" in source.wait()
    source.close()


def test_a_sleep_of_the_machine_means_everything(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        async with watcher(root, environ) as watched:
            watched.skew_s = 3600.0
            assert await watched.next() == ALL
            assert await watched.is_quiet()

    asyncio.run(run())


@both_ways
def test_a_workspace_that_vanishes_ends_the_watch_with_a_clear_word(
    root: Path, environ: Mapping[str, str], is_polling: bool
) -> None:
    async def run() -> None:
        async with watcher(root, environ, is_polling) as watched:
            run_program("mv", "workspace", "moved", folder=root.parent)
            with pytest.raises(WorkspaceError, match="gone"):
                await watched.until("what never was")

    asyncio.run(run())


def test_another_folder_in_the_place_of_the_workspace_is_watched_instead(
    root: Path, environ: Mapping[str, str]
) -> None:
    other = root.with_name("other")
    shutil.copytree(root, other)

    async def run() -> None:
        async with watcher(root, environ) as watched:
            # A single step for the kernel, so that there is always a workspace.
            run_program(sys.executable, "-c", EXCHANGE, str(root), str(other), folder=root.parent)
            assert EVERYTHING in await watched.next()
            while not await watched.is_quiet():
                pass
            (root / "src" / "code.py").write_text("2")
            assert await watched.next() == {"src/code.py"}

    if not sys.platform.startswith("linux"):
        pytest.skip("renameat2 exists only on Linux")
    asyncio.run(run())


EXCHANGE = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
a, b = (os.fsencode(path) for path in sys.argv[1:])
if libc.renameat2(-100, a, -100, b, 2) != 0:
    raise OSError(ctypes.get_errno(), "renameat2")
"""


def test_without_watches_left_it_polls_and_says_what_to_raise(root: Path, environ: Mapping[str, str]) -> None:
    """Runs in a separate user namespace, where the limit can be lowered for this test alone."""
    limit = Path("/proc/sys/user/max_inotify_watches")
    for number in range(30):
        (root / f"f{number}").mkdir()
    program = f"""
import asyncio, pathlib, sys
sys.path.insert(0, {str(Path.cwd())!r})
from watchtest.sources.file_watch import WatchTiming, watch
from watchtest.sources.worktree import Worktree
root = pathlib.Path({str(root)!r})
async def main():
    stop, notes = asyncio.Event(), []
    worktree = Worktree(root, ignore=(), include=())
    batches = watch(root, scope=worktree, timing=WatchTiming(50, 1000, 0.1), stop=stop, note=notes.append)
    first = await anext(batches)
    (root / "f7" / "x").write_text("1")
    print(first, await asyncio.wait_for(anext(batches), 20), notes)
    await batches.aclose()
asyncio.run(main())
"""
    unshare = shutil.which("unshare")
    lower = f'echo 5 > {limit} && exec "$@"'
    probe = [str(unshare), "-Ur", "sh", "-c", lower, "sh", "true"]
    if unshare is None or subprocess.run(probe, capture_output=True, timeout=60, check=False).returncode != 0:
        pytest.skip("no user namespace to lower the limit in")
    done = subprocess.run(
        [*probe[:-1], sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "'f7/x'" in done.stdout
    assert "max_user_watches" in done.stdout


def test_leaving_early_leaves_no_thread_waiting(root: Path, environ: Mapping[str, str]) -> None:
    async def run() -> None:
        worktree = Worktree(root, ignore=(), include=(), environ=environ)
        batches = watch(
            root, scope=worktree, timing=WatchTiming(50, 1000), stop=asyncio.Event(), note=lambda text: None
        )
        await anext(batches)
        waiting = asyncio.ensure_future(anext(batches))
        await asyncio.sleep(0.1)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await batches.aclose()

    began = time.monotonic()
    asyncio.run(run())  # wait for the threads of its executor
    assert time.monotonic() - began < 5
