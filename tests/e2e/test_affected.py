"""A save runs the tests that it can affect, end to end: which tests, why, and what is confirmed."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from support.watcher_process import Project, Status, Watcher

SHOP = """
def price(basket):
    return sum(basket)


def label(name):
    return name.title()


RATE = 2


def tax(amount):
    return amount * RATE
"""
TESTS = """
import shop


def test_price():
    assert shop.price([1, 2]) == 3


def test_label():
    assert shop.label("an apple") == "An Apple"


def test_tax():
    assert shop.tax(2) == 4
"""
DATA = """
from pathlib import Path


def test_data():
    assert Path("stock.txt").read_text() == "7"
"""
PRICE, LABEL, TAX = (f"test_shop.py::test_{name}" for name in ("price", "label", "tax"))


def begin(project: Project, **env: str) -> Watcher:
    project.save("shop.py", SHOP)
    project.save("test_shop.py", TESTS)
    project.save("test_data.py", DATA)
    project.save("stock.txt", "7")
    watcher = project.watch(env=env)
    watcher.wait_for_verdict("passed")
    return watcher


def ran(project: Project) -> set[str]:
    """Return the tests of the last run according to the history."""
    shown = project.command("history", "show", "last", "--tests", "--json")
    assert shown.returncode == 0, shown.stderr
    return {row["test"] for row in json.loads(shown.stdout)["results"]}


def after_a_save(project: Project, watcher: Watcher, path: str, content: str, verdict: str = "passed") -> Status:
    project.save(path, content)
    return watcher.wait_for_verdict(verdict)


def test_a_save_runs_the_tests_that_entered_what_changed_and_no_others(project: Project) -> None:
    watcher = begin(project)
    status = after_a_save(project, watcher, "shop.py", SHOP.replace("sum(basket)", "sum(basket) + 0"))
    assert ran(project) == {PRICE}
    assert status["scope"]["kind"] == "affected"
    assert status["scope"]["selected"] == 1
    assert status["scope"]["wave"] == 2
    assert status["scope"]["because"] == "shop.py: price changed"
    assert status["known_counts"]["passed"] == 4

    status = after_a_save(project, watcher, "shop.py", SHOP.replace("sum(basket)", "0"), "failed")
    assert [failure["id"] for failure in status["failures"]] == [PRICE]

    # A red test runs again after any change until it has passed.
    status = after_a_save(project, watcher, "stock.txt", "8", "failed")
    assert ran(project) == {PRICE, "test_data.py::test_data"}
    assert len(status["failures"]) == 2
    project.save("stock.txt", "7")
    status = after_a_save(project, watcher, "shop.py", SHOP)
    assert status["known_counts"] | {"skipped": 0} == status["known_counts"] | {"passed": 4, "failed": 0}
    watcher.must_be_tidy()


@pytest.mark.parametrize("kind", ["local"])
def test_what_changes_nothing_that_runs_runs_nothing_and_is_green_all_the_same(project: Project) -> None:
    watcher = begin(project)
    status = after_a_save(project, watcher, "shop.py", f"# A shop.\n\n\n{SHOP}")
    assert status["scope"]["selected"] == 0
    assert status["code"]["tree"] == project.tree_id()
    after_a_save(project, watcher, "notes.md", "Buy apples.")
    assert "passed 4 tests, none of them run" in watcher.output
    assert project.command("status").returncode == 0
    watcher.must_be_tidy()


@pytest.mark.parametrize("kind", ["local"])
def test_what_runs_at_import_concerns_all_who_can_reach_it(project: Project) -> None:
    watcher = begin(project)
    status = after_a_save(project, watcher, "shop.py", SHOP.replace("RATE = 2", "RATE = 3"), "failed")
    assert ran(project) == {PRICE, LABEL, TAX}
    assert [failure["id"] for failure in status["failures"]] == [TAX]
    watcher.must_be_tidy()


@pytest.mark.docker
def test_new_tests_and_new_files_of_tests_run_and_deleted_ones_are_forgotten(docker_project: Project) -> None:
    project = docker_project
    watcher = begin(project)
    status = after_a_save(project, watcher, "test_more.py", "def test_more():\n    assert False\n", "failed")
    assert ran(project) == {"test_more.py::test_more"}
    (project.root / "test_more.py").unlink()
    status = watcher.wait_for_verdict("passed")
    assert status["known_counts"]["passed"] == 4
    more = TESTS + "\n\ndef test_another():\n    assert shop.price([]) == 1\n"
    status = after_a_save(project, watcher, "test_shop.py", more, "failed")
    assert [failure["id"] for failure in status["failures"]] == ["test_shop.py::test_another"]
    watcher.must_be_tidy()


@pytest.mark.parametrize("kind", ["local"])
def test_a_test_that_fails_only_behind_a_link_is_red_like_under_plain_pytest(project: Project) -> None:
    project.save("real/test_old.py", "def test_old():\n    pass\n")
    (project.root / "alias").symlink_to("real")
    (project.root / "real" / "test_file.py").symlink_to("../code.py")
    project.save("code.py", "X = 1\n")
    watcher = begin(project)
    names_itself = "def test_new(request):\n    assert request.node.nodeid.startswith('real/')\n"
    status = after_a_save(project, watcher, "real/test_new.py", names_itself, "failed")
    assert [failure["id"] for failure in status["failures"]] == ["alias/test_new.py::test_new"]
    assert ran(project) == {"alias/test_new.py::test_new", "real/test_new.py::test_new"}
    (project.root / "real" / "test_new.py").unlink()
    status = watcher.wait_for_verdict("passed")
    assert status["known_counts"]["passed"] == 6
    status = after_a_save(project, watcher, "code.py", names_itself, "failed")
    assert [failure["id"] for failure in status["failures"]] == ["alias/test_file.py::test_new"]
    watcher.must_be_tidy()


@pytest.mark.parametrize("kind", ["local"])
def test_after_a_file_that_does_not_parse_only_what_changed_since_the_last_whole_verdict_runs(project: Project) -> None:
    watcher = begin(project)
    after_a_save(project, watcher, "test_shop.py", TESTS + "\n\ndef test_half(\n", "error")
    after_a_save(project, watcher, "test_shop.py", TESTS)
    assert "test_data.py::test_data" not in ran(project)
    watcher.must_be_tidy()


@pytest.mark.docker
def test_the_next_watcher_goes_on_with_what_is_known_and_tests_what_changed_in_between(docker_project: Project) -> None:
    project = docker_project
    watcher = begin(project)
    watcher.stop()
    project.save("shop.py", SHOP.replace("name.title()", "name.upper()"))
    watcher = project.watch()
    status = watcher.wait_for_verdict("failed")
    assert "selected 1 test (shop.py: label changed)" in watcher.output
    assert [failure["id"] for failure in status["failures"]] == [LABEL]
    assert status["known_counts"]["passed"] == 3
    watcher.must_be_tidy()


@pytest.mark.parametrize("kind", ["local"])
def test_why_tells_what_a_test_touches_and_who_depends_on_a_file(project: Project) -> None:
    watcher = begin(project)
    after_a_save(project, watcher, "shop.py", SHOP.replace("sum(basket)", "sum(basket) + 0"))
    test = project.command("why", PRICE)
    assert test.returncode == 0, test.stderr
    assert "shop.py: price changed" in test.stdout
    assert re.search(r"shop\.py: price$", test.stdout, re.MULTILINE)
    assert "was not affected" in project.command("why", LABEL).stdout
    file = json.loads(project.command("why", "shop.py", "--json").stdout)
    assert file["functions"]["label"]["tests"] == [LABEL]
    assert file["reached_by"]["count"] == 3
    data = project.command("why", "stock.txt").stdout
    assert "read by test_data.py::test_data" in data
    assert project.command("why").stdout.splitlines() == ["1 of 4 tests, because", "  shop.py: price changed"]
    nobody = project.command("why", "nowhere.py")
    assert nobody.returncode == 2
    assert "nothing is known about nowhere.py" in nobody.stderr
    watcher.stop()
    assert "no watcher is running" in project.command("why", PRICE).stdout
    watcher.must_be_tidy()


HIDDEN = """
from pathlib import Path


