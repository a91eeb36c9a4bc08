"""Nothing that a repository puts into `.watchtest` leads anywhere else, blocks a command, or is written to."""

from __future__ import annotations

import logging
import os
import shutil
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from support.watcher_states import Story, failed

from watchtest.client.status_file import is_locked, last_status, load_status
from watchtest.config import load
from watchtest.errors import ConfigError, WorkspaceError
from watchtest.views.status.status_writer import StatusFile, writer_of_this_process
from watchtest.watcher_log import LOG_BYTES, OLD_FILES, last_lines, logging_to
from watchtest.wiring import _keep_miss
from watchtest.workspace import manual_changes
from watchtest.workspace.folder import FOLDER, OwnFolder, replace_file
from watchtest.workspace.lock import FolderLock, WatcherLock
from watchtest.workspace.shrink_guard import grant_consent, has_consent

PRECIOUS = b'{"precious": true}\n'


@pytest.fixture
def precious(tmp_path: Path) -> Path:
    """Return a file outside of the workspace that must stay as it is."""
    file = tmp_path / "home" / ".bashrc"
    file.parent.mkdir()
    file.write_bytes(PRECIOUS)
    os.utime(file, (1, 1))
    return file


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / FOLDER).mkdir(parents=True)
    return folder


def a_link(path: Path, precious: Path) -> None:
    path.symlink_to(precious)


def a_relative_link(path: Path, precious: Path) -> None:
    path.symlink_to(os.path.relpath(precious, path.parent))


def a_link_to_nothing(path: Path, precious: Path) -> None:
    path.symlink_to(precious.with_name("new"))


def a_hard_link(path: Path, precious: Path) -> None:
    path.hardlink_to(precious)


def a_pipe(path: Path, precious: Path) -> None:
    os.mkfifo(path)


def a_socket(path: Path, precious: Path) -> None:
    listening = socket.socket(socket.AF_UNIX)
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket must be short
    try:
        listening.bind(path.name)
    finally:
        os.chdir(here)
        listening.close()


def a_folder(path: Path, precious: Path) -> None:
    path.mkdir()


KINDS = (a_link, a_relative_link, a_link_to_nothing, a_hard_link, a_pipe, a_socket, a_folder)
NAMES = (
    *("status.json", ".status.json.new", "heartbeat", "locations", ".locations.new", ".gitignore", "lock", "gate.lock"),
    *("watchtest.log", "watchtest.log.1", "by-hand", ".by-hand.new", "accept-shrink", "missed-1.json"),
    *("background.err", "config.toml"),
)


def write_status(workspace: Path) -> None:
    problems: list[str] = []
    with StatusFile(workspace / FOLDER, writer_of_this_process("0"), on_problem=problems.append) as file:
        file.show(Story(now=time.time()).run("1", failed("test_a.py::test_a")).state, time.time())
    if not problems:
        assert last_status(workspace)["verdict"] == "failed"


