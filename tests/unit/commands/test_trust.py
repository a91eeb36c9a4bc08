"""`watchtest trust`, and the question on a terminal."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

import pytest

from watchtest import cli
from watchtest.commands.trust import is_granted_now
from watchtest.errors import WorkspaceError
from watchtest.workspace.consent import ConsentFile, HostRequest, NeedsConsent


class Terminal(io.StringIO):
    """A stream that is a terminal, as far as a program can tell."""

    def isatty(self) -> bool:
        return True


def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, value: str = "[8000]", lines: int = 24) -> str:
    """Ask about one request, and return what was shown. The answer is stored like the user's own."""
    shown = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(shutil, "get_terminal_size", lambda: os.terminal_size((80, lines)))
    request = HostRequest("box.ports", value, "watchtest.toml:1", "they lead into the box")
    file = ConsentFile(tmp_path / "state", tmp_path)
    with suppress(WorkspaceError):  # the answer is no
        assert is_granted_now(NeedsConsent([request], file, "watchtest trust")) is bool(file.granted())
    return shown.getvalue()


@pytest.mark.parametrize(
    ("answer", "is_yes"),
    [("y\n", True), (" YES \n", True), ("\n", False), ("", False), ("n\n", False), ("yy\n", False)],
)
def test_only_yes_is_a_consent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str, is_yes: bool) -> None:
    shown = asked(tmp_path, monkeypatch, answer)
    assert "watchtest.toml:1: box.ports = [8000]\n    they lead into the box\n" in shown
    assert shown.endswith("[y/N] ")
    assert bool(ConsentFile(tmp_path / "state", tmp_path).granted()) is is_yes


@pytest.mark.parametrize("value", ["x" * 2000, "[" + " " * 2000 + '"curl evil"]'])
def test_what_does_not_fit_on_the_screen_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    assert asked(tmp_path, monkeypatch, "y\n", value) == ""
    assert ConsentFile(tmp_path / "state", tmp_path).granted() == frozenset()
    assert asked(tmp_path, monkeypatch, "y\n", value, lines=200)


@pytest.mark.parametrize("stream", ["stdin", "stderr"])
def test_without_a_terminal_nothing_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stream: str) -> None:
    monkeypatch.setattr(Terminal, "isatty", lambda self: self is not getattr(sys, stream))
    assert asked(tmp_path, monkeypatch, "y\n") == ""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("WATCHTEST_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")  # the requests are shown though the engine does not answer
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "watchtest.toml").write_text('box.ports = [8000]\nwatch.include = [".env"]\n')
    return folder


def test_the_requests_are_shown_allowed_and_taken_back(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def trust(*words: str) -> dict[str, bool]:
        assert cli.main(["-C", str(workspace), "trust", "--json", *words]) == 0
        return {row["key"]: row["allowed"] for row in json.loads(capsys.readouterr().out)["requests"]}

    assert trust("--show") == {"watch.include": False, "box.ports": False}
    assert trust() == {"watch.include": True, "box.ports": True}
    (workspace / "watchtest.toml").write_text('box.ports = [9000]\nwatch.include = [".env"]\n')
    assert trust("--show") == {"watch.include": True, "box.ports": False}
    (workspace / "watchtest.toml").write_text("[box\n")
    assert cli.main(["-C", str(workspace), "trust", "--revoke"]) == 0, "even though the settings are invalid"
    assert capsys.readouterr().out.startswith("2 consents taken back")
    (workspace / "watchtest.toml").write_text('watch.include = [".env"]\n')
    assert trust("--show") == {"watch.include": False}


def test_a_project_that_asks_for_nothing_is_told_so(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "watchtest.toml").write_text("")
    assert cli.main(["-C", str(workspace), "trust"]) == 0
    assert capsys.readouterr().out == "this project asks for nothing beyond its container\n"
    assert list((workspace.parent / "state").rglob("*")) == []
