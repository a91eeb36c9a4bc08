"""Tests that end badly each get the right verdict and a clear reason. One watcher runs them all in turn."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.projects import KINDS, MakeProject, end
from support.watcher_process import Project, Status, Watcher


class Stage:
    """One project and one watcher; each test provides the files of its own scene."""

    def __init__(self, project: Project) -> None:
        self.project = project
        self.watcher: Watcher | None = None

    def play(self, verdict: str, files: dict[str, str]) -> Status:
        for old in self.project.root.glob("[!.]*"):
            old.unlink()
        for path, content in files.items():
            self.project.save(path, content)
        if self.watcher is None or not self.watcher.is_alive:
            self.watcher = self.project.watch(
                env={"WATCHTEST_RUNNER_GRACE_S": "0.3", "WATCHTEST_RUNNER_TIMEOUT_S": "2"}
            )
        status = self.watcher.wait_for_verdict(verdict)
        self.watcher.must_be_tidy()
        return status


def failure_of(status: Status, test: str) -> Status:
    """Return the test's entry among the failures; ignore what earlier scenes left there."""
    (found,) = [failure for failure in status["failures"] if failure["id"] == test]
    return dict(found)


@pytest.fixture(scope="module", params=KINDS)
def stage(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, make_project: MakeProject
) -> Iterator[Stage]:
    project = make_project(tmp_path_factory.mktemp("stage"), request.param)
    yield Stage(project)
    end(project)


GOOD = "def test_good():\n    pass\n"


def test_a_collection_error_blames_its_file_alone(stage: Stage) -> None:
    status = stage.play("error", {"test_good.py": GOOD, "test_bad.py": "import os\nimport no_such_module\n"})
    assert status["reason"].startswith("1 file could not be imported: test_bad.py: ModuleNotFoundError")
    assert [failure["id"] for failure in status["failures"]] == ["test_bad.py"], "test_good.py has done nothing wrong"
    assert "no_such_module" in failure_of(status, "test_bad.py")["message"]


def test_an_import_error_is_told_at_its_line(stage: Stage) -> None:
    status = stage.play("error", {"test_bad.py": "import os\n\nimport no_such_module\n"})
    failure = failure_of(status, "test_bad.py")
    assert (failure["file"], failure["line"]) == ("test_bad.py", 3)
    assert failure["source_line"] == "import no_such_module"
    assert failure["kind"] == "ModuleNotFoundError"
    assert failure["message"] == "ModuleNotFoundError: No module named 'no_such_module'"


def test_an_exception_at_import_is_told_at_its_line(stage: Stage) -> None:
    status = stage.play("error", {"test_bad.py": "import os\n\nraise ValueError('at import')\n"})
    failure = failure_of(status, "test_bad.py")
    assert (failure["file"], failure["line"]) == ("test_bad.py", 3)
    assert failure["kind"] == "ValueError"


def test_a_syntax_error_is_told_at_its_line(stage: Stage) -> None:
    status = stage.play("error", {"test_bad.py": "x = 1\n\ndef test_it(:\n    pass\n"})
    failure = failure_of(status, "test_bad.py")
    assert (failure["file"], failure["line"]) == ("test_bad.py", 3)
    assert "SyntaxError" in failure["kind"] + failure["message"]


def test_a_syntax_error_in_the_code_under_test_names_that_file(stage: Stage) -> None:
    status = stage.play(
        "error", {"shop.py": "def total(:\n", "test_shop.py": "import shop\n\ndef test_it():\n    pass\n"}
    )
    failure = failure_of(status, "test_shop.py")
    assert failure["crash"] == {"file": "shop.py", "line": 1}


def test_an_exit_with_0_in_a_test_is_not_green(stage: Stage) -> None:
    files = {"test_good.py": GOOD, "test_leaves.py": "import os\n\ndef test_leaves():\n    os._exit(0)\n"}
    status = stage.play("error", files)
    # Whether it ran before the other test depends on what was known about both.
    assert status["reason"].startswith("the process exited with 0 in test_leaves.py::test_leaves")
    assert failure_of(status, "test_leaves.py::test_leaves")["kind"] == "exited"
    assert [failure["id"] for failure in status["failures"]] == ["test_leaves.py::test_leaves"]


def test_a_segfault_is_told_with_its_signal_and_its_test(stage: Stage) -> None:
    files = {"test_good.py": GOOD, "test_segfault.py": "import ctypes\n\ndef test_it():\n    ctypes.string_at(0)\n"}
    status = stage.play("error", files)
    assert "SIGSEGV in test_segfault.py::test_it" in status["reason"]
    failure = failure_of(status, "test_segfault.py::test_it")
    assert (failure["kind"], failure["file"], failure["line"]) == ("crashed", "test_segfault.py", 4)
    shown = stage.project.command("history", "show", status["run_id"], "--json")
    assert "line 4 in test_it" in shown.stdout, "the interpreter's own words are kept"


def test_sys_exit_in_conftest_is_an_error(stage: Stage) -> None:
    status = stage.play("error", {"conftest.py": "import sys\nsys.exit(0)\n", "test_good.py": GOOD})
    assert status["reason"]


def test_an_exit_with_0_while_collecting_is_an_error(stage: Stage) -> None:
    status = stage.play("error", {"test_good.py": GOOD, "test_leaves.py": "import os\nos._exit(0)\n"})
    assert status["reason"]


@pytest.mark.parametrize("way", ["os._exit(0)", "sys.exit(0)", "pytest.exit('bye', returncode=0)"])
def test_a_run_that_left_before_it_had_collected_mends_no_known_failure(stage: Stage, way: str) -> None:
    """The run has not shown that the red test is gone."""
    files = {"test_red.py": "def test_red():\n    assert 0\n"}
    stage.play("failed", files)
    status = stage.play("error", {**files, "conftest.py": f"import os, pytest, sys\n{way}\n"})
    assert failure_of(status, "test_red.py::test_red")


