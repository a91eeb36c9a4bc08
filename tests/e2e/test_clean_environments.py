"""The environment of a verdict is a function of the dependency files: what was removed there is gone."""

from __future__ import annotations

import pytest
from support.git_repo import Repo
from support.tiny_wheels import install_requirements, requirements, save_wheels
from support.watcher_process import Project, Status, Watcher

pytestmark = pytest.mark.timeout(240)
LIMIT_S = 90
IMPORTS = "import {}\ndef test_it(): pass\n"


@pytest.fixture
def installed(project: Project) -> Project:
    """A project whose test imports `tiny_b`, which is among its requirements, and their setup."""
    install_requirements(project)
    save_wheels(project, "tiny_a", "tiny_b")
    project.save("requirements.txt", requirements(["tiny_a", "tiny_b"]))
    project.save("test_it.py", IMPORTS.format("tiny_b"))
    return project


def started(project: Project) -> Watcher:
    watcher = project.watch()
    assert watcher.wait_for_verdict("passed", limit_s=LIMIT_S)["provisional"] is None
    return watcher


def wait_for_provisional(watcher: Watcher, code: str, message: str = "") -> Status:
    def look() -> Status | None:
        status = watcher.own_status
        mark = status.get("provisional") or {}
        return status if mark.get("code") == code and message in mark["message"] else None

    return watcher.wait_until(f"a verdict that is provisional because of {code}", look, LIMIT_S)


def test_a_removed_dependency_is_red_as_soon_as_the_clean_environment_is_there(installed: Project) -> None:
    project = installed
    watcher = started(project)
    project.save("requirements.txt", requirements(["tiny_a"]))
    status = wait_for_provisional(watcher, "dependencies")
    assert status["verdict"] == "passed", "the tests go on in the box as it stands"
    line = project.command("status", "--line")
    assert line.stdout.startswith("≈ passed 1 test (provisional: ")
    assert line.returncode == 1
    waited = project.command("status", "--wait", limit_s=LIMIT_S)
    assert waited.returncode == 1
    assert watcher.status["verdict"] == "error"
    assert watcher.status["provisional"] is None, "red in the clean environment"
    assert "tiny_b" in watcher.output.rpartition("running")[2]
    watcher.must_be_tidy()


def test_the_gate_and_a_reset_judge_the_removed_dependency_alike(installed: Project) -> None:
    project = installed
    repository = Repo(project.root)
    repository.git("add", "--all")
    assert project.command("gate", "--staged", "--engine", project.kind, limit_s=LIMIT_S).returncode == 0
    project.save("requirements.txt", requirements(["tiny_a"]))
    repository.git("add", "--all")
    assert project.command("gate", "--staged", "--engine", project.kind, limit_s=LIMIT_S).returncode == 1
    assert project.once(limit_s=LIMIT_S)[0] == 1
    project.save("requirements.txt", requirements(["tiny_a", "tiny_b"]))
    assert project.once(limit_s=LIMIT_S)[0] == 0
    project.save("requirements.txt", requirements(["tiny_a"]))
    assert project.once(limit_s=LIMIT_S)[0] == 1, "without a watcher, tests wait for the clean environment"


def test_an_undone_edit_goes_back_to_the_environment_that_was_kept(installed: Project) -> None:
    project = installed
    watcher = started(project)
    project.save("requirements.txt", requirements(["tiny_a"]))
    watcher.wait_for_verdict("error", limit_s=LIMIT_S)
    built = watcher.output.count("building a clean environment")
    installs = watcher.output.count("setup: pip install -r")
    project.save("requirements.txt", requirements(["tiny_a", "tiny_b"]))
    watcher.wait_for_verdict("passed", limit_s=LIMIT_S)
    assert watcher.output.count("building a clean environment") == built == 1
    assert watcher.output.count("setup: pip install -r") == installs, "nothing was installed again"
    watcher.must_be_tidy()


def test_an_edit_that_is_undone_while_its_environment_is_built_needs_no_environment(installed: Project) -> None:
    project = installed
    save_wheels(project, "tiny_c")
    watcher = started(project)
    project.save("requirements.txt", requirements(["tiny_a"]))
    watcher.wait_for_words("building a clean environment", LIMIT_S)
    project.save("requirements.txt", requirements(["tiny_a", "tiny_b"]))
    status = watcher.wait_for_verdict("passed", limit_s=LIMIT_S)
    assert status["provisional"] is None
    watcher.must_be_tidy()


def test_an_environment_that_cannot_be_built_leaves_the_verdict_provisional(installed: Project) -> None:
    project = installed
    watcher = started(project)
    project.save("requirements.txt", requirements(["tiny_a", "tiny_b", "no_such_package"]))
    waited = project.command("status", "--wait", limit_s=LIMIT_S)
    assert waited.returncode == 1
    status = watcher.status
    assert status["verdict"] == "passed"
    assert status["provisional"]["code"] == "dependencies"
    assert "no_such_package" in status["problem"]["message"]
    project.save("test_it.py", IMPORTS.format("tiny_a"))
    status = watcher.wait_until("the next run", lambda: (s := watcher.status)["activity"] == "idle" and s)
    assert watcher.output.count("building a clean environment") == 1, "the same files would only fail again"
    project.save("requirements.txt", requirements(["tiny_a"]))
    assert watcher.wait_for_verdict("passed", limit_s=LIMIT_S)["provisional"] is None
    watcher.must_be_tidy()


