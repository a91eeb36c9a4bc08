"""Three lanes on one repository: each box equals its own source, and each verdict names git's own tree."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from support.git_repo import Repo, operate
from support.watcher_process import Project, Status, Watcher, tree_of, wait_for

LANES = ("save", "stage", "commit")
CODE = "def a():\n    return {a}\n\n\n# 1\n# 2\n# 3\n# 4\n# 5\n# 6\n# 7\n\n\ndef b():\n    return {b}\n"
TESTS = "from code_of import a, b\n\n\ndef test_a():\n    assert a() == 1\n\n\ndef test_b():\n    assert b() == 1\n"


@pytest.fixture
def repo(project: Project) -> Repo:
    repo = Repo(project.root)
    repo.save("code_of.py", CODE.format(a=1, b=1))
    repo.save("test_it.py", TESTS)
    repo.save("pytest.ini", "[pytest]\npython_files = test_it.py\n")
    repo.save(".gitignore", "__pycache__/\n.pytest_cache/\n")
    repo.commit("first")
    return repo


OPERATIONS = int(os.environ.get("WATCHTEST_OPERATIONS", "120"))


def watch(project: Project, *lanes: str) -> Watcher:
    flags = [f"--trigger={lane}={'all' if lane in lanes else 'off'}" for lane in LANES]
    return project.watch(*flags)


def at_rest(watcher: Watcher, trees: dict[str, str], limit_s: float = 40.0) -> dict[str, Status]:
    """Return the lanes once each is idle and about exactly its tree."""

    def look() -> dict[str, Status] | None:
        status = watcher.own_status
        lanes = {name: lane for name, lane in status.get("lanes", {}).items() if lane} if status else {}
        for name, tree in trees.items():
            lane = lanes.get(name)
            if not lane or lane["activity"] != "idle" or lane["pending"]["changes"] or lane["code"]["tree"] != tree:
                return None
        return lanes

    return watcher.wait_until(f"verdicts on {trees}", look, limit_s)


def trees_of(project: Project, repo: Repo) -> dict[str, str]:
    return {
        "save": project.tree_id(),
        "stage": repo.staged_tree(project.around),
        "commit": repo.git("rev-parse", "HEAD^{tree}"),
    }


def test_a_half_staged_file_gets_three_verdicts(project: Project, repo: Repo) -> None:
    watcher = watch(project, *LANES)
    at_rest(watcher, trees_of(project, repo))
    repo.save("code_of.py", CODE.format(a=2, b=1))
    repo.git("add", "code_of.py")
    repo.save("code_of.py", CODE.format(a=2, b=2))
    lanes = at_rest(watcher, trees_of(project, repo))
    red = {name: [failure["id"].partition("::")[2] for failure in lane["failures"]] for name, lane in lanes.items()}
    assert red == {"save": ["test_a", "test_b"], "stage": ["test_a"], "commit": []}
    assert lanes["commit"]["verdict"] == "passed"
    for name, tree in (("stage", repo.staged_tree(project.around)), ("commit", "HEAD")):
        repo.exported(tree, project.around / "out")
        assert project.box_tree(name) == tree_of(project.around / "out")
    assert project.box_tree("save") == project.tree()
    watcher.must_be_tidy()


def test_an_index_in_conflict_makes_only_its_lane_wait_until_it_is_resolved(project: Project, repo: Repo) -> None:
    watcher = watch(project, "stage", "commit")
    at_rest(watcher, {"stage": repo.staged_tree(project.around)})
    repo.save("code_of.py", CODE.format(a=2, b=1))
    repo.git("stash")
    repo.save("code_of.py", CODE.format(a=3, b=1))
    repo.commit("second")
    repo.git("stash", "pop", check=False)

    watcher.wait_for_words("[stage] waiting: the index has unmerged paths: code_of.py")
    lanes = at_rest(watcher, {"commit": repo.git("rev-parse", "HEAD^{tree}")})
    assert lanes["commit"]["verdict"] == "failed"
    assert (lanes["stage"]["activity"], lanes["stage"]["problem"]) == ("idle", None)
    gate = project.command("gate", "--staged", env={"WATCHTEST_BOX_ENGINE": project.kind})
    assert gate.returncode == 4
    assert "the index has unmerged paths: code_of.py" in gate.stderr
    repo.save("code_of.py", CODE.format(a=1, b=1))
    repo.git("add", "code_of.py")
    assert at_rest(watcher, {"stage": repo.staged_tree(project.around)})["stage"]["verdict"] == "passed"


@pytest.mark.thorough
def test_git_status_triggers_nothing(project: Project, repo: Repo) -> None:
    watcher = watch(project, *LANES)
    at_rest(watcher, trees_of(project, repo))
    before = watcher.output.count("syncing")
    deadline = time.monotonic() + 3
    while time.monotonic() < deadline:
        repo.git("status")
    assert watcher.output.count("syncing") == before


@pytest.mark.thorough
def test_a_checkout_of_two_thousand_files_is_one_cycle(project: Project, repo: Repo) -> None:
    repo.git("checkout", "--quiet", "-b", "many")
    for number in range(2000):
        repo.save(f"many/{number % 40}/{number}.txt", str(number))
    repo.commit("many")
    repo.git("checkout", "--quiet", "main")
    watcher = watch(project, "save", "commit")
    trees = trees_of(project, repo)
    at_rest(watcher, {name: trees[name] for name in ("save", "commit")})
    before = {lane: watcher.output.count(f"[{lane}] running") for lane in ("save", "commit")}
    repo.git("checkout", "--quiet", "many")
    trees = trees_of(project, repo)
    at_rest(watcher, {name: trees[name] for name in ("save", "commit")})
    after = {lane: watcher.output.count(f"[{lane}] running") for lane in ("save", "commit")}
    assert {lane: after[lane] - before[lane] for lane in after} == {"save": 1, "commit": 1}


def test_a_rebase_of_ten_commits_is_one_run_at_its_end(project: Project, repo: Repo) -> None:
    base = repo.git("rev-parse", "HEAD")
    for number in range(10):
        repo.save(f"{number}.txt", "x\n")
        repo.commit(str(number))
    watcher = watch(project, "commit")
    at_rest(watcher, {"commit": repo.git("rev-parse", "HEAD^{tree}")})
    before = watcher.output.count(" running ")
    repo.git("rebase", "--quiet", "-i", base, GIT_SEQUENCE_EDITOR="sed -i s/^pick/edit/", check=False)
    while (project.root / ".git" / "rebase-merge").exists():
        wait_for("the watcher to see the rebase", lambda: "a rebase is in progress" in watcher.output)
        repo.save("code_of.py", CODE.format(a=1, b=1) + "# rebased\n")
        repo.git("commit", "--quiet", "--amend", "--no-edit", "-a", check=False)
        repo.git("rebase", "--continue", check=False)
    at_rest(watcher, {"commit": repo.git("rev-parse", "HEAD^{tree}")})
    assert watcher.output.count(" running ") - before == 1


@pytest.mark.timeout(400)
@pytest.mark.parametrize("kind", ["local"])
@pytest.mark.thorough
def test_many_git_operations_leave_each_box_equal_to_its_source(project: Project, repo: Repo) -> None:
    chance = random.Random(23)
    repo.git("branch", "other")
    watcher = watch(project, *LANES)
    done = 0
    while done < OPERATIONS:
        for _ in range(chance.randint(5, 25)):
            operate(repo, chance, done)
            done += 1
            if chance.random() < 0.1:
                time.sleep(chance.uniform(0, 0.3))
        # Files that the operations may remove but that every verdict needs.
        if not (project.root / "test_it.py").exists():
            repo.git(
                "checkout", "--quiet", "main", "--", "test_it.py", "code_of.py", "pytest.ini", ".gitignore", check=False
            )
        trees = trees_of(project, repo)
        at_rest(watcher, trees)
        assert project.box_tree("save") == project.tree(), f"after {done} operations"
        for lane in ("stage", "commit"):
            repo.exported(trees[lane], project.around / "out")
            assert project.box_tree(lane) == tree_of(project.around / "out"), f"{lane} after {done} operations"
    watcher.must_be_tidy()


def test_the_gate_answers_at_once_or_runs_by_itself(project: Project, repo: Repo, tmp_path: Path) -> None:
    first = project.command("gate", "--commit", "HEAD", env={"WATCHTEST_BOX_ENGINE": project.kind})
    assert first.returncode == 0, first
    assert "passed 2 tests" in first.stdout
    again = project.command("gate", "--commit", "HEAD", env={"WATCHTEST_BOX_ENGINE": project.kind})
    assert again.returncode == 0
    assert "syncing" not in again.stderr, "it was known"
    repo.save("code_of.py", CODE.format(a=1, b=2))
    repo.git("add", "-A")
    repo.save("code_of.py", CODE.format(a=1, b=1))
    red = project.command("gate", env={"WATCHTEST_BOX_ENGINE": project.kind})
    assert red.returncode == 1
    assert "FAILED test_it.py::test_b test_it.py:9" in red.stdout
    unknown = project.command("gate", "--commit", "nowhere", env={"WATCHTEST_BOX_ENGINE": project.kind})
    assert (unknown.returncode, "nowhere: no such commit" in unknown.stderr) == (2, True)


def test_the_gate_waits_for_a_watcher_whose_lane_is_on(project: Project, repo: Repo) -> None:
    watcher = watch(project, "stage")
    at_rest(watcher, {"stage": repo.staged_tree(project.around)})
    repo.save("code_of.py", CODE.format(a=5, b=1))
    repo.git("add", "-A")
    gate = project.command("gate", "--staged", env={"WATCHTEST_BOX_ENGINE": project.kind})
    assert gate.returncode == 1
    assert "test_it.py::test_a" in gate.stdout
    assert "syncing" not in gate.stderr


def test_hooks_ask_the_gate_and_harm_no_other_hook(project: Project, repo: Repo) -> None:
    foreign = project.root / ".git" / "hooks" / "pre-push"
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("#!/bin/sh\necho mine\n")
    said = project.command("init", "--hooks")
    assert said.returncode == 0
    assert "was left as it is" in said.stdout
    assert foreign.read_text() == "#!/bin/sh\necho mine\n"
    hook = project.root / ".git" / "hooks" / "pre-commit"
    assert hook.stat().st_mode & 0o111
    assert "watchtest gate --staged" in hook.read_text()
    assert project.command("init", "--hooks").returncode == 0, "a second time changes nothing"


def test_a_source_that_lost_most_of_its_files_asks_first(project: Project, repo: Repo) -> None:
    for number in range(40):
        repo.save(f"data/{number}.txt", "x")
    watcher = watch(project, "save")
    watcher.wait_for_verdict("passed")
    for number in range(40):
        (project.root / "data" / f"{number}.txt").unlink()
    status = watcher.wait_for_activity("degraded")
    assert status["problem"]["code"] == "shrank"
    assert "watchtest sync --accept" in status["problem"]["hint"]
    assert len(project.box_tree()) > 30, (
        "almost nothing was deleted: only what was removed before the watcher saw the rest"
    )
    assert project.command("sync", "--accept").returncode == 0
    watcher.wait_for_verdict("passed")
    assert project.box_tree() == project.tree()