def test_sys_exit_in_a_test_fails_that_test(stage: Stage) -> None:
    status = stage.play(
        "failed", {"test_it.py": "import sys\n\ndef test_it():\n    sys.exit(0)\n", "test_good.py": GOOD}
    )
    assert [failure["id"] for failure in status["failures"]] == ["test_it.py::test_it"]
    assert status["run_counts"]["passed"] == 1


def test_an_exception_in_conftest_is_an_error_at_its_line(stage: Stage) -> None:
    status = stage.play("error", {"conftest.py": "x = 1\nraise ValueError('broken conftest')\n", "test_good.py": GOOD})
    assert status["reason"]
    assert stage.watcher is not None
    stage.watcher.wait_for_words("broken conftest")


def test_a_test_that_kills_its_own_process_group_is_an_error(stage: Stage) -> None:
    files = {"test_it.py": "import os, signal\n\ndef test_it():\n    os.killpg(0, signal.SIGKILL)\n"}
    status = stage.play("error", files)
    assert "SIGKILL in test_it.py::test_it" in status["reason"]


def test_a_keyboard_interrupt_in_a_test_is_not_green(stage: Stage) -> None:
    status = stage.play("error", {"test_a.py": "def test_it():\n    raise KeyboardInterrupt\n", "test_good.py": GOOD})
    assert status["reason"]


def test_a_hanging_test_is_ended_and_its_stack_is_kept(stage: Stage) -> None:
    content = "import time\n\ndef hang_here():\n    time.sleep(60)\n\ndef test_hangs():\n    hang_here()\n"
    status = stage.play("error", {"test_good.py": GOOD, "test_hangs.py": content})
    # Whether the other test ran before it depends on what was known about both.
    assert status["reason"].startswith("the run took longer than 2 s, in test_hangs.py::test_hangs")
    failure = failure_of(status, "test_hangs.py::test_hangs")
    assert (failure["kind"], failure["file"], failure["line"]) == ("timed out", "test_hangs.py", 4)
    shown = stage.project.command("history", "show", status["run_id"], "--json")
    assert shown.returncode == 0, shown.stderr
    assert stage.watcher is not None
    assert "in hang_here" in stage.watcher.output + shown.stdout


def test_a_hanging_test_that_heeds_no_signal_is_ended_all_the_same(stage: Stage) -> None:
    content = (
        "import signal, time\n\ndef test_deaf():\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "    signal.signal(signal.SIGINT, signal.SIG_IGN)\n    time.sleep(60)\n"
    )
    status = stage.play("error", {"test_deaf.py": content})
    assert "the run took longer than 2 s" in status["reason"]


def test_stopping_at_the_first_failure_leaves_the_rest_unknown_and_red_first(stage: Stage) -> None:
    files = {
        "pytest.ini": "[pytest]\naddopts = -x\n",
        "test_many.py": "import pytest\n\n@pytest.mark.parametrize('n', range(5))\ndef test_n(n):\n    assert n == 0\n",
    }
    status = stage.play("failed", files)
    assert [failure["id"] for failure in status["failures"]] == ["test_many.py::test_n[1]"]
    assert status["run_counts"]["passed"] == 1
    # Fixing the first error reveals the second; the run is green only when all are fixed.
    files["test_many.py"] = files["test_many.py"].replace("n == 0", "n < 4")
    status = stage.play("failed", files)
    assert [failure["id"] for failure in status["failures"]] == ["test_many.py::test_n[4]"]
    files["test_many.py"] = files["test_many.py"].replace("n < 4", "n < 5")
    assert stage.play("passed", files)["known_counts"]["passed"] == 5


def test_odd_characters_in_parametrised_ids_are_kept(stage: Stage) -> None:
    ids = ["a b", "x::y", "[nested]", "sla/sh", "ünï☃", "", "per%cent", "quo'te\"", "-k", "a;b|c&d"]
    content = f"import pytest\n\n@pytest.mark.parametrize('value', {ids!r})\ndef test_odd(value):\n    assert 0\n"
    status = stage.play("failed", {"pytest.ini": "[pytest]\n", "test_odd.py": content})
    assert status["failures_total"] == len(ids)
    found = {failure["id"] for failure in status["failures"]}
    assert {"test_odd.py::test_odd[a b]", "test_odd.py::test_odd[x::y]", "test_odd.py::test_odd[sla/sh]"} <= found
    assert all(failure["file"] == "test_odd.py" for failure in status["failures"])


def test_a_test_that_closes_its_own_descriptors_cannot_fake_a_green(stage: Stage) -> None:
    content = (
        "import os\n\ndef test_first():\n    assert 0\n\ndef test_closes():\n    os.closerange(3, 256)\n"
        "\ndef test_last():\n    assert 0\n"
    )
    stage.play("error", {"test_it.py": content})


def test_a_runaway_of_a_green_run_is_ended_with_it(stage: Stage) -> None:
    content = (
        "import subprocess\n\ndef test_it():\n    subprocess.Popen(['sleep', '86412.75'], start_new_session=True)\n"
    )
    stage.play("passed", {"test_it.py": content})
    assert not [line for line in stage.project.box_processes() if "86412.75" in line]


def test_after_all_that_the_same_watcher_is_still_right(stage: Stage) -> None:
    stage.play("failed", {"test_it.py": "def test_it():\n    assert 1 == 2\n"})
    status = stage.play("passed", {"test_it.py": GOOD})
    assert status["failures"] == []
    assert status["known_counts"]["passed"] == 1
