"""The engine script and the guard of the Docker tests, without an engine."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from engine import images
from engine.command import EngineScriptError, run
from engine.daemon import Place, started, stop
from engine.process import OwnProcess
from engine.wire import Engine

TESTS = Path(__file__).resolve().parent.parent
linux_only = pytest.mark.skipif(sys.platform != "linux", reason="processes are identified through Linux's /proc")


def script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TESTS / "engine"), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )


def test_a_named_engine_that_is_not_there_is_an_error_and_starts_nothing(tmp_path: Path) -> None:
    result = script("up", DOCKER_HOST=f"unix://{tmp_path}/none.sock", XDG_CACHE_HOME=str(tmp_path))

    assert result.returncode == 1
    assert f"no engine answers at unix://{tmp_path}/none.sock" in result.stderr
    assert "Traceback" not in result.stderr
    assert not list(tmp_path.rglob("started.json"))


def test_status_is_red_without_an_engine_and_down_without_a_record_stops_nothing(tmp_path: Path) -> None:
    environment = {"DOCKER_HOST": f"unix://{tmp_path}/none.sock", "XDG_CACHE_HOME": str(tmp_path)}

    assert script("status", **environment).returncode == 1
    result = script("down", **environment)
    assert (result.returncode, "nothing to stop" in result.stdout) == (0, True)


def test_an_address_the_script_cannot_speak_to_is_named() -> None:
    assert "ssh://somewhere" in (Engine("ssh://somewhere").absence() or "")


def test_a_failed_command_is_named_with_the_end_of_its_output() -> None:
    noisy = (sys.executable, "-c", "print('first'); print('\\n' * 50 + 'the reason'); raise SystemExit(7)")

    with pytest.raises(EngineScriptError, match=r"ended with 7") as caught:
        run(noisy, timeout_s=20)

    assert "the reason" in str(caught.value)
    assert "    first" not in str(caught.value)


def test_a_command_that_hangs_is_ended_at_its_limit() -> None:
    with pytest.raises(EngineScriptError, match="did not end within"):
        run((sys.executable, "-c", "import time; time.sleep(60)"), timeout_s=0.5)


def test_every_recipe_has_a_tarball_of_its_own_and_a_changed_one_another(tmp_path: Path) -> None:
    recipes = (*images.RECIPES, replace(images.RECIPES[0], packages=("python3",)))

    assert len({recipe.tarball(tmp_path) for recipe in recipes}) == len(images.RECIPES) + 1


@linux_only
def test_down_stops_the_recorded_process_but_not_another_that_got_its_number(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as bystander:
        own = OwnProcess.of("dockerd", bystander.pid)
        assert own is not None
        place = Place(tmp_path)

        for stale in (replace(own, started_ticks=own.started_ticks - 1), replace(own, boot_id="another boot")):
            record(place, stale)
            assert "had ended before" in stop(place)[0]
            assert bystander.poll() is None

        record(place, own)
        assert "stopped" in stop(place)[0]
        assert bystander.wait(timeout=10) != 0
        assert started(place) == []


def record(place: Place, own: OwnProcess) -> None:
    place.record.write_text(json.dumps([asdict(own)]))


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite with the real guard: a plain test, a Docker test by folder, one by mark, and one skipped by hand."""
    tests = tmp_path / "tests"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(TESTS / "engine", tests / "engine", ignore=ignore)
    shutil.copy(TESTS / "conftest.py", tests)
    shutil.copytree(TESTS / "support", tests / "support", ignore=ignore)
    (tests / "docker").mkdir()
    shutil.copy(TESTS / "docker" / "conftest.py", tests / "docker")
    (tests / "docker" / "test_folder.py").write_text("def test_by_folder(): pass\n")
    (tests / "test_plain.py").write_text(
        "import pytest\n\ndef test_plain(): pass\n\n@pytest.mark.docker\ndef test_by_mark(): pass\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = thorough: takes long\naddopts = -ra\n")
    return tmp_path


