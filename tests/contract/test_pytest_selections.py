"""Which tests pytest runs, and what is reported for a test whose process has died. Only the agent is involved."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.warm_bench import WarmBench, local_warm_bench

TESTS = {
    "tests/test_a.py": """\
import os, pytest
class TestInside:
    def test_in(self): pass
@pytest.mark.parametrize('n', ['1', '::2'])
def test_many(n): pass
def test_leaves():
    if 'LEAVE' in os.environ: os._exit(3)
""",
    "tests/deep/test_b.py": "def test_b(): pass\n",
}
INSIDE = "tests/test_a.py::TestInside::test_in"
MANY = {"tests/test_a.py::test_many[1]", "tests/test_a.py::test_many[::2]"}
LEAVES = "tests/test_a.py::test_leaves"
DEEP = "tests/deep/test_b.py::test_b"


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[WarmBench]:
    with local_warm_bench(tmp_path) as bench:
        bench.put(TESTS)
        yield bench


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        (("tests/test_a.py",), {INSIDE, *MANY, LEAVES}),
        (("tests/test_a.py::TestInside",), {INSIDE}),
        (("tests/test_a.py::test_many",), MANY),
        (("tests/test_a.py::test_many[1]",), {"tests/test_a.py::test_many[1]"}),
        (("tests/deep", INSIDE), {DEEP, INSIDE}),
        ((".",), {INSIDE, *MANY, LEAVES, DEEP}),
        (("tests/test_a.py::test_man",), set()),
        (("tests/gone",), set()),
    ],
)
def test_tests_can_be_asked_for_by_what_they_lie_in(
    bench: WarmBench, asked: tuple[str, ...], expected: set[str]
) -> None:
    seen = bench.cold(*asked)
    assert seen.outcomes == dict.fromkeys(expected, "passed")
    assert seen.end.exit_code == (0 if expected else 5)


@pytest.mark.thorough
def test_a_test_that_ends_its_worker_is_red_by_its_name(bench: WarmBench) -> None:
    bench.args = ("-n", "1")
    bench.env["LEAVE"] = "1"
    seen = bench.cold()
    assert seen.outcomes == {**dict.fromkeys({INSIDE, *MANY, DEEP}, "passed"), LEAVES: "error"}
    assert "crashed while running" in seen.failure(LEAVES)
    assert seen.end.current == ""


def test_a_test_that_fails_before_any_of_its_code_runs_is_shown_where_it_begins(bench: WarmBench) -> None:
    bench.put({"test_lacking.py": "def test_good(): pass\n\ndef test_lacks(no_such_fixture): pass\n"})
    seen = bench.cold("test_lacking.py")
    (failure,) = [
        row["failure"] for row in seen.rows if row.get("test") == "test_lacking.py::test_lacks" and "failure" in row
    ]
    assert (failure["file"], failure["line"]) == ("test_lacking.py", 3)
    assert failure["message"] == "fixture 'no_such_fixture' not found"


IGNORED = {
    "a folder's conftest.py ignores it": {"tests/conftest.py": "collect_ignore = ['test_a.py']\n"},
    "its folder is not searched": {"pytest.ini": "[pytest]\nnorecursedirs = tests\n"},
    "it is outside of testpaths": {
        "pytest.ini": "[pytest]\ntestpaths = other\n",
        "other/test_c.py": "def test_c(): pass\n",
    },
    "its name is not one of a file of tests": {"pytest.ini": "[pytest]\npython_files = check_*.py\n"},
    "an option ignores it": {"pytest.ini": "[pytest]\naddopts = --ignore=tests/test_a.py\n"},
}


@pytest.mark.parametrize("files", IGNORED.values(), ids=IGNORED)
def test_a_changed_file_that_pytest_alone_would_not_collect_is_not_run(bench: WarmBench, files: dict[str, str]) -> None:
    bench.put(TESTS | files)
    assert INSIDE not in bench.cold().outcomes
    assert bench.cold("tests/test_a.py").outcomes == {}


def test_a_selected_file_of_a_package_runs_with_the_fixtures_of_the_package(bench: WarmBench) -> None:
    bench.put(
        {
            "top/__init__.py": "NAME = 'top'\n",
            "top/conftest.py": "import pytest\n@pytest.fixture(scope='package')\ndef made(): return 'made'\n",
            "top/sub/__init__.py": "",
            "top/sub/test_it.py": "from .. import NAME\ndef test_it(made): assert (made, NAME) == ('made', 'top')\n",
            "top/sub/test_other.py": "raise OSError\n",
        }
    )
    assert bench.cold("top/sub/test_it.py::test_it").outcomes == {"top/sub/test_it.py::test_it": "passed"}
