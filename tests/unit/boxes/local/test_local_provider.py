"""The local box without an agent: what it refuses, what it reports, and how commands run in it."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support import TESTS
from support.containers import recipe
from support.watcher_process import wait_for

from watchtest.boxes.box import agent_zip
from watchtest.boxes.local.box_folder import WORKSPACE, boxes_of, read_mark
from watchtest.boxes.local.bubblewrap import START_TRIES, Bubblewrap, NoBubblewrap, find_bubblewrap
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec
from watchtest.boxes.protocols import ExecMode
from watchtest.errors import BoxError, ConfigError

SECRET = "AWS_SECRET_ACCESS_KEY"
SANDBOXES = ["off", pytest.param("on", marks=pytest.mark.bubblewrap)]


@pytest.fixture
def boxes() -> Iterator[Path]:
    """A folder for boxes outside /tmp, as users have it."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="watchtest-boxes-"))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(params=SANDBOXES)
def provider(request: pytest.FixtureRequest, boxes: Path, tmp_path: Path) -> Iterator[LocalProvider]:
    spec = LocalSpec(boxes / "one", str(tmp_path), sandbox=request.param)
    provider = LocalProvider(spec, {**os.environ, SECRET: "secret"})
    yield provider
    provider.reset(with_environment=True)


@pytest.fixture
def sandboxed(boxes: Path, tmp_path: Path) -> Iterator[LocalProvider]:
    provider = LocalProvider(LocalSpec(boxes / "one", str(tmp_path), sandbox="on"), os.environ)
    yield provider
    provider.reset(with_environment=True)


def sh(provider: LocalProvider, script: str, mode: ExecMode = ExecMode.ATTACHED) -> int:
    return provider.execute(["sh", "-c", script], {}, (), mode)


def said(provider: LocalProvider, script: str) -> str:
    assert sh(provider, f"({script}) > said.txt") == 0
    return Path(provider.root, "said.txt").read_text()


# -- what it refuses -------------------------------------------------------------------------------


def test_a_sandbox_that_is_asked_for_and_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'box\.sandbox = "on": bubblewrap is not installed') as caught:
        LocalProvider(LocalSpec(tmp_path, "", sandbox="on"), {"PATH": str(tmp_path)})
    assert "install the package bubblewrap" in caught.value.hint


@pytest.mark.parametrize("sandbox", ["auto", "off"])
def test_a_network_that_cannot_be_cut_is_an_error(tmp_path: Path, sandbox: str) -> None:
    with pytest.raises(ConfigError, match=r'box\.network = "off": the local box needs its sandbox') as caught:
        LocalProvider(LocalSpec(tmp_path, "", sandbox=sandbox, network="off"), {"PATH": str(tmp_path)})
    assert "box.engine" in caught.value.hint


def test_a_network_for_setup_alone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'box\.network = "setup"'):
        LocalProvider(LocalSpec(tmp_path, "", network="setup"), os.environ)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bubblewrap is a program of Linux")
@pytest.mark.parametrize(
    ("script", "reason", "hint"),
    [
        ("echo 'bwrap: No permissions to create new namespace' >&2; exit 1", "No permissions", "user namespaces"),
        ("echo 'bwrap: setting up uid map: Permission denied' >&2; exit 1", "uid map", "user namespaces"),
        ("echo 'bwrap: Unknown option --cap-drop' >&2; exit 1", "Unknown option", "newer"),
        ("exit 3", "exit code 3", ""),
    ],
)
def test_a_bubblewrap_that_does_not_work_is_named_with_its_reason(
    tmp_path: Path, script: str, reason: str, hint: str
) -> None:
    program = tmp_path / "bwrap"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found = find_bubblewrap({"PATH": str(tmp_path)})
    assert isinstance(found, NoBubblewrap)
    assert reason in found.reason
    assert hint in found.hint
    provider = LocalProvider(LocalSpec(tmp_path / "box", ""), {"PATH": str(tmp_path)})
    assert any(reason in line for line in provider.describe()), "auto goes without it, and says why"