class EngineThatHasEverything(BaseHTTPRequestHandler):
    """Answers a ping, and every request for an image with an unlabelled image."""

    def do_GET(self) -> None:
        body = b"OK" if self.path == "/_ping" else b'{"Config": {"Labels": null}}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def answering_host() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), EngineThatHasEverything) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield f"tcp://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join(timeout=10)


def test_with_an_engine_and_its_images_every_docker_test_runs(suite: Path, answering_host: str) -> None:
    code, output = verdict(suite, required=True, host=answering_host)

    assert (code, "3 passed" in output) == (0, True), output


def verdict(
    suite: Path, *asked: str, required: bool, host: str = "unix:///nowhere.sock", **variables: str
) -> tuple[int, str]:
    environment = {
        **os.environ,
        **variables,
        "DOCKER_HOST": host,
        "WATCHTEST_REQUIRE_ENGINE": "1" if required else "0",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(asked or ("tests",))],
        cwd=suite,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return result.returncode, result.stdout + result.stderr


def test_without_an_engine_docker_tests_skip_loudly_and_the_rest_passes(suite: Path) -> None:
    code, output = verdict(suite, required=False)

    assert code == 0, output
    assert "1 passed, 2 skipped" in output
    assert "DOCKER TEST NOT RUN: no engine answers at unix:///nowhere.sock" in output


def test_without_a_required_engine_every_docker_test_fails(suite: Path) -> None:
    code, output = verdict(suite, required=True)

    assert code == 1, output
    assert "2 errors" in output or "2 failed" in output
    assert "a real container engine is required, but no engine answers" in output


@pytest.mark.parametrize(
    ("is_required", "told"), [(False, "PODMAN TEST NOT RUN: "), (True, "a podman that serves its API is required")]
)
def test_a_podman_test_needs_podman_whatever_else_there_is(
    suite: Path, answering_host: str, tmp_path: Path, is_required: bool, told: str
) -> None:
    (suite / "tests" / "test_plain.py").write_text("import pytest\n\n@pytest.mark.podman\ndef test_it(): pass\n")

    code, output = verdict(suite, required=is_required, host=answering_host, XDG_CACHE_HOME=str(tmp_path))

    assert code == int(is_required), output
    assert f"{told}, but no engine answers" in output if is_required else told in output
    assert f"unix://{tmp_path}/watchtest-test-images/podman/podman.sock" in output


@pytest.mark.parametrize(
    "skipping",
    [
        "import pytest\n\n@pytest.mark.skip(reason='tired')\ndef test_skipped(): pass\n",
        "import pytest\n\npytest.skip('tired', allow_module_level=True)\n",
    ],
    ids=["a test", "a module"],
)
def test_a_docker_test_skipped_for_another_reason_fails_the_session_when_an_engine_is_required(
    suite: Path, answering_host: str, skipping: str
) -> None:
    (suite / "tests" / "docker" / "test_folder.py").write_text(skipping)
    (suite / "tests" / "test_plain.py").write_text("def test_plain(): pass\n")

    assert verdict(suite, required=False, host=answering_host)[0] == 0
    code, output = verdict(suite, required=True, host=answering_host)
    assert code == 1, output
    assert "tests skipped although what they need is required" in output


@pytest.mark.parametrize(
    ("asked", "ran"),
    [
        ((), "1 passed, 1 deselected"),
        (("--thorough",), "2 passed"),
        (("-m", "thorough"), "1 passed, 1 deselected"),
        (("tests/test_plain.py::test_long",), "1 passed"),
    ],
    ids=["the default run", "--thorough", "-m thorough", "named"],
)
def test_thorough_tests_run_when_they_are_asked_for(suite: Path, asked: tuple[str, ...], ran: str) -> None:
    shutil.rmtree(suite / "tests" / "docker")
    (suite / "tests" / "test_plain.py").write_text(
        "import pytest\n\ndef test_short(): pass\n\n@pytest.mark.thorough\ndef test_long(): pass\n"
    )

    code, output = verdict(suite, *asked, required=False)

    assert (code, f"{ran} in" in output) == (0, True), output
