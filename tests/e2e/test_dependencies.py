"""A changed dependency file is installed in a new box, and only once."""

from __future__ import annotations

from contextlib import closing

import docker
import pytest
from support.git_repo import Repo
from support.tiny_wheels import requirements, save_wheels
from support.watcher_process import Project

SERVICE = """
[[services]]
name = "clock"
command = "while true; do sleep 0.2; done"
"""

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]


def test_a_new_requirement_is_installed_in_a_new_box_and_is_not_installed_again_in_the_next(
    docker_project: Project,
) -> None:
    project = docker_project
    save_wheels(project, "tiny")
    project.save("watchtest.toml", SERVICE)
    project.save("test_it.py", "def test_it(): pass\n")
    project.save("requirements.txt", requirements([]))
    watcher = project.watch()
    first = watcher.wait_for_verdict("passed", limit_s=60)

    project.save("requirements.txt", requirements(["tiny"]))
    project.save("test_it.py", "import tiny\ndef test_it(): assert tiny.version == '1.0'\n")
    status = watcher.wait_for_verdict("passed", limit_s=60)
    assert "building a clean environment" in watcher.output
    assert watcher.output.count("setup: pip install -r requirements.txt") == 2
    assert status["box"]["id"] != first["box"]["id"]
    assert status["box"]["services"][0]["state"] == "ready", "the service has moved, too"

    before = project.container()
    with closing(docker.from_env(environment=project.environ)) as client:
        client.containers.get(before).remove(force=True)
    watcher.wait_for_words("creating the box from the saved environment", limit_s=20)
    watcher.wait_until("another box", lambda: watcher.status["box"]["id"] not in (before, None))
    status = watcher.wait_for_verdict("passed")
    assert status["run_id"], "and the tests ran in it"
    assert watcher.output.count("setup: pip install -r requirements.txt") == 2, "no second installation"
    watcher.must_be_tidy()


@pytest.mark.thorough
def test_another_image_in_the_project_makes_another_box_while_the_watcher_runs(docker_project: Project) -> None:
    project = docker_project
    environ = {**project.environ, "WATCHTEST_BOX_IMAGE": "auto"}
    project.save("test_it.py", "import pathlib\ndef test_it(): assert pathlib.Path('/opt/word').read_text() == 'two'\n")
    dockerfile = f"FROM {project.environ['WATCHTEST_BOX_IMAGE']}\nRUN printf one > /opt/word\n"
    project.save("Dockerfile.test", dockerfile)
    project.save("watchtest.toml", '[box]\ndockerfile = "Dockerfile.test"\n')
    watcher = project.watch(env=environ)
    first = watcher.wait_for_verdict("failed", limit_s=60)
    project.save("Dockerfile.test", dockerfile.replace("one", "two"))
    second = watcher.wait_for_verdict("passed", limit_s=60)
    assert second["box"]["id"] != first["box"]["id"]
    assert "Step 2/" in watcher.output, "the build is shown"
    watcher.must_be_tidy()


def test_what_setup_writes_into_the_tree_is_mended_before_the_tests(docker_project: Project) -> None:
    project = docker_project
    project.save("lock.txt", "as saved\n")
    project.save("test_it.py", "def test_it(): assert open('lock.txt').read() == 'as saved\\n'\n")
    project.save("watchtest.toml", "[box]\nsetup = ['echo changed > lock.txt; echo made > made.txt']\n")
    watcher = project.watch()
    watcher.wait_for_verdict("passed", limit_s=60)
    assert project.in_container("cat", "/workspace/made.txt") == "made\n"


@pytest.mark.thorough
def test_an_interrupted_setup_leaves_nothing_for_the_next(docker_project: Project) -> None:
    """Setup is killed halfway through; the next watcher wants another one."""
    project = docker_project
    project.save("test_it.py", "import os\ndef test_it(): assert not os.path.exists('/opt/half')\n")
    project.save("requirements.txt", "# new\n")
    settings = "[box]\nsetup = ['grep -q old requirements.txt || { touch /opt/half; sleep 60; }']\n"
    project.save("watchtest.toml", settings)
    first = project.watch()
    first.wait_for_words("setup: grep", 60)
    first.wait_until("half of it", lambda: "half" in project.in_container("ls", "/opt"))
    first.kill9()
    project.save("requirements.txt", "# old\n")
    second = project.watch()
    assert second.wait_for_verdict("passed", limit_s=60)["provisional"] is None


@pytest.mark.thorough
def test_nothing_of_a_killed_build_is_left(docker_project: Project) -> None:
    project = docker_project
    project.save("test_it.py", "def test_it(): pass\n")
    project.save("requirements.txt", "# old\n")
    project.save("watchtest.toml", "[box]\nsetup = ['grep -q old requirements.txt || sleep 60']\n")
    first = project.watch()
    first.wait_for_verdict("passed", limit_s=60)
    project.save("requirements.txt", "# new\n")
    first.wait_for_words("clean environment: setup: grep", 60)
    builder = project.container("save-build")
    first.kill9()
    project.save("requirements.txt", "# old\n")
    second = project.watch()
    assert second.wait_for_verdict("passed", limit_s=60)["provisional"] is None
    with closing(docker.from_env(environment=project.environ)) as client, pytest.raises(docker.errors.NotFound):
        client.containers.get(builder)


@pytest.mark.thorough
def test_a_verdict_of_a_box_touched_by_hand_is_no_proof_for_the_gate(docker_project: Project) -> None:
    project = docker_project
    project.save("test_it.py", "def test_it(): assert open('/opt/by-hand').read()\n")
    repository = Repo(project.root)
    repository.git("add", ".")
    repository.git("commit", "--quiet", "-m", "one")
    assert project.execute("sh", "-c", "echo x > /opt/by-hand").returncode == 0
    assert project.once(limit_s=60)[0] == 0
    told = project.command("gate", "--engine", "docker", "--commit", "HEAD", limit_s=60)
    assert told.returncode == 1, told.stdout + told.stderr
