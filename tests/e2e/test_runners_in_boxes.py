"""Real toolchains in real boxes under a real watcher, detected without any configuration: green, red, green again.

test_other_runners covers the output of each tool; these tests cover the whole way from a save to the status file.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import platformdirs
import pytest
from engine.images import BARE
from support.needs import must_be_marked
from support.node_packages import link_packages
from support.projects import MakeProject, end
from support.samples import SAMPLES, marked, tool_of
from support.watcher_process import Project, Status

LIMIT_S = 60.0  # a compiler on two shared cores

Sample = Callable[..., Project]


@dataclass(frozen=True)
class Story:
    """One sample: what makes it red, and where that shows."""

    name: str
    file: str
    right: str
    wrong: str
    tests: int
    red: tuple[str, str, int]
    """The id, file and line of a test that fails then."""


STORIES = (
    Story("go", "price.go", "price * count", "price + count", 5, (".::TestTotal", "price_test.go", 8)),
    Story(
        *("rust", "tax/src/lib.rs", "price / 5", "price / 2", 5),
        ("tax/lib::a_fifth", "tax/src/lib.rs", 7),
    ),
    Story(
        *("vitest", "src/price.ts", "thing.price * thing.count", "thing.price + thing.count", 4),
        ("src/price.test.ts::total > is a product", "src/price.test.ts", 6),
    ),
    Story(
        *("jest", "src/price.js", "thing.price * thing.count", "thing.price + thing.count", 4),
        ("src/price.test.js::total > is a product", "src/price.test.js", 5),
    ),
)


@pytest.fixture
def sample(request: pytest.FixtureRequest, tmp_path: Path, make_project: MakeProject) -> Sample:
    """A copy of a sample as the workspace of a local box, which has the toolchains of this machine."""

    def make(name: str, *, has_pytest: bool = False) -> Project:
        tool = tool_of(name)
        must_be_marked(request, tool)
        project = make_project(tmp_path, "local")
        shutil.copytree(SAMPLES / name, project.root, dirs_exist_ok=True)
        # The home of these watchers is an empty folder, so name what a user would have at home.
        home = os.environ.get("RUSTUP_HOME") or str(Path.home() / ".rustup")
        cache = Path(platformdirs.user_cache_dir("watchtest-tests"), "go-build")
        project.environ |= {"RUSTUP_HOME": home, "GOCACHE": str(cache)}
        if tool == "npm":
            # Do what `npm install` would do in the box, without asking an index in each test.
            link_packages(SAMPLES / name, tmp_path)
            link = f"ln -s {shlex.quote(str((tmp_path / 'node_modules').resolve()))} node_modules"
            project.environ["WATCHTEST_BOX_SETUP"] = f"['{link}']"
        elif not has_pytest:
            del project.environ["WATCHTEST_BOX_SETUP"]
        return project

    return make


def edit(project: Project, path: str, old: str, new: str) -> None:
    text = (project.root / path).read_text(encoding="utf-8")
    assert old in text
    project.save(path, text.replace(old, new, 1))


def failures(status: Status) -> dict[str, tuple[str, int]]:
    return {failure["id"]: (failure["file"], failure["line"]) for failure in status["failures"]}


@pytest.mark.parametrize(
    "story",
    [pytest.param(story, marks=getattr(pytest.mark, tool_of(story.name)), id=story.name) for story in STORIES],
)
def test_a_project_is_green_red_at_the_right_line_and_green_again(sample: Sample, story: Story) -> None:
    project = sample(story.name)
    watcher = project.watch(limit_s=LIMIT_S)
    green = watcher.wait_for_verdict("passed")
    assert green["known_counts"]["passed"] == story.tests
    edit(project, story.file, story.right, story.wrong)
    red = watcher.wait_for_verdict("failed")
    test, file, line = story.red
    assert failures(red)[test] == (file, line)
    assert f"{file}:{line}:" in (project.root / ".watchtest" / "locations").read_text(encoding="utf-8")
    edit(project, story.file, story.wrong, story.right)
    assert watcher.wait_for_verdict("passed")["known_counts"]["passed"] == story.tests
    watcher.must_be_tidy()


HANGS = {
    "go": ("price_test.go", 't.Log("two things")', "select {}", ".::TestTotal"),
    "rust": ("tax/src/lib.rs", "assert_eq!(with_tax(10), 12);", "loop { std::thread::park(); }", "tax/lib::a_fifth"),
    "vitest": ("src/price.test.ts", "expect(total({ price: 3", "for (;;) {} expect(total({ price: 3", ""),
}


@pytest.mark.parametrize("name", marked((name,) for name in HANGS))
@pytest.mark.thorough
def test_a_hanging_test_is_ended_by_the_limit_and_named_where_its_tool_tells(sample: Sample, name: str) -> None:
    path, right, wrong, test = HANGS[name]
    project = sample(name)
    project.environ |= {"WATCHTEST_RUNNER_TIMEOUT_S": "6", "WATCHTEST_RUNNER_GRACE_S": "0.5"}
    watcher = project.watch(limit_s=LIMIT_S)
    watcher.wait_for_verdict("passed")
    edit(project, path, right, wrong)
    status = watcher.wait_for_verdict("error", limit_s=LIMIT_S)
    assert [failure["id"] for failure in status["failures"]] == ([test] if test else [])
    assert test in status["reason"]
    assert "collected" not in status["reason"]
    assert json.loads(project.command("history", "show", "last", "--json").stdout)["state"] == "timed_out"
    if name == "go":
        assert failures(status)[test] == (path, 6)
    watcher.must_be_tidy()


@pytest.mark.bubblewrap
@pytest.mark.parametrize("name", marked([("go",), ("rust",)], frozenset({"go"})))
def test_a_toolchain_works_behind_walls(sample: Sample, name: str) -> None:
    project = sample(name)
    project.environ["WATCHTEST_BOX_SANDBOX"] = "on"
    code, said = project.once(limit_s=LIMIT_S)
    assert code == 0, said
    assert "sandboxed by bubblewrap" in said


@pytest.mark.go
def test_python_and_go_share_one_verdict_and_one_go_test_can_be_asked_for(sample: Sample) -> None:
    project = sample("go", has_pytest=True)
    project.save("test_shop.py", "def test_shop():\n    assert 1 + 1 == 2\n")
    watcher = project.watch(limit_s=LIMIT_S)
    assert watcher.wait_for_verdict("passed")["known_counts"]["passed"] == 6
    edit(project, "price.go", "price * count", "price + count")
    red = watcher.wait_for_verdict("failed")
    assert failures(red) == {".::TestTotal": ("price_test.go", 8)}
    alone = project.command("run", "--wait", ".::TestTotal")
    assert (alone.returncode, "failed (1 failed)" in alone.stdout) == (1, True), alone.stdout + alone.stderr
    edit(project, "test_shop.py", "== 2", "== 3")
    both = watcher.wait_for_verdict("failed")
    assert failures(both) == {".::TestTotal": ("price_test.go", 8), "test_shop.py::test_shop": ("test_shop.py", 2)}
    edit(project, "price.go", "price + count", "price * count")
    # go is green in this run, but the result of Python must not be lost.
    assert failures(watcher.wait_for_verdict("failed")) == {"test_shop.py::test_shop": ("test_shop.py", 2)}
    alone = project.command("run", "--wait", ".::TestTotal")
    assert (alone.returncode, "passed (1 passed)" in alone.stdout) == (0, True), alone.stdout + alone.stderr
    assert watcher.status["verdict"] == "failed"
    edit(project, "test_shop.py", "== 3", "== 2")
    watcher.wait_for_verdict("passed")
    watcher.must_be_tidy()


# -- commands --------------------------------------------------------------------------------------

CHECK = """#!/bin/sh
# A test tool of the project's own: every line of cases.txt is a case, `name right wrong`.
{
    echo '<testsuite>'
    while read -r name found wanted; do
        echo "<testcase classname='cases' name='$name'>"
        [ "$found" = "$wanted" ] || echo "<failure message='$found is not $wanted'>at check.sh:6: wrong</failure>"
        echo '</testcase>'
    done <cases.txt
    echo '</testsuite>'
} >report.xml
! grep -q failure report.xml
"""
SETTINGS = """
[[runners]]
kind = "command"
name = "cases"
command = ["sh", "check.sh"]
junit = "report.xml"

