"""`watchtest init --service`: a session manager reads the file as intended, whatever the folder is called."""

from __future__ import annotations

import plistlib
import subprocess
import sys
from pathlib import Path

import pytest

from watchtest import cli
from watchtest.commands.init import WatcherService, is_ours, launchd_plist, systemd_unit, write_service
from watchtest.errors import WorkspaceError

NASTY = '/home/me/my "pröject" 100% $HOME \\ it\'s'


def service(workspace: str = NASTY, program: str = sys.executable) -> WatcherService:
    argv = (program, "-P", "-m", "watchtest", "-C", workspace, "watch", "--silent")
    return WatcherService("project-1a2b3c4d", Path(workspace), argv, "/usr/bin:/odd %h/$x")


def lines(content: bytes) -> dict[str, str]:
    pairs = (line.partition("=") for line in content.decode().splitlines())
    return {key: value for key, equals, value in pairs if equals}


def read_as_systemd_does(text: str, *, has_variables: bool = True) -> list[str]:
    """Split a command line into words: quotes, backslashes, then specifiers, then variables."""
    words, at = [], 0
    while at < len(text):
        assert text[at] == '"', "each word is quoted"
        at += 1
        word = ""
        while text[at] != '"':
            if text[at] == "\\":
                at += 1
            word += text[at]
            at += 1
        at += 2
        assert "%" not in word.replace("%%", "")
        word = word.replace("%%", "%")
        if words and has_variables:
            assert "$" not in word.replace("$$", "")
            word = word.replace("$$", "$")
        words.append(word)
    return words


def test_a_unit_holds_any_path() -> None:
    wanted = systemd_unit(service(), Path("/config"))
    assert wanted.file == Path("/config/systemd/user/watchtest-project-1a2b3c4d.service")
    said = lines(wanted.content)
    assert tuple(read_as_systemd_does(said["ExecStart"])) == service().argv
    assert read_as_systemd_does(said["Environment"], has_variables=False) == ["PATH=/usr/bin:/odd %h/$x"]
    assert said["Description"] == f"watchtest on {NASTY.replace('%', '%%')}"
    assert said["RestartPreventExitStatus"] == "2"
    assert "systemctl --user enable --now watchtest-project-1a2b3c4d.service" in wanted.next_steps[0]


@pytest.mark.systemd
def test_systemd_itself_finds_nothing_wrong_with_a_unit(tmp_path: Path) -> None:
    wanted = systemd_unit(service(), tmp_path)
    write_service(wanted)
    command = ["systemd-analyze", "--user", "verify", str(wanted.file)]
    environ = {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)
    assert wanted.file.name not in done.stderr, done.stderr


def test_a_plist_holds_any_path() -> None:
    wanted = launchd_plist(service(), Path("/Users/me"))
    assert wanted.file == Path("/Users/me/Library/LaunchAgents/watchtest.project-1a2b3c4d.plist")
    document = plistlib.loads(wanted.content)
    assert tuple(document["ProgramArguments"]) == service().argv
    assert document["WorkingDirectory"] == NASTY
    assert (document["Label"], document["RunAtLoad"]) == ("watchtest.project-1a2b3c4d", True)
    assert document["KeepAlive"] == {"Crashed": True}


@pytest.mark.parametrize("make", [systemd_unit, launchd_plist])
def test_only_our_own_file_is_replaced(tmp_path: Path, make: object) -> None:
    assert make in (systemd_unit, launchd_plist)
    wanted = (systemd_unit if make is systemd_unit else launchd_plist)(service(), tmp_path)
    write_service(wanted)
    assert is_ours(wanted.file.read_bytes())
    write_service(wanted)
    wanted.file.write_text("[Service]\nExecStart=/bin/mine\n")
    with pytest.raises(WorkspaceError, match="exists and was not written by watchtest"):
        write_service(wanted)
    assert wanted.file.read_text() == "[Service]\nExecStart=/bin/mine\n"
    assert sorted(file.name for file in wanted.file.parent.iterdir()) == [wanted.file.name]


@pytest.mark.parametrize("content", [b"", b"bplist00", b"<plist></plist>", plistlib.dumps([1]), plistlib.dumps({})])
def test_what_is_no_file_of_ours_is_not_taken_for_one(content: bytes) -> None:
    assert not is_ours(content)


@pytest.mark.parametrize("workspace", ["/a\nExecStart=/bin/evil", "/a\x1bb", "/a\udcffb"])
def test_a_name_that_cannot_be_written_is_a_clear_error(workspace: str) -> None:
    for make in (systemd_unit, launchd_plist):
        with pytest.raises(WorkspaceError, match="service file"):
            make(service(workspace), Path("/config"))


def test_the_command_writes_it_and_says_what_to_do_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr(sys, "platform", "linux")
    workspace = tmp_path / "my pröject"
    workspace.mkdir()
    assert cli.main(["-C", str(workspace), "init", "--service"]) == 0
    said = capsys.readouterr().out
    (unit,) = (tmp_path / "config" / "systemd" / "user").iterdir()
    assert f"wrote {unit}\n" in said
    assert f"systemctl --user enable --now {unit.name}\n" in said
    assert read_as_systemd_does(lines(unit.read_bytes())["ExecStart"])[-4:] == [
        "-C",
        str(workspace),
        "watch",
        "--silent",
    ]
    (workspace / "watchtest.toml").write_text("[box]\nengine = 'dokcer'\n")
    assert cli.main(["-C", str(workspace), "init", "--service"]) == 2
