"""`watchtest init` shows and writes what it finds, and the settings that it writes are valid."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

import pytest

from watchtest import cli
from watchtest.commands.init import MARK


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in which no setting of the host machine applies."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


def test_an_empty_folder_gets_settings_that_hold(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["-C", str(workspace), "init"]) == 0
    said = capsys.readouterr().out
    assert "-slim (the Python that runs watchtest; the project names none)\n" in said
    assert "  setup  pip install pytest   (if it is still missing)\n" in said
    assert cli.main(["-C", str(workspace), "config", "validate"]) == 0


def test_the_image_its_reason_and_every_command_are_shown_and_written(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "requirements.txt").write_text("x\n")
    (workspace / ".python-version").write_text("3.10\n")
    (workspace / ".env").write_text("KEY=hush\n")
    (workspace / "setup.py").write_text("")
    assert cli.main(["-C", str(workspace), "init"]) == 0
    said, text = capsys.readouterr().out, (workspace / "watchtest.toml").read_text()
    for line in ("python:3.10-slim (.python-version: 3.10)", "pip install -r requirements.txt", "pip install -e ."):
        assert f"  {line}\n" in said
        assert line in text
    assert "  left out  .env: may hold secrets" in said
    assert tomllib.loads(text)["box"] == {"engine": "auto", "image": "auto", "setup": "auto"}


def test_what_was_chosen_and_what_was_left_out_is_shown_with_the_reasons(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "tests").mkdir()
    (workspace / "requirements-test.txt").write_text("pytest\n")
    (workspace / "docs-requirements.txt").write_text("sphinx\n")
    (workspace / "lint-requirements.txt").write_text("ruff\n")
    (workspace / "crate").mkdir()
    (workspace / "crate" / "Cargo.toml").write_text("[package]\nname='x'")
    (workspace / "crate" / "tests").mkdir()
    (workspace / "crate" / "tests" / "a.rs").write_text("#[test]\nfn a() {}")
    (workspace / "test_a.py").write_text("import pytest\ndef test_a(): pass\n")
    reasons = (
        "requirements-test.txt (named for tests)",
        "left out: docs-requirements.txt, lint-requirements.txt (named for something else than tests)",
    )
    assert cli.main(["-C", str(workspace), "init"]) == 0
    said = capsys.readouterr().out
    for reason in reasons:
        assert f"  why    {reason}\n" in said
    assert "in crate/: left out unless the box has the tools of rust, because its image is for python\n" in said
    cli.main(["-C", str(workspace), "doctor"])
    said = capsys.readouterr().out
    for reason in reasons:
        assert f"✔ setup      {reason}\n" in said
    assert "! runners    cargo:crate (cargo) in crate/: left out unless the box has the tools of rust" in said


def test_a_dockerfile_of_the_project_is_shown(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / ".devcontainer").mkdir()
    (workspace / ".devcontainer" / "devcontainer.json").write_text('{"build": {"dockerfile": "Dockerfile"}}')
    (workspace / ".devcontainer" / "Dockerfile").write_text("FROM x")
    assert cli.main(["-C", str(workspace), "init"]) == 0
    wanted = "  image  built from .devcontainer/Dockerfile (.devcontainer/devcontainer.json)\n"
    assert wanted in capsys.readouterr().out


def test_what_the_user_has_set_already_is_kept(
    workspace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHTEST_BOX_IMAGE", "mine:1")
    monkeypatch.setenv("WATCHTEST_BOX_SETUP", '["make \\"all\\"", "true"]')
    assert cli.main(["-C", str(workspace), "init"]) == 0
    assert "  image  mine:1 (box.image)\n" in capsys.readouterr().out
    box = tomllib.loads((workspace / "watchtest.toml").read_text())["box"]
    assert (box["image"], box["setup"]) == ("mine:1", ['make "all"', "true"])


def test_words_of_the_project_cannot_become_settings(workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (workspace / "pyproject.toml").write_text('[project]\nname="x"\nrequires-python = ">=3.8\\n[box]\\nimage=\'evil\'"')
    (workspace / ".python-version").write_text("3.10\n")
    (workspace / "setup.py").write_text("python_requires='>=3.8,\n[box]\nimage = 3\n'")
    assert cli.main(["-C", str(workspace), "init"]) == 0
    assert cli.main(["-C", str(workspace), "config", "validate"]) == 0
    assert tomllib.loads((workspace / "watchtest.toml").read_text())["box"]["image"] == "auto"


def test_a_broken_project_file_is_named_and_nothing_is_written(
    workspace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (workspace / "setup.py").write_text("")
    (workspace / "pyproject.toml").write_text("[project\n")
    assert cli.main(["-C", str(workspace), "init"]) == 2
    assert "pyproject.toml" in capsys.readouterr().err
    assert not (workspace / "watchtest.toml").exists()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    subprocess.run(["git", "init", "-q", root], check=True)
    return root


def test_a_hook_is_never_written_through_a_link(repository: Path, tmp_path: Path) -> None:
    hooks = repository / ".git" / "hooks"
    precious = tmp_path / "precious"
    precious.write_text(MARK)
    (hooks / "pre-commit").symlink_to(precious)
    (hooks / "pre-push").symlink_to(tmp_path / "new")
    assert cli.main(["-C", str(repository), "init", "--hooks"]) == 0
    assert precious.read_text() == MARK
    assert not (tmp_path / "new").exists()


def test_a_hook_that_is_a_pipe_does_not_block(repository: Path) -> None:
    os.mkfifo(repository / ".git" / "hooks" / "pre-commit")
    assert cli.main(["-C", str(repository), "init", "--hooks"]) == 0
    assert os.access(repository / ".git" / "hooks" / "pre-push", os.X_OK)


@pytest.mark.parametrize("folder", ["../elsewhere", "inside"])
def test_hooks_are_written_only_inside_of_the_repository(
    repository: Path, tmp_path: Path, folder: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (repository / "inside").symlink_to(tmp_path / "elsewhere")
    subprocess.run(["git", "config", "core.hooksPath", folder], cwd=repository, check=True)
    assert cli.main(["-C", str(repository), "init", "--hooks"]) == 2
    assert "outside of this repository" in capsys.readouterr().err
    assert list((tmp_path / "elsewhere").iterdir()) == []