def test_a_newer_edit_supersedes_the_environment_being_built(installed: Project) -> None:
    project = installed
    save_wheels(project, "tiny_c")
    watcher = started(project)
    project.save("requirements.txt", requirements(["tiny_a", "tiny_b", "tiny_c"]))
    watcher.wait_for_words("building a clean environment", LIMIT_S)
    project.save("requirements.txt", requirements(["tiny_c"]))
    watcher.wait_for_verdict("error", limit_s=LIMIT_S)
    project.save("test_it.py", IMPORTS.format("tiny_c"))
    assert watcher.wait_for_verdict("passed", limit_s=LIMIT_S)["provisional"] is None
    watcher.must_be_tidy()


def test_a_watcher_that_was_killed_during_a_build_leaves_no_outdated_environment(installed: Project) -> None:
    project = installed
    first = started(project)
    project.save("requirements.txt", requirements(["tiny_a"]))
    first.wait_for_words("building a clean environment", LIMIT_S)
    first.kill9()
    second = project.watch()
    assert second.wait_for_verdict("error", limit_s=LIMIT_S)["provisional"] is None
    second.must_be_tidy()


def test_what_was_done_by_hand_marks_verdicts_until_it_is_discarded(installed: Project) -> None:
    project = installed
    save_wheels(project, "tiny_c")
    watcher = started(project)
    assert project.execute("pip", "install", "--no-index", "--find-links", "wheels", "tiny_c").returncode == 0
    project.save("test_it.py", IMPORTS.format("tiny_c"))
    status = wait_for_provisional(watcher, "by_hand", "pip install")
    assert status["verdict"] == "passed", "what was installed by hand is there in the next run"
    waited = project.command("status", "--wait", limit_s=LIMIT_S)
    assert waited.returncode == 0
    assert "(provisional: changed by hand: pip install" in waited.stdout
    repository = Repo(project.root)
    repository.git("add", "--all")
    assert project.command("gate", "--staged", "--engine", project.kind, limit_s=LIMIT_S).returncode == 1
    assert project.command("reset", "--engine", project.kind, limit_s=LIMIT_S).returncode == 0
    assert watcher.wait_for_verdict("error", limit_s=LIMIT_S)["provisional"] is None
    watcher.must_be_tidy()


def test_a_box_changed_by_hand_is_kept_when_its_dependencies_change(installed: Project) -> None:
    project = installed
    save_wheels(project, "tiny_c", "tiny_d")
    watcher = started(project)
    box = watcher.status["box"]["id"]
    assert project.execute("pip", "install", "--no-index", "--find-links", "wheels", "tiny_c").returncode == 0
    project.save("requirements.txt", requirements(["tiny_a", "tiny_d"]))
    project.save("test_it.py", "import tiny_c, tiny_d\ndef test_it(): pass\n")
    status = wait_for_provisional(watcher, "dependencies", "pip install")
    assert status["verdict"] == "passed"
    assert status["box"]["id"] == box
    assert "reset" in status["provisional"]["hint"]
    assert project.command("status", "--wait", limit_s=LIMIT_S).returncode == 1
    watcher.must_be_tidy()


@pytest.mark.docker
@pytest.mark.thorough
def test_a_snapshot_makes_the_verdict_final_in_the_same_box(docker_project: Project) -> None:
    project = docker_project
    project.save("test_it.py", "def test_it(): assert open('/opt/by-hand').read()\n")
    watcher = project.watch()
    box = watcher.wait_for_verdict("failed", limit_s=LIMIT_S)["box"]["id"]
    assert project.execute("sh", "-c", "echo x > /opt/by-hand").returncode == 0
    project.save("test_it.py", "def test_it(): assert open('/opt/by-hand').read() == 'x\\n'\n")
    assert wait_for_provisional(watcher, "by_hand", "sh -c")["verdict"] == "passed"
    assert project.command("snapshot", "--engine", "docker", limit_s=LIMIT_S).returncode == 0
    watcher.wait_until("a final verdict", lambda: watcher.status["provisional"] is None, LIMIT_S)
    status = watcher.wait_for_verdict("passed", limit_s=LIMIT_S)
    assert status["box"]["id"] == box
    watcher.must_be_tidy()


@pytest.mark.thorough
def test_every_lane_judges_in_its_own_clean_environment(installed: Project) -> None:
    project = installed
    repository = Repo(project.root)
    repository.git("add", "--all")
    watcher = project.watch("--trigger", "stage=all")
    watcher.wait_until("both lanes", lambda: _verdicts(watcher) == ["passed", "passed"], LIMIT_S)
    project.save("requirements.txt", requirements(["tiny_a"]))
    repository.git("add", "--all")
    watcher.wait_until("both lanes, in clean environments", lambda: _verdicts(watcher) == ["error", "error"], LIMIT_S)
    watcher.must_be_tidy()


def _verdicts(watcher: Watcher) -> list[str]:
    lanes = [watcher.own_status.get("lanes", {}).get(lane) or {} for lane in ("save", "stage")]
    return [str(lane.get("verdict")) for lane in lanes if lane.get("provisional") is None]
