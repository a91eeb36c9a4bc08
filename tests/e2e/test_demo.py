"""The second command of the README works as described."""

from __future__ import annotations

from pathlib import Path

from support.projects import MakeProject


def test_the_demo_shows_red_and_green_and_leaves_nothing_behind(tmp_path: Path, make_project: MakeProject) -> None:
    project = make_project(tmp_path, "local")
    environ = {"TMPDIR": str(tmp_path / "temporary"), "WATCHTEST_BOX_SETUP": project.environ["WATCHTEST_BOX_SETUP"]}
    (tmp_path / "temporary").mkdir()
    done = project.command("demo", "--engine", "local", env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed 3 tests" in done.stdout
    assert "failed 1 of 3 tests" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert list((tmp_path / "temporary").iterdir()) == []
