"""A changed dependency file is installed before the tests that need it, and only once."""

from __future__ import annotations

from contextlib import closing

import docker
import pytest
from support.git_repo import Repo
from support.watcher_process import Project

SERVICE = """
[[services]]
name = "clock"
command = "while true; do sleep 0.2; done"
"""

pytestmark = [pytest.mark.docker, pytest.mark.timeout(180)]


def test_a_new_requirement_is_there_before_the_tests_and_is_not_installed_again_in_a_new_box(
    docker_project: Project,
) -> None:
    project = docker_project
    project.save("watchtest.toml", SERVICE)
    project.save("test_it.py", "def test_it(): pass\n")
    project.save("requirements.txt", "# nothing yet\n")
    watcher = project.watch()
    watcher.wait_for_verdict("passed", limit_s=60)
    project.in_container("touch", "/var/made-by-hand")
    service = watcher.status["box"]["services"][0]

    project.save("requirements.txt", "six==1.17.0\n")
    project.save("test_it.py", "import six\ndef test_it(): assert six.__version__ == '1.17.0'\n")
    status = watcher.wait_for_verdict("passed", limit_s=60)
    assert "the dependencies have changed: running setup again" in watcher.output
    assert watcher.output.count("setup: pip install -r requirements.txt") == 2
    project.in_container("test", "-e", "/var/made-by-hand")
    assert status["box"]["services"][0]["since"] == service["since"], "the service was left alone"

    before = project.container()
    with closing(docker.from_env(environment=project.environ)) as client:
        client.containers.get(before).remove(force=True)
    watcher.wait_for_words("creating the box from the saved environment", limit_s=20)
    watcher.wait_until("another box", lambda: watcher.status["box"]["id"] != before)
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
def test_an_interrupted_setup_passes_neither_for_the_old_nor_for_the_new(docker_project: Project) -> None:
    """Setup is killed halfway through the second time; then the first dependencies are requested again."""
    project = docker_project
    project.save("test_it.py", "import os\ndef test_it(): assert not os.path.exists('/opt/new')\n")
    project.save("requirements.txt", "# old\n")
    settings = "[box]\nsetup = ['rm -f /opt/new; grep -q old requirements.txt || { touch /opt/new; sleep 60; }']\n"
    project.save("watchtest.toml", settings)
    first = project.watch()
    first.wait_for_verdict("passed", limit_s=60)
    project.save("requirements.txt", "# new\n")
    first.wait_until("half of it", lambda: "new" in project.in_container("ls", "/opt"))
    first.kill9()
    project.save("requirements.txt", "# old\n")
    second = project.watch()
    second.wait_for_verdict("passed", limit_s=60)
    assert "rm -f /opt/new" in second.output, "set up again"


@pytest.mark.thorough
def test_after_a_reset_nothing_is_left_of_what_grew_in_the_box(docker_project: Project) -> None:
    project = docker_project
    project.save("requirements.txt", "six==1.17.0\n")
    project.save("test_it.py", "import six\ndef test_it(): pass\n")
    assert project.once(limit_s=60)[0] == 0
    project.save("requirements.txt", "# no six any more\n")
    assert project.once(limit_s=60)[0] == 0, "the box stays as it is"
    assert project.command("reset", "--engine", "docker", limit_s=60).returncode == 0
    assert project.once(limit_s=60)[0] == 1


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