def write_log(workspace: Path) -> None:
    file = workspace / FOLDER / "watchtest.log"
    with logging_to(file, lambda: True):
        for _ in range(OLD_FILES + 1):
            logging.getLogger("test").warning("x" * (LOG_BYTES // 2))


def lock(workspace: Path) -> None:
    with WatcherLock(workspace / FOLDER) as held:
        assert held.is_ours()
    with FolderLock(workspace / FOLDER, "gate.lock", 0.0):
        assert is_locked(workspace / FOLDER / "gate.lock")


def record_by_hand(workspace: Path) -> None:
    manual_changes.record_command(workspace, ["pip", "install", "evil"])
    manual_changes.take_changes(workspace)


def consent(workspace: Path) -> None:
    grant_consent(workspace)
    assert has_consent(workspace)


def report_miss(workspace: Path) -> None:
    _keep_miss(OwnFolder(workspace / FOLDER), {"run": 1})


def start_errors(workspace: Path) -> None:
    with suppress(IsADirectoryError):
        os.close(OwnFolder(workspace / FOLDER).create("background.err"))


def read_settings(workspace: Path) -> None:
    try:
        load(workspace, explicit=None, environ={}, user_folder=None, flags={})
    except ConfigError as error:
        told = str(error)
    else:
        told = ""
    assert "precious" not in told


def read_everything(workspace: Path) -> None:
    for name in NAMES:
        last_status(workspace)
        is_locked(workspace / FOLDER / name)
        try:
            assert OwnFolder(workspace / FOLDER).read(name) is not None
        except OSError:
            continue


ACTIONS = (
    *(write_status, write_log, lock, record_by_hand, consent, report_miss, start_errors, read_settings),
    read_everything,
)


def refusal_of(action: Callable[[Path], None], workspace: Path) -> WorkspaceError | None:
    try:
        action(workspace)
    except WorkspaceError as error:
        return error
    return None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_in_our_folder_leads_elsewhere_or_blocks(
    workspace: Path, precious: Path, kind: Callable[[Path, Path], None], action: Callable[[Path], None]
) -> None:
    for name in NAMES:
        kind(workspace / FOLDER / name, precious)
    refusal = refusal_of(action, workspace)
    assert refusal is None or (FOLDER in refusal.message and refusal.hint)
    assert precious.read_bytes() == PRECIOUS
    assert precious.stat().st_mtime == 1
    assert list(precious.parent.iterdir()) == [precious]


@pytest.mark.parametrize("action", ACTIONS)
def test_a_folder_that_is_a_link_is_neither_written_nor_read(
    tmp_path: Path, precious: Path, action: Callable[[Path], None]
) -> None:
    workspace = tmp_path / "project"
    workspace.mkdir()
    for name in NAMES:
        (precious.parent / name).write_bytes(PRECIOUS)
    before = {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in precious.parent.iterdir()}
    (workspace / FOLDER).symlink_to(precious.parent)
    refusal = refusal_of(action, workspace)
    assert refusal is None or "is a link, so watchtest does not use it" in refusal.message
    assert {file.name: (file.read_bytes(), file.stat().st_mtime_ns) for file in precious.parent.iterdir()} == before


@pytest.mark.parametrize("kind", [a_link, a_hard_link, a_link_to_nothing, a_pipe])
def test_what_we_write_takes_the_place_of_what_was_there(
    workspace: Path, precious: Path, kind: Callable[[Path, Path], None]
) -> None:
    for name in ("status.json", "heartbeat", "watchtest.log", "by-hand"):
        kind(workspace / FOLDER / name, precious)
    write_status(workspace)
    manual_changes.record_command(workspace, ["pip", "install", "mine"])
    with logging_to(workspace / FOLDER / "watchtest.log", lambda: True):
        logging.getLogger("test").warning("mine")
    assert load_status(workspace / FOLDER / "status.json")["verdict"] == "failed"
    assert manual_changes.take_changes(workspace)[-1] == "pip install mine"
    assert "mine" in "".join(last_lines(workspace / FOLDER / "watchtest.log", 10)[0])
    assert time.time() - (workspace / FOLDER / "heartbeat").lstat().st_mtime < 60


def test_a_folder_that_becomes_a_link_while_it_is_watched_is_left_alone(workspace: Path, precious: Path) -> None:
    """`git checkout` of another branch can do that: it removes what is ignored."""
    problems: list[str] = []
    file = workspace / FOLDER / "watchtest.log"
    with (
        WatcherLock(workspace / FOLDER) as held,
        logging_to(file, lambda: True),
        StatusFile(workspace / FOLDER, writer_of_this_process("0"), on_problem=problems.append) as status,
    ):
        shutil.rmtree(workspace / FOLDER)
        (workspace / FOLDER).symlink_to(precious.parent)
        logging.getLogger("test").warning("a text")
        status.show(Story(now=time.time()).run("1", failed("test_a.py::test_a")).state, time.time())
        with pytest.raises(WorkspaceError, match="is a link"):
            held.keep()
    assert problems
    assert list(precious.parent.iterdir()) == [precious]


def test_a_file_of_ours_that_is_too_large_is_not_read(workspace: Path) -> None:
    with (workspace / FOLDER / "status.json").open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(WorkspaceError, match="larger than"):
        load_status(workspace / FOLDER / "status.json")


def test_a_settings_file_that_is_a_pipe_does_not_block(workspace: Path) -> None:
    os.mkfifo(workspace / "watchtest.toml")
    with pytest.raises(ConfigError, match=r"watchtest\.toml: cannot be read"):
        load(workspace, explicit=None, environ={}, user_folder=None, flags={})


def test_a_report_replaces_a_link_and_leaves_its_target(workspace: Path, precious: Path) -> None:
    a_link(workspace / "report.xml", precious)
    a_link(workspace / ".report.xml.new", precious)
    replace_file(workspace / "report.xml", b"<report/>")
    assert (workspace / "report.xml").read_bytes() == b"<report/>"
    assert precious.read_bytes() == PRECIOUS


def test_the_folder_hides_itself_from_git(workspace: Path) -> None:
    (workspace / FOLDER).rmdir()
    assert OwnFolder(workspace / FOLDER).make()
    assert not OwnFolder(workspace / FOLDER).make()
    assert (workspace / FOLDER / ".gitignore").read_bytes() == b"*\n"