FAKE_BUBBLEWRAP = """#!{python}
import os, subprocess, sys
from pathlib import Path
arguments, folder = sys.argv[1:], Path(__file__).parent
if arguments == ["--version"]:
    sys.exit(print("bubblewrap 9.9"))
with (folder / "starts").open("a") as starts:
    starts.write("+")
failures = (folder / "failures").read_text().splitlines()
if failures:
    (folder / "failures").write_text("".join(line + chr(10) for line in failures[1:]))
    sys.exit("bwrap: " + failures[0])
command = arguments[arguments.index("--") + 1 :]
if "--json-status-fd" not in arguments:
    os.execvp(command[0], command)
code = subprocess.call(command, cwd=arguments[arguments.index("--chdir") + 1])
os.write(int(arguments[arguments.index("--json-status-fd") + 1]), b'{{ "exit-code": %d }}' % code)
sys.exit(code)
"""
VANISHED = (
    "Can't bind mount /oldroot/ on /newroot/: Unable to apply mount flags: "
    'remount "/newroot/var/lib/docker/overlay2/1f/merged": No such file or directory'
)


class FakeBubblewrap:
    """A bubblewrap without isolation that fails as often as requested."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.fail()
        program = folder / "bwrap"
        program.write_text(FAKE_BUBBLEWRAP.format(python=sys.executable))
        program.chmod(0o755)
        self.environ = {**os.environ, "PATH": f"{folder}:{os.environ['PATH']}"}

    def fail(self, *messages: str) -> None:
        (self._folder / "failures").write_text("".join(f"{message}\n" for message in messages))
        (self._folder / "starts").write_text("")

    @property
    def starts(self) -> int:
        return len((self._folder / "starts").read_text())


@pytest.fixture
def bubblewrap(tmp_path: Path) -> FakeBubblewrap:
    folder = tmp_path / "fake"
    folder.mkdir()
    return FakeBubblewrap(folder)


linux_only = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="bubblewrap is a program of Linux")


@linux_only
def test_bubblewrap_is_tried_again_if_a_mount_of_the_host_vanished(bubblewrap: FakeBubblewrap) -> None:
    bubblewrap.fail(*[VANISHED] * (START_TRIES - 1))
    assert isinstance(find_bubblewrap(bubblewrap.environ), Bubblewrap)
    assert bubblewrap.starts == START_TRIES


@linux_only
@pytest.mark.parametrize(("failures", "starts"), [([VANISHED] * 9, START_TRIES), (["Can't mkdir /home"], 1)])
def test_an_agent_is_started_again_if_a_mount_of_the_host_vanished_but_not_for_ever(
    bubblewrap: FakeBubblewrap, boxes: Path, failures: list[str], starts: int
) -> None:
    provider = LocalProvider(LocalSpec(boxes / "one", "", sandbox="on"), bubblewrap.environ)
    bubblewrap.fail(*[VANISHED] * (START_TRIES - 1))
    opened = provider.open(agent_zip(), recipe(), lambda _text: None)
    assert b"hello" in opened.stream.read()
    assert bubblewrap.starts == START_TRIES
    opened.close()
    while opened.stream.read():
        pass
    bubblewrap.fail(*failures)
    with pytest.raises(BoxError, match=f"the agent did not start: bwrap: {failures[0][:10]}"):
        provider.open(agent_zip(), recipe(), lambda _text: None)
    assert bubblewrap.starts == starts


@linux_only
def test_a_command_is_started_again_if_its_sandbox_failed_and_never_if_it_has_run(
    bubblewrap: FakeBubblewrap, boxes: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    provider = LocalProvider(LocalSpec(boxes / "one", "", sandbox="on"), bubblewrap.environ)
    bubblewrap.fail(VANISHED, VANISHED)
    assert sh(provider, "echo ran >> log; exit 1") == 1
    assert bubblewrap.starts == 3
    assert Path(provider.root, "log").read_text() == "ran\n"
    bubblewrap.fail(*[VANISHED] * 9)
    assert sh(provider, "echo ran >> log") == 1
    assert bubblewrap.starts == START_TRIES
    assert VANISHED in capfd.readouterr().err


def test_a_command_that_is_not_there_is_named(boxes: Path) -> None:
    provider = LocalProvider(LocalSpec(boxes / "one", "", sandbox="off"), os.environ)
    with pytest.raises(BoxError, match="cannot start no-such-command"):
        provider.execute(["no-such-command"], {}, ())


@pytest.mark.bubblewrap
def test_an_interpreter_that_is_not_there_is_named(boxes: Path) -> None:
    provider = LocalProvider(LocalSpec(boxes / "one", "", python="/no/python", sandbox="on"), os.environ)
    with pytest.raises(BoxError, match="cannot start the Python of the local box, /no/python") as caught:
        provider.execute(["true"], {}, ())
    assert "box.python" in caught.value.hint


# -- what it says ----------------------------------------------------------------------------------


def test_what_is_not_isolated_is_said(boxes: Path) -> None:
    provider = LocalProvider(LocalSpec(boxes / "one", "", sandbox="off", without_effect=("box.memory",)), os.environ)
    told = provider.describe()
    assert "not isolated: processes, the network, files outside the mirror, use of memory and processors" in told
    assert 'no sandbox: box.sandbox = "off"' in told
    assert "no effect in the local box: box.memory" in told


@pytest.mark.bubblewrap
def test_what_a_sandbox_does_not_isolate_is_said_too(boxes: Path) -> None:
    told = LocalProvider(LocalSpec(boxes / "one", "", sandbox="on"), os.environ).describe()
    assert "not isolated: the network, reading files outside homes and workspace, use of memory and processors" in told
    told = LocalProvider(LocalSpec(boxes / "one", "", sandbox="on", network="off"), os.environ).describe()
    assert "not isolated: reading files outside homes and workspace, use of memory and processors" in told


# -- whose it is -----------------------------------------------------------------------------------


def test_a_box_says_whose_it_is_and_is_thrown_away_with_its_siblings(boxes: Path) -> None:
    owners = {"save": "/mine", "commit": "/mine", "other": "/mine too"}
    providers = {
        name: LocalProvider(LocalSpec(boxes / name, owner, sandbox="off"), {}) for name, owner in owners.items()
    }
    for provider in providers.values():
        assert provider.inspect() is None
        assert sh(provider, "mkdir closed && touch closed/in && chmod 500 closed") == 0, "tests do such things"
        assert provider.inspect() is not None
    assert {name: read_mark(boxes / name, WORKSPACE) for name in owners} == owners
    assert (boxes / "save" / "host").read_text()
    assert list(boxes_of("/mine", boxes)) == [boxes / "commit", boxes / "save"]
    assert providers["save"].reset(with_environment=False) == ("2 local boxes",)
    assert [folder.name for folder in boxes.iterdir()] == ["other"]
    assert providers["other"].reset(with_environment=False) == ("1 local box",)


# -- commands --------------------------------------------------------------------------------------


def test_exit_codes_come_back(provider: LocalProvider) -> None:
    assert sh(provider, "exit 7") == 7
    assert sh(provider, "kill -TERM $$") == 128 + 15


def test_commands_run_at_the_root_of_the_tree_and_what_they_change_stays(provider: LocalProvider) -> None:
    assert said(provider, "pwd") == f"{provider.root}\n"
    assert sh(provider, "echo kept > note.txt; echo kept > ~/note.txt") == 0
    assert said(provider, "cat note.txt ~/note.txt") == "kept\nkept\n"


def test_the_hosts_secrets_and_its_home_are_not_in_the_environment(provider: LocalProvider) -> None:
    names = dict(line.split("=", 1) for line in said(provider, "env").splitlines())
    assert SECRET not in names
    assert names["HOME"] == f"{provider.home}/user"
    given = provider.execute(["sh", "-c", f'test "${SECRET}" = given'], {SECRET: "given"}, ())
    assert given == 0, "what the settings carry in is there"


def test_folders_that_go_first_on_the_path_do(provider: LocalProvider) -> None:
    assert sh(provider, "mkdir bin; printf '#!/bin/sh\\nexit 9\\n' > bin/ls; chmod 755 bin/ls") == 0
    assert provider.execute(["ls"], {}, (f"{provider.root}/bin",)) == 9


def test_a_command_that_is_left_running_outlives_its_start_and_ends_with_the_box(provider: LocalProvider) -> None:
    began = time.monotonic()
    assert sh(provider, "echo started > said; exec sleep 86399", ExecMode.DETACHED) == 0
    assert time.monotonic() - began < 5
    said = Path(provider.root, "said")
    wait_for("its work", lambda: said.exists() and said.read_text() == "started\n", 10)
    assert len(_sleepers()) >= 1
    provider.reset(with_environment=False)
    wait_for("its end", lambda: not _sleepers(), 10)


def _sleepers() -> list[str]:
    found = subprocess.run(["pgrep", "-f", "^sleep 86399$"], capture_output=True, text=True, check=False, timeout=10)
    return found.stdout.split()


# -- the sandbox -----------------------------------------------------------------------------------


@pytest.mark.bubblewrap
@pytest.mark.parametrize(
    "path", ["/etc", "/usr", "/var", "/root", "/home", "/run", "/proc/sys/kernel/domainname", "/sys/kernel"]
)
def test_nothing_outside_of_the_box_can_be_written(sandboxed: LocalProvider, path: str) -> None:
    target = Path(path, "watchtest-was-here") if Path(path).is_dir() else Path(path)
    before = target.read_bytes() if os.access(target, os.R_OK) else None
    # Write back what is there, so that a missing wall would not change the machine.
    script = f"cat {target} > {target}" if before is not None else f"touch {target}"
    assert sh(sandboxed, f"if ({script}) 2>/dev/null; then exit 1; fi") == 0
    assert (target.read_bytes() if os.access(target, os.R_OK) else None) == before


@pytest.mark.bubblewrap
def test_the_box_cannot_change_whose_it_is_nor_where_its_tmp_lies(sandboxed: LocalProvider, boxes: Path) -> None:
    sh(sandboxed, f"cd {boxes}/one; echo x > workspace; rm -rf tmp; mv tmp other; ln -s /etc tmp; ln -s /etc new")
    assert read_mark(boxes / "one", WORKSPACE) not in ("", "x\n")
    assert sorted(path.name for path in (boxes / "one").iterdir()) == [
        *("home", "host", "id", "tmp", "tree", "workspace")
    ]
    assert not (boxes / "one" / "tmp").is_symlink()


@pytest.mark.bubblewrap
def test_other_processes_are_not_seen(sandboxed: LocalProvider) -> None:
    assert said(sandboxed, "ls /proc | grep -c '^[0-9]'").strip() in ("3", "4", "5"), "bubblewrap, the shell and ls"


@pytest.mark.bubblewrap
def test_its_tmp_is_its_own_and_stays(sandboxed: LocalProvider, tmp_path: Path) -> None:
    (tmp_path / "of the host").touch()
    # Files that Python itself needs may be below the host's folder, and are then shown.
    before = said(sandboxed, "ls /tmp; touch /tmp/mine").split()
    assert not tmp_path.is_relative_to("/tmp") or tmp_path.relative_to("/tmp").parts[0] not in before
    if not before:  # otherwise it is in memory and ends with the command
        assert said(sandboxed, "ls /tmp") == "mine\n"
    assert not Path("/tmp/mine").exists()


@pytest.mark.bubblewrap
def test_without_network_there_is_a_loopback_and_nothing_else(boxes: Path, tmp_path: Path) -> None:
    provider = LocalProvider(LocalSpec(boxes / "one", str(tmp_path), sandbox="on", network="off"), os.environ)
    script = "import socket; s = socket.create_server(('127.0.0.1', 0)); socket.create_connection(s.getsockname(), 5)"
    assert provider.execute([provider.image, "-c", script], {}, ()) == 0
    assert said(provider, "tail -n +3 /proc/net/dev | cut -d: -f1").split() == ["lo"]


@pytest.mark.bubblewrap
def test_names_are_found_and_pip_finds_its_settings(boxes: Path, tmp_path: Path) -> None:
    settings = tmp_path / ".config" / "pip" / "pip.conf"
    settings.parent.mkdir(parents=True)
    settings.write_text("[global]\ntimeout = 123\n")
    (tmp_path / "private").touch()
    environ = {**os.environ, "HOME": str(tmp_path)}
    provider = LocalProvider(LocalSpec(boxes / "one", str(tmp_path / "workspace"), sandbox="on"), environ)
    assert said(provider, 'cat /etc/resolv.conf "$PIP_CONFIG_FILE"').endswith("timeout = 123\n")
    assert said(provider, f"ls {tmp_path}") == "", "nothing else of that home"


TYPED = """
import sys
sys.path.insert(0, {folder!r})
from pathlib import Path
from watchtest.boxes.protocols import ExecMode
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec
import os
provider = LocalProvider(LocalSpec(Path(sys.argv[1]), "/nowhere", sandbox=sys.argv[2]), os.environ)
sys.exit(provider.execute(["sh", "-c", sys.argv[3]], {{}}, (), ExecMode[sys.argv[4]]))
"""


def start(boxes: Path, sandbox: str, script: str, mode: ExecMode, stream: int) -> subprocess.Popen[bytes]:
    """Start a process that runs a command in a box with this stdin and stdout."""
    code = TYPED.format(folder=str(TESTS.parent))
    command = [sys.executable, "-c", code, str(boxes / "one"), sandbox, script, mode.name]
    return subprocess.Popen(command, stdin=stream, stdout=stream, stderr=stream, start_new_session=True)


def read_until(terminal: int, words: bytes, limit_s: float = 15.0) -> bytes:
    deadline, seen = time.monotonic() + limit_s, b""
    while words not in seen:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{words!r} did not come: {seen!r}"
        seen += os.read(terminal, 4096)
    return seen


@pytest.mark.bubblewrap
def test_a_sandboxed_terminal_is_one_and_takes_keys(boxes: Path) -> None:
    ours, theirs = pty.openpty()
    script = "trap 'echo interrupted; exit 5' INT; test -t 0 && echo terminal; stty -echo; echo ready; read line;"
    script += "echo waiting; while :; do sleep 0.05; done"
    process = start(boxes, "on", script, ExecMode.TERMINAL, theirs)
    os.close(theirs)
    try:
        assert b"terminal" in read_until(ours, b"ready")
        os.write(ours, b"a line\n")
        read_until(ours, b"waiting")
        os.write(ours, b"\x03")
        read_until(ours, b"interrupted")
        assert process.wait(10) == 5
    finally:
        process.kill()
        process.wait(10)
        os.close(ours)


@pytest.mark.bubblewrap
def test_ctrl_c_reaches_the_sandboxed_command_itself(boxes: Path) -> None:
    reading, writing = os.pipe()
    script = "trap 'echo cleaned up; exit 5' INT; echo ready; while :; do sleep 0.05; done"
    process = start(boxes, "on", script, ExecMode.ATTACHED, writing)
    os.close(writing)
    try:
        read_until(reading, b"ready")
        process.send_signal(2)
        read_until(reading, b"cleaned up")
        assert process.wait(10) != 0
    finally:
        process.kill()
        process.wait(10)
        os.close(reading)


@pytest.mark.bubblewrap
@pytest.mark.parametrize("mode", [ExecMode.ATTACHED, ExecMode.TERMINAL])
def test_a_sandboxed_command_ends_when_we_are_killed(boxes: Path, mode: ExecMode) -> None:
    ours, theirs = pty.openpty()
    process = start(boxes, "on", "echo ready; setsid sleep 86398 & exec sleep 86398", mode, theirs)
    os.close(theirs)
    try:
        read_until(ours, b"ready")
        process.kill()
        process.wait(10)
        wait_for("the end of all of it", lambda: subprocess.call(["pgrep", "-f", "^sleep 86398$"]) == 1, 10)
    finally:
        os.close(ours)
