"""The first promise, end to end: a save leads to a verdict."""

from __future__ import annotations

import time

from support.watcher_process import Project

GREEN = "def test_one():\n    assert 1 == 1\n"
RED = "def test_one():\n    assert 1 == 2\n"
SLOW = """import pathlib, time

def test_slow():
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""


def test_a_save_gives_a_verdict_and_ten_saves_give_ten(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    seen: dict[str, str] = {}
    took = []
    for number in range(10):
        red = number % 2 == 0
        began = time.monotonic()
        project.save("test_it.py", f"# save {number}\n{RED if red else GREEN}")
        status = watcher.wait_for_verdict("failed" if red else "passed")
        took.append(time.monotonic() - began)
        seen[status["code"]["tree"]] = status["run_id"]
        if red:
            (failure,) = status["failures"]
            assert (failure["file"], failure["line"]) == ("test_it.py", 3)
            assert failure["source_line"].strip() == "assert 1 == 2"
    assert len(seen) == 10
    assert len(set(seen.values())) == 10
    # The status file may be slightly ahead of the printed line.
    watcher.wait_until("eleven verdicts in plain words", lambda: watcher.output.count(" · tree ") == 11)
    assert min(took) < 3.0, "this is no benchmark, but a delay of seconds would show here"
    assert watcher.stop() == 0
    assert watcher.status["activity"] == "stopped"
    watcher.must_be_tidy()


def test_a_save_that_changes_no_content_runs_nothing(project: Project) -> None:
    project.save("test_it.py", GREEN)
    watcher = project.watch()
    first = watcher.wait_for_verdict("passed")
    (project.root / "test_it.py").touch()
    watcher.wait_for_words("no content changed, nothing to run")
    watcher.wait_for_activity("idle")
    assert watcher.status["run_id"] == first["run_id"]


def test_a_same_size_edit_within_one_second_runs_the_new_code(project: Project) -> None:
    """Python would trust its compiled file: same size, same second."""
    project.save("value.py", "VALUE = 1\n")
    project.save("test_it.py", "import value\n\ndef test_value():\n    assert value.VALUE == 1\n")
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    for number in (2, 1, 3):
        project.save("value.py", f"VALUE = {number}\n")
        watcher.wait_for_verdict("passed" if number == 1 else "failed")


def test_a_save_during_a_run_gives_a_follow_up_run_on_the_last_tree(project: Project) -> None:
    project.save("test_slow.py", SLOW)
    watcher = project.watch()
    watcher.wait_until("the test runs", lambda: (watcher.own_status.get("progress") or {}).get("total") == 1)
    project.save("test_slow.py", "def test_slow():\n    assert 'first' == 'edit'\n")
    watcher.wait_until("the save is seen", lambda: watcher.output.count("changed 1 file: test_slow.py") == 1)
    project.save("test_slow.py", "def test_slow():\n    assert 'last' == 'edit'\n")
    watcher.wait_until("the second, too", lambda: watcher.output.count("changed 1 file: test_slow.py") == 2)
    assert watcher.own_status["verdict"] == "unknown", "nothing may be reported before a run has ended"
    # The file that ends the first run is created only in the box.
    assert project.execute("touch", "go").returncode == 0
    status = watcher.wait_for_verdict("failed")
    assert "last" in status["failures"][0]["message"]
    assert watcher.output.count("syncing · run") == 2, "two saves during one run are one follow-up"
    watcher.must_be_tidy()


def test_the_box_outlives_the_watcher_and_keeps_what_was_made_in_it(project: Project) -> None:
    project.save("test_it.py", GREEN)
    first = project.watch()
    box = first.wait_for_verdict("passed")["box"]["id"]
    made = project.execute("sh", "-c", "echo kept > made-in-the-box && pwd")
    assert made.returncode == 0, made.stderr
    assert first.stop() == 0
    second = project.watch()
    status = second.wait_for_verdict("passed")
    assert status["box"]["id"] == box
    assert "adopted" in second.output
    if project.kind == "docker":
        assert project.container() == box
    assert project.execute("cat", "made-in-the-box").stdout == "kept\n"
    assert not (project.root / "made-in-the-box").exists(), "the box never writes into the workspace"


def test_exec_tells_the_exit_code_and_keeps_the_streams_apart(project: Project) -> None:
    done = project.execute("sh", "-c", "echo out; echo err >&2; exit 7")
    assert (done.returncode, done.stdout) == (7, "out\n")
    assert "err" in done.stderr
