"""The command that runs unittest with our loader, executed by every Python on the path."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from support.pythons import pythons

from watchtest.agent.code.fingerprints import fingerprint_of
from watchtest.agent.in_unittest import unittest_main
from watchtest.core.model import Outcome, RunState
from watchtest.core.verdict import judge
from watchtest.runners.python import PytestReader
from watchtest.runners.runner import InvocationEnd
from watchtest.selection.recorded_rows import RecordingRows, parse_fingerprint

EVERYTHING = {
    "tests/__init__.py": "",
    "tests/test_plain.py": """
        import unittest

        class Plain(unittest.TestCase):
            def test_passes(self):
                pass
            def test_fails(self):
                self.assertEqual(1, 2, "one is not two")
            def test_raises(self):
                helper()
            @unittest.skip("not today")
            def test_is_skipped(self):
                raise AssertionError
            @unittest.expectedFailure
            def test_is_expected_to_fail(self):
                self.fail("as ever")
            @unittest.expectedFailure
            def test_should_have_failed(self):
                pass

        @unittest.skip("none of it")
        class Skipped(unittest.TestCase):
            def test_one(self):
                pass

        def helper():
            raise ValueError("from below")
    """,
    "tests/test_around.py": """
        import unittest

        class BrokenSetup(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                raise RuntimeError("no database")
            def test_one(self):
                pass
            def test_two(self):
                pass

        class SkippedSetup(unittest.TestCase):
            @classmethod
            def setUpClass(cls):
                raise unittest.SkipTest("no network")
            def test_one(self):
                pass

        class BrokenTeardown(unittest.TestCase):
            @classmethod
            def tearDownClass(cls):
                raise RuntimeError("cannot clean up")
            def test_one(self):
                pass
            def test_two(self):
                pass
    """,
    "tests/test_module.py": """
        import unittest

        def setUpModule():
            raise OSError("the module is broken")

        class InIt(unittest.TestCase):
            def test_one(self):
                pass
    """,
    "tests/test_async.py": """
        import asyncio, unittest

        class Async(unittest.IsolatedAsyncioTestCase):
            async def test_passes(self):
                await asyncio.sleep(0)
            async def test_fails(self):
                await asyncio.sleep(0)
                self.assertTrue(False)
    """,
    "tests/deeper/__init__.py": "",
    "tests/deeper/test_inherited.py": """
        from tests.test_base import Base

        class Child(Base):
            answer = 42
    """,
    "tests/test_base.py": """
        import unittest

        class Base(unittest.TestCase):
            answer = 41
            def test_answer(self):
                self.assertEqual(self.answer, 42)
    """,
}


@dataclass(frozen=True)
class Ended:
    code: int
    rows: list[dict[str, Any]]
    output: str
    reports: PytestReader

    @property
    def promised(self) -> set[str]:
        return self.reports.promised

    @property
    def outcomes(self) -> dict[str, str]:
        return {test: result.outcome.value for test, result in self.reports.results.items()}

    @property
    def state(self) -> RunState:
        return judge(self.reports.execution(InvocationEnd(self.code, output=self.output))).state

    def failure(self, test: str) -> Any:
        failure = self.reports.results[test].failure
        assert failure is not None
        return failure


def lay_out(root: Path, files: Mapping[str, str]) -> None:
    for path, content in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(dedent(content), encoding="utf-8")


def run(
    root: Path,
    *args: str,
    python: str = sys.executable,
    tests: list[str] | None = None,
    folder: str = "",
    record: bool = False,
) -> Ended:
    home = root.parent / "home"
    home.mkdir(exist_ok=True)
    options = {"python": python, "args": args, "tests": tests, "folder": folder, "record": record}
    order: dict[str, Any] = {"unittest": options, "cwd": str(root / folder)}
    unittest_main.complete(order, str(home), str(home / "running-test"))
    assert order["results"] == "pipe"
    results, given = os.pipe()
    stacks = os.open(os.devnull, os.O_WRONLY)
    env = {**os.environ, "WATCHTEST_RESULTS_FD": str(given), "WATCHTEST_STACKS_FD": str(stacks)}
    # Results go to a pipe; those of such a small run fit into its buffer.
    done = subprocess.run(
        order["argv"],
        cwd=order["cwd"],
        env=env,
        pass_fds=(given, stacks),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    os.close(given)
    os.close(stacks)
    with os.fdopen(results, encoding="ascii") as stream:
        rows = [json.loads(line) for line in stream]
    reports = PytestReader("unittest")
    reports.take(rows)
    return Ended(done.returncode, rows, done.stdout, reports)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("python", pythons(), ids=os.path.basename)
def test_every_kind_of_outcome_is_told_by_every_python(python: str, root: Path) -> None:
    lay_out(root, EVERYTHING)
    ended = run(root, python=python)
    assert ended.outcomes == {
        "tests/test_plain.py::Plain::test_passes": "passed",
        "tests/test_plain.py::Plain::test_fails": "failed",
        "tests/test_plain.py::Plain::test_raises": "failed",
        "tests/test_plain.py::Plain::test_is_skipped": "skipped",
        "tests/test_plain.py::Plain::test_is_expected_to_fail": "xfailed",
        "tests/test_plain.py::Plain::test_should_have_failed": "failed",
        "tests/test_plain.py::Skipped::test_one": "skipped",
        "tests/test_around.py::BrokenSetup::test_one": "error",
        "tests/test_around.py::BrokenSetup::test_two": "error",
        "tests/test_around.py::SkippedSetup::test_one": "skipped",
        "tests/test_around.py::BrokenTeardown::test_one": "passed",
        "tests/test_around.py::BrokenTeardown::test_two": "error",
        "tests/test_module.py::InIt::test_one": "error",
        "tests/test_async.py::Async::test_passes": "passed",
        "tests/test_async.py::Async::test_fails": "failed",
        "tests/test_base.py::Base::test_answer": "failed",
        # As in pytest, a class that a module imports is found there, too.
        "tests/deeper/test_inherited.py::Base::test_answer": "failed",
        "tests/deeper/test_inherited.py::Child::test_answer": "passed",
    }
    assert ended.promised == set(ended.outcomes)
    assert (ended.code, ended.state) == (1, RunState.FAILED)
    fails = ended.failure("tests/test_plain.py::Plain::test_fails")
    assert (fails.where.file, fails.where.line, fails.kind) == ("tests/test_plain.py", 8, "AssertionError")
    assert "one is not two" in fails.message
    assert fails.source_line == 'self.assertEqual(1, 2, "one is not two")'
    raises = ended.failure("tests/test_plain.py::Plain::test_raises")
    assert (raises.where.line, raises.crash.line, raises.message) == (27, 27, "ValueError: from below")
    unexpected = ended.failure("tests/test_plain.py::Plain::test_should_have_failed")
    assert unexpected.where.file == "tests/test_plain.py"
    broken = ended.failure("tests/test_around.py::BrokenSetup::test_two")
    assert (broken.where.line, broken.message) == (7, "setUpClass: RuntimeError: no database")
    assert ended.failure("tests/test_around.py::BrokenTeardown::test_two").message.startswith("tearDownClass: ")
    assert ended.failure("tests/test_module.py::InIt::test_one").where.line == 5


def test_the_ids_and_outcomes_are_those_of_pytest(root: Path) -> None:
    lay_out(root, EVERYTHING)
    report = root.parent / "report.py"
    report.write_text(
        dedent("""
        seen = {}
        def pytest_runtest_logreport(report):
            if report.failed:
                seen[report.nodeid] = "failed" if report.when == "call" else "error"
            elif report.skipped:
                seen[report.nodeid] = "xfailed" if hasattr(report, "wasxfail") else "skipped"
            elif report.when == "call":
                seen.setdefault(report.nodeid, "passed")
        def pytest_sessionfinish():
            import json
            open("../seen.json", "w").write(json.dumps(seen))
    """),
        encoding="utf-8",
    )
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "report", "-p", "no:cacheprovider", "-c", os.devnull]
    env = {**os.environ, "PYTHONPATH": str(root.parent), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run([*argv, "--rootdir", str(root)], cwd=root, env=env, capture_output=True, timeout=60, check=False)
    assert run(root).outcomes == json.loads((root.parent / "seen.json").read_text())


def test_a_failed_subtest_is_its_tests_failure_and_says_which(root: Path) -> None:
    lay_out(
        root,
        {
            "test_sub.py": """
                import unittest

                class Sub(unittest.TestCase):
                    def test_many(self):
                        for number in range(4):
                            with self.subTest(number=number):
                                self.assertEqual(number % 2, 0)
                    def test_good(self):
                        with self.subTest("fine"):
                            pass
            """
        },
    )
    ended = run(root)
    assert ended.outcomes == {"test_sub.py::Sub::test_many": "failed", "test_sub.py::Sub::test_good": "passed"}
    failure = ended.failure("test_sub.py::Sub::test_many")
    assert failure.message == "(number=1) AssertionError: 1 != 0 (and 1 more)"
    assert failure.where.line == 8


def test_a_module_that_cannot_be_imported_is_a_collection_error_with_its_place(root: Path) -> None:
    lay_out(
        root,
        {
            "test_good.py": "import unittest\nclass Good(unittest.TestCase):\n    def test_it(self): pass\n",
            "test_syntax.py": "import unittest\n\ndef broken(:\n    pass\n",
            "test_import.py": "import unittest\nimport product\n",
            "product.py": "x = 1\nimport no_such_module_anywhere\n",
        },
    )
    ended = run(root)
    errors = {row["test"]: row["failure"] for row in ended.rows if row["k"] == "collection_error"}
    assert set(errors) == {"test_syntax.py", "test_import.py"}
    assert (errors["test_syntax.py"]["file"], errors["test_syntax.py"]["line"]) == ("test_syntax.py", 3)
    assert errors["test_syntax.py"]["kind"] == "SyntaxError"
    failure = errors["test_import.py"]
    assert (failure["file"], failure["line"], failure["crash"]) == (
        "test_import.py",
        2,
        {"file": "product.py", "line": 2},
    )
    assert failure["message"].startswith("ModuleNotFoundError: No module named 'no_such_module_anywhere'")
    assert ended.outcomes == {"test_good.py::Good::test_it": "passed"}
    assert ended.state is RunState.ERROR


def test_a_selection_runs_what_it_names_and_imports_nothing_else(root: Path) -> None:
    lay_out(root, {**EVERYTHING, "tests/test_other.py": "raise SystemError('imported')\n"})
    wanted = ["tests/test_plain.py::Plain::test_passes", "tests/test_async.py::Async::test_passes"]
    ended = run(root, tests=[*wanted, "tests/test_gone.py::Gone::test_it"])
    assert ended.outcomes == dict.fromkeys(wanted, "passed")
    assert ended.promised == set(wanted)
    assert (ended.code, ended.state) == (0, RunState.PASSED)


def test_a_selected_file_stands_for_all_of_its_tests(root: Path) -> None:
    lay_out(root, EVERYTHING)
    ended = run(root, tests=["tests/test_async.py"])
    assert set(ended.outcomes) == {"tests/test_async.py::Async::test_passes", "tests/test_async.py::Async::test_fails"}


def test_a_selected_test_that_another_module_loads_is_found(root: Path) -> None:
    lay_out(
        root,
        {
            "checks.py": "import unittest\nclass Check(unittest.TestCase):\n    def test_it(self): pass\n",
            "test_all.py": """
                import checks
                def load_tests(loader, tests, pattern):
                    tests.addTests(loader.loadTestsFromTestCase(checks.Check))
                    return tests
            """,
        },
    )
    everything = run(root)
    assert everything.outcomes == {"checks.py::Check::test_it": "passed"}
    assert run(root, tests=["checks.py::Check::test_it"]).outcomes == everything.outcomes


def test_load_tests_and_doctests_and_functions_have_ids_of_their_own(root: Path) -> None:
    lay_out(
        root,
        {
            "product.py": 'def one():\n    """\n    >>> one()\n    2\n    """\n    return 1\n',
            "test_load.py": """
                import doctest, unittest, product
                def check():
                    assert False, "no"
                class Kept(unittest.TestCase):
                    def test_it(self): pass
                def load_tests(loader, tests, pattern):
                    tests.addTests(doctest.DocTestSuite(product))
                    tests.addTest(unittest.FunctionTestCase(check))
                    return tests
            """,
            "test_broken.py": "def load_tests(loader, tests, pattern):\n    raise KeyError('load')\n",
        },
    )
    ended = run(root)
    assert ended.outcomes == {
        "test_load.py::Kept::test_it": "passed",
        "product.py::product.one": "failed",
        "test_load.py::check": "failed",
    }
    [error] = [row for row in ended.rows if row["k"] == "collection_error"]
    assert (error["test"], error["failure"]["line"], error["failure"]["kind"]) == ("test_broken.py", 2, "KeyError")


def test_a_folder_of_its_own_keeps_ids_relative_to_the_workspace(root: Path) -> None:
    lay_out(root, {f"services/billing/{path}": content for path, content in EVERYTHING.items()})
    wanted = "services/billing/tests/test_plain.py::Plain::test_fails"
    ended = run(root, folder="services/billing", tests=[wanted])
    assert ended.outcomes == {wanted: "failed"}
    assert ended.failure(wanted).where.file == "services/billing/tests/test_plain.py"


def test_no_tests_are_told_by_5(root: Path) -> None:
    lay_out(root, {"product.py": "", "test_skipped.py": "import unittest\nraise unittest.SkipTest('all of it')\n"})
    ended = run(root)
    assert (ended.code, ended.promised, ended.state) == (5, set(), RunState.NO_TESTS)


def test_options_of_discovery_and_of_the_run_are_unittests_own(root: Path) -> None:
    lay_out(
        root,
        {
            "checks/check_it.py": """
                import unittest
                class Check(unittest.TestCase):
                    def test_a(self):
                        print("what it said")
                        self.fail()
                    def test_b(self): pass
            """,
        },
    )
    ended = run(root, "-s", "checks", "-p", "check*.py", "--failfast", "--buffer")
    assert ended.outcomes == {"checks/check_it.py::Check::test_a": "failed"}
    assert ended.promised == {"checks/check_it.py::Check::test_a", "checks/check_it.py::Check::test_b"}
    assert "what it said" in ended.failure("checks/check_it.py::Check::test_a").text
    assert ended.rows[-1]["withdrawn"] == "stopped at the first failure (--failfast)"
    assert ended.state is RunState.FAILED
    assert run(root, "-s", "nowhere").state is RunState.ERROR
    assert run(root, "--no-such-option").state is RunState.ERROR


def test_a_process_that_ends_in_a_test_is_no_green_and_names_it(root: Path) -> None:
    lay_out(
        root,
        {
            "test_exit.py": """
                import os, unittest
                class Exit(unittest.TestCase):
                    def test_a(self): pass
                    def test_b(self): os._exit(0)
            """,
        },
    )
    ended = run(root)
    assert ended.rows[-1] == {"k": "start", "test": "test_exit.py::Exit::test_b"}
    assert ended.state is RunState.ERROR


def test_the_tests_see_what_python_m_unittest_shows_them(root: Path) -> None:
    lay_out(
        root,
        {
            "test_surroundings.py": """
                import json, os, sys, unittest
                class Surroundings(unittest.TestCase):
                    def test_it(self):
                        modules = sorted(name for name in sys.modules if "watchtest" in name or name == "pytest")
                        ours = [name for name in os.environ if name.startswith("WATCHTEST_") and name.endswith("_FD")]
                        seen = {"path": sys.path, "argv": sys.argv, "modules": modules, "variables": ours}
                        print(json.dumps(seen))
            """,
        },
    )
    plain = subprocess.run(
        [sys.executable, "-m", "unittest", "discover"], cwd=root, capture_output=True, text=True, timeout=60
    )
    theirs = json.loads(plain.stdout)
    ours = json.loads(next(line for line in run(root).output.splitlines() if line.startswith("{")))
    assert all(name.startswith("watchtest_agent") for name in ours.pop("modules"))
    theirs.pop("modules")
    assert ours == theirs


def test_a_fork_of_a_test_has_no_say(root: Path) -> None:
    lay_out(
        root,
        {
            "test_fork.py": """
                import os, unittest
                class Fork(unittest.TestCase):
                    def test_it(self):
                        if os.fork() == 0:
                            raise AssertionError("in the child")
                        os.wait()
            """,
        },
    )
    ended = run(root)
    assert ended.reports.results["test_fork.py::Fork::test_it"].outcome is Outcome.PASSED
    assert [row["k"] for row in ended.rows].count("finish") == 1


def test_the_stacks_of_a_hanging_test_are_told_when_they_are_asked_for(root: Path) -> None:
    lay_out(
        root,
        {
            "test_hang.py": """
                import os, signal, subprocess, time, unittest
                class Hang(unittest.TestCase):
                    def test_it(self):
                        asking = f"sleep 0.1; kill -{int(signal.SIGRTMIN) + 5} {os.getpid()}"
                        subprocess.Popen(["sh", "-c", asking])
                        time.sleep(1)
            """,
        },
    )
    home = root.parent
    order: dict[str, Any] = {
        "unittest": {"python": sys.executable, "args": (), "tests": None, "folder": "", "record": False},
        "cwd": str(root),
    }
    unittest_main.complete(order, str(home), str(home / "running-test"))
    null, stacks = os.open(os.devnull, os.O_WRONLY), os.open(home / "stacks", os.O_WRONLY | os.O_CREAT)
    env = {**os.environ, "WATCHTEST_RESULTS_FD": str(null), "WATCHTEST_STACKS_FD": str(stacks)}
    done = subprocess.run(
        order["argv"], cwd=root, env=env, pass_fds=(null, stacks), capture_output=True, text=True, timeout=60
    )
    os.close(null)
    os.close(stacks)
    assert done.returncode == 0, done.stderr
    assert re.search(r'test_hang\.py", line \d in test_it', (home / "stacks").read_text())


def test_what_tests_touch_is_recorded_with_what_is_set_up_around_them(root: Path) -> None:
    lay_out(
        root,
        {
            "shop.py": """
                def price(): return 3
                def open_shop(): return price()
                def stock(): return open("stock.txt").read()
            """,
            "stock.txt": "7",
            "test_shop.py": """
                import unittest, shop
                class Shop(unittest.TestCase):
                    @classmethod
                    def setUpClass(cls): cls.price = shop.open_shop()
                    def test_price(self): self.assertEqual(self.price, 3)
                    def test_stock(self): self.assertEqual(shop.stock(), "7")
            """,
            "test_other.py": """
                import unittest
                class Other(unittest.TestCase):
                    def test_it(self): pass
            """,
        },
    )
    ended = run(root, record=True)
    assert ended.code == 0, ended
    recordings = RecordingRows()
    recordings.take(ended.rows)
    prints = {file.name: parse_fingerprint(fingerprint_of(str(root), file.name)) for file in root.glob("*.py")}
    recorded = recordings.recorded(prints)
    assert recorded.tests.keys() == {
        "test_shop.py::Shop::test_price",
        "test_shop.py::Shop::test_stock",
        "test_other.py::Other::test_it",
    }
    assert recorded.tests["test_shop.py::Shop::test_stock"].files == {"stock.txt"}
    assert ("shop.py", "stock") in recorded.tests["test_shop.py::Shop::test_stock"].units
    assert recorded.tests["test_shop.py::Shop::test_price"].units == {("test_shop.py", "Shop.test_price")}
    around = recorded.scopes["file:test_shop.py"]
    shared = [recorded.scopes[key].units for key in around.uses if key in recorded.scopes]
    assert any(("shop.py", "price") in units for units in (around.units, *shared))
    assert recorded.modules["shop"] == "shop.py"