[[runners]]
kind = "command"
name = "lint"
command = "! grep -n TODO cases.txt"
"""


@pytest.fixture(params=["local", pytest.param("bare", marks=pytest.mark.docker)])
def shell_project(request: pytest.FixtureRequest, tmp_path: Path, make_project: MakeProject) -> Iterator[Project]:
    """A project that needs nothing but a shell: in a local box, and in a container without Python."""
    project = make_project(tmp_path, "docker" if request.param == "bare" else "local")
    project.environ.pop("WATCHTEST_BOX_SETUP", None)
    if request.param == "bare":
        project.environ["WATCHTEST_BOX_IMAGE"] = BARE
    project.save("check.sh", CHECK)
    project.save("watchtest.toml", SETTINGS)
    yield project
    end(project)


@pytest.mark.thorough
def test_commands_tell_their_tests_by_junit_or_exit_code(shell_project: Project) -> None:
    project = shell_project
    project.save("cases.txt", "one 1 1\ntwo 2 2\n")
    watcher = project.watch(limit_s=LIMIT_S)
    assert watcher.wait_for_verdict("passed")["known_counts"]["passed"] == 3
    assert "pip install" not in watcher.said
    project.save("cases.txt", "one 1 1\ntwo 3 2\n")
    red = watcher.wait_for_verdict("failed")
    assert failures(red) == {"cases::cases.two": ("check.sh", 6)}
    assert red["failures"][0]["message"] == "3 is not 2"
    project.save("cases.txt", "one 1 1\ntwo 2 2 TODO\n")
    red = watcher.wait_for_verdict("failed")
    assert {"lint::run"} <= {failure["id"] for failure in red["failures"]}
    asked = project.command("run", "--wait", "lint::run")
    assert asked.returncode == 1, asked.stdout + asked.stderr
    project.save("cases.txt", "one 1 1\n")
    green = watcher.wait_for_verdict("passed")
    assert green["known_counts"]["passed"] == 2
    watcher.must_be_tidy()


@pytest.mark.docker
@pytest.mark.thorough
def test_a_command_in_a_box_without_python_is_ended_by_its_limit_and_by_word(
    tmp_path: Path, make_project: MakeProject
) -> None:
    project = make_project(tmp_path, "docker")
    project.environ |= {
        "WATCHTEST_BOX_IMAGE": BARE,
        "WATCHTEST_RUNNER_TIMEOUT_S": "2",
        "WATCHTEST_RUNNER_GRACE_S": "0.5",
    }
    project.save("watchtest.toml", '[[runners]]\nkind = "command"\ncommand = "cat wait.txt; sleep $(cat wait.txt)"\n')
    project.save("wait.txt", "0\n")
    watcher = project.watch(limit_s=LIMIT_S)
    watcher.wait_for_verdict("passed")
    project.save("wait.txt", "1234\n")
    hung = watcher.wait_for_verdict("error")
    assert "longer than 2 s" in hung["failures"][0]["message"]
    assert not [line for line in project.box_processes() if "1234" in line]
    project.save("wait.txt", "0\n")
    watcher.wait_for_verdict("passed")
    watcher.must_be_tidy()
    end(project)


@pytest.mark.docker
@pytest.mark.thorough
def test_a_detected_runner_without_its_tool_is_reported_and_prevents_no_verdict(
    docker_project: Project,
) -> None:
    project = docker_project
    project.save("test_it.py", "def test_it():\n    assert 1\n")
    project.save("frontend/package.json", json.dumps({"devDependencies": {"vitest": "^3"}}))
    project.save("frontend/a.test.js", "import { test } from 'vitest'\ntest('a', () => {})\n")
    watcher = project.watch()
    watcher.wait_for_verdict("passed")
    assert "cannot run, although the project has tests for it" in watcher.output
    assert "vitest is not in node_modules" in watcher.output
    watcher.stop()
    project.save("watchtest.toml", '[[runners]]\nkind = "vitest"\nfolder = "frontend"\n[[runners]]\nkind = "pytest"\n')
    code, said = project.once()
    assert code == 4, "what was named has to run"
    assert "vitest" in said