def test_hidden():
    assert Path({file!r}).read_text() == "1"
"""


@pytest.mark.parametrize("kind", ["local"])
def test_an_audit_finds_what_a_selection_has_left_out_and_owns_up(project: Project) -> None:
    outside = project.around / "outside"
    outside.write_text("1")
    project.save("test_hidden.py", HIDDEN.format(file=str(outside)))
    watcher = begin(project, WATCHTEST_SELECTION_AUDIT_RUNS="2")
    outside.write_text("2")  # it is outside the workspace, so it is not watched
    after_a_save(project, watcher, "shop.py", f"# A shop.\n{SHOP}")
    project.save("shop.py", SHOP.replace("sum(basket)", "sum(basket) + 0"))
    watcher.wait_for_words("to check that the selections left nothing out")
    watcher.wait_for_words("failed 1 of 5 tests")
    status = watcher.wait_for_verdict("failed")
    assert [failure["id"] for failure in status["failures"]] == ["test_hidden.py::test_hidden"]
    assert "a bug in watchtest" in watcher.output.lower()
    (file,) = Path(project.root, ".watchtest").glob("missed-*.json")
    kept = json.loads(file.read_text())
    assert set(kept["missed"]) == {"test_hidden.py::test_hidden"}
    assert kept["selections"][0]["changed"] == ["shop.py"]
    watcher.must_be_tidy()


@pytest.mark.parametrize("kind", ["local"])
def test_a_rule_of_the_user_states_a_dependency_that_cannot_be_observed(project: Project) -> None:
    project.save("watchtest.toml", '[watch]\nrules = ["*.bin -> test_data.py"]\n')
    project.save("hidden.bin", "123")
    watcher = begin(project)
    status = after_a_save(project, watcher, "hidden.bin", "12345")
    assert ran(project) == {"test_data.py::test_data"}
    assert "*.bin -> test_data.py" in status["scope"]["because"]
    watcher.must_be_tidy()


ORDERED = """
import shop

BASKET = []


def test_fills():
    BASKET.append(1)


def test_counts():
    assert shop.price(BASKET) == 1
"""


@pytest.mark.parametrize("kind", ["local"])
@pytest.mark.thorough
def test_tests_that_count_on_one_another_are_not_called_red_for_being_alone(project: Project) -> None:
    project.save("test_ordered.py", ORDERED)
    watcher = begin(project)
    project.save("shop.py", SHOP.replace("sum(basket)", "sum(basket) + 0"))
    watcher.wait_for_words("passes after others of its file")
    status = watcher.wait_for_verdict("passed")
    assert status["known_counts"]["passed"] == 6
    after_a_save(project, watcher, "shop.py", SHOP)
    assert {"test_ordered.py::test_fills", "test_ordered.py::test_counts"} <= ran(project)
    assert watcher.output.count("FAILED") == 1
    status = after_a_save(project, watcher, "shop.py", SHOP.replace("sum(basket)", "5"), "failed")
    assert len(status["failures"]) == 2
    watcher.must_be_tidy()
