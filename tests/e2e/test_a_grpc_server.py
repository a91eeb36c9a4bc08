"""The use case that watchtest grew out of: packages, generated code and a server that persist from run to run.

Runs a real gRPC server (tests/samples/grpc_store) from the package index in a container.
"""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import docker
import pytest
from support.watcher_process import Project

SAMPLE = Path(__file__).parents[1] / "samples" / "grpc_store"
INSTALL_LIMIT_S = 300.0

pytestmark = [pytest.mark.docker, pytest.mark.timeout(420)]


def done(project: Project, *argv: str) -> None:
    result = project.execute(*argv, limit_s=INSTALL_LIMIT_S)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.thorough
def test_a_grpc_server_and_its_packages_are_there_in_run_after_run(docker_project: Project) -> None:
    project = docker_project
    shutil.copytree(SAMPLE, project.root, dirs_exist_ok=True)
    done(project, "pip", "install", "-q", "grpcio==1.73.0", "grpcio-tools==1.73.0")
    done(project, "python", "-m", "grpc_tools.protoc", "-I.", "--python_out=.", "--grpc_python_out=.", "kv.proto")

    first = project.watch()
    first.wait_for_verdict("passed", limit_s=60)
    for number in range(2):
        project.save("test_more.py", f"def test_more(): assert {number} < 2\n")
        status = first.wait_for_verdict("passed")
        assert status["known_counts"]["passed"] == 5
    assert [service["state"] for service in status["box"]["services"]] == ["ready"]

    # Editing the server restarts it before the tests: they see the new one, and then the old one again.
    server = (SAMPLE / "server.py").read_text()
    project.save("server.py", server.replace("welcome", "go away"))
    status = first.wait_for_verdict("failed")
    assert [failure["id"] for failure in status["failures"]] == ["test_store.py::test_a_handshake"]
    assert "service kv: restarted" in first.output
    project.save("server.py", server)
    first.wait_for_verdict("passed")

    assert first.stop() == 0
    second = project.watch()
    second.wait_for_verdict("passed")
    assert "service kv: adopted" in second.output

    with closing(docker.from_env(environment=project.environ)) as client:
        client.containers.get(project.container()).restart(timeout=1)
    second.wait_for_words("service kv: started again", limit_s=30)
    project.save("test_more.py", "def test_more(): assert 'after the restart'\n")
    status = second.wait_for_verdict("passed")
    assert status["known_counts"]["passed"] == 5
    second.must_be_tidy()
