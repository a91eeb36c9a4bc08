"""Real toolchains on real projects: go, cargo, vitest, jest and commands, each green, red and broken.

The invocations of a runner are executed on this machine; test_runners_in_boxes covers boxes.
"""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from support.needs import must_be_marked
from support.node_packages import link_packages
from support.order_executor import carry_out
from support.samples import SAMPLES, tool_of

from watchtest.core.model import Execution, Failure, Outcome, RunState, StopReason
from watchtest.core.verdict import judge
from watchtest.errors import RunnerError
from watchtest.runners.cargo.cargo_runner import CargoRunner
from watchtest.runners.command import CommandRunner
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.javascript.javascript_runner import JestRunner, VitestRunner
from watchtest.runners.runner import InvocationEnd

IN_FOLDER = "backend"

Sample = Callable[[str], Path]


@pytest.fixture
def sample(request: pytest.FixtureRequest, tmp_path: Path) -> Sample:
    """A copy of a sample in a workspace with a space in its name; needs the tool that runs it."""

    def copy(name: str, folder: str = "") -> Path:
        tool = tool_of(name)
        must_be_marked(request, tool)
        workspace = tmp_path / "work space"
        shutil.copytree(SAMPLES / name, workspace / folder)
        if tool == "npm":
            link_packages(SAMPLES / name, workspace)
        return workspace

    return copy


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new, 1), encoding="utf-8")


def outcomes(execution: Execution) -> dict[str, str]:
    return {test: result.outcome.value for test, result in execution.results.items()}


def failure(execution: Execution, test: str) -> Failure:
    found = execution.results[test].failure
    assert found is not None
    return found


def place(found: Failure) -> tuple[str, int]:
    assert found.where is not None
    return found.where.file, found.where.line


def the_error(execution: Execution) -> tuple[str, Failure]:
    [error] = execution.collection_errors
    assert error.failure is not None
    return error.test, error.failure


# -- go --------------------------------------------------------------------------------------------

GO_GREEN = {
    ".::TestTotal": "passed",
    ".::TestNothing": "skipped",
    "internal/stock::TestAdd": "passed",
    "internal/stock::TestAdd/a_pear": "passed",
    "internal/stock::TestAdd/fig_(dried)": "passed",
    "internal/stock::TestEmpty": "passed",
}


@pytest.mark.go
def test_go_is_green_then_red_at_the_right_line(sample: Sample) -> None:
    workspace = sample("go")
    green = carry_out(GoRunner(), workspace)
    assert outcomes(green) == GO_GREEN
    assert judge(green).state is RunState.PASSED
    edit(workspace / "price.go", "price * count", "price + count")
    edit(workspace / "internal/stock/stock.go", "stock[name]++", "stock[name] += len(name) - 5")
    red = carry_out(GoRunner(), workspace)
    assert judge(red).state is RunState.FAILED
    assert {test for test, outcome in outcomes(red).items() if outcome == "failed"} == {
        ".::TestTotal",
        "internal/stock::TestAdd",
        "internal/stock::TestAdd/fig_(dried)",
    }
    assert place(failure(red, ".::TestTotal")) == ("price_test.go", 8)
    assert failure(red, ".::TestTotal").message == "Total(3, 2) = 5, want 6"
    assert place(failure(red, "internal/stock::TestAdd/fig_(dried)")) == ("internal/stock/stock_test.go", 11)
    assert failure(red, "internal/stock::TestAdd").message == "1 subtest failed: TestAdd/fig_(dried)"


@pytest.mark.go
def test_go_runs_at_least_what_is_selected(sample: Sample) -> None:
    workspace = sample("go")
    alone = carry_out(GoRunner(), workspace, ("internal/stock::TestAdd/fig_(dried)",))
    assert outcomes(alone) == {
        "internal/stock::TestAdd": "passed",
        "internal/stock::TestAdd/fig_(dried)": "passed",
    }
    two = carry_out(GoRunner(), workspace, (".::TestTotal", "internal/stock::TestEmpty"))
    assert set(outcomes(two)) == {".::TestTotal", "internal/stock::TestEmpty"}
    package = carry_out(GoRunner(), workspace, ("internal/stock",))
    assert set(outcomes(package)) == {test for test in GO_GREEN if test.startswith("internal/stock")}


@pytest.mark.go
def test_go_in_a_folder_names_everything_from_the_top_of_the_workspace(sample: Sample, tmp_path: Path) -> None:
    workspace = sample("go")
    shutil.copytree(workspace, tmp_path / "outer" / IN_FOLDER)
    runner = GoRunner(folder=IN_FOLDER)
    edit(tmp_path / "outer" / IN_FOLDER / "price.go", "price * count", "price + count")
    red = carry_out(runner, tmp_path / "outer", (f"{IN_FOLDER}::TestTotal",))
    assert outcomes(red) == {f"{IN_FOLDER}::TestTotal": "failed"}
    assert place(failure(red, f"{IN_FOLDER}::TestTotal")) == (f"{IN_FOLDER}/price_test.go", 8)
    assert all(runner.claims(test) for test in red.results)


@pytest.mark.go
def test_what_go_cannot_build_is_an_error_at_its_line_and_other_packages_run(sample: Sample) -> None:
    workspace = sample("go")
    edit(workspace / "internal/stock/stock.go", "stock[name]++", "stock[name] = thing")
    broken = carry_out(GoRunner(), workspace)
    test, why = the_error(broken)
    assert (test, place(why), why.column) == ("internal/stock", ("internal/stock/stock.go", 14), 16)
    assert why.message == "undefined: thing"
    assert outcomes(broken)[".::TestTotal"] == "passed"
    assert judge(broken).state is RunState.ERROR


@pytest.mark.go
def test_a_panic_in_go_names_its_test_and_place(sample: Sample) -> None:
    workspace = sample("go")
    edit(workspace / "internal/stock/stock.go", "return Stock{}", "return nil")
    broken = carry_out(GoRunner(), workspace)
    found = failure(broken, "internal/stock::TestAdd/a_pear")
    assert (found.kind, found.message) == ("panic", "assignment to entry in nil map")
    assert place(found) == ("internal/stock/stock_test.go", 9)
    assert found.crash is not None
    assert (found.crash.file, found.crash.line) == ("internal/stock/stock.go", 14)
    judgement = judge(broken)
    assert judgement.state is RunState.ERROR  # the tests after it did not run
    assert "panic in internal/stock::TestAdd" in judgement.reason
    assert not broken.has_collected


@pytest.mark.go
def test_a_process_that_go_lost_names_the_test_that_ran(sample: Sample) -> None:
    workspace = sample("go")
    edit(workspace / "price_test.go", 'import "testing"', 'import (\n"os"\n"syscall"\n"testing"\n)')
    edit(workspace / "price_test.go", 't.Log("two things")', "syscall.Kill(os.Getpid(), syscall.SIGKILL)")
    broken = carry_out(GoRunner(), workspace)
    assert outcomes(broken)[".::TestTotal"] == "error"
    assert failure(broken, ".::TestTotal").kind == "crashed"
    assert judge(broken).state is RunState.ERROR
    assert "::TestTotal" in judge(broken).reason


@pytest.mark.go
def test_go_says_where_a_test_hung(sample: Sample) -> None:
    workspace = sample("go")
    edit(workspace / "price_test.go", 't.Log("two things")', "select {}")
    broken = carry_out(GoRunner(timeout_s=2), workspace, (".::TestTotal",))
    assert broken.stopped is StopReason.TIMED_OUT
    assert place(failure(broken, ".::TestTotal")) == ("price_test.go", 6)
    assert "goroutine" in failure(broken, ".::TestTotal").text
    assert "test timed out after 1s" in broken.reason


@pytest.mark.go
def test_a_go_package_that_fails_outside_its_tests_is_not_green(sample: Sample) -> None:
    workspace = sample("go")
    edit(workspace / "price_test.go", 'import "testing"', 'import (\n"os"\n"testing"\n)')
    with (workspace / "price_test.go").open("a") as file:
        file.write('\nfunc TestMain(m *testing.M) {\n\tm.Run()\n\tprintln("no database")\n\tos.Exit(7)\n}\n')
    broken = carry_out(GoRunner(), workspace)
    test, why = the_error(broken)
    assert (test, why.kind) == (".", "package failed")
    assert outcomes(broken)[".::TestTotal"] == "passed"
    assert judge(broken).state is RunState.ERROR


# -- cargo -----------------------------------------------------------------------------------------

CARGO_GREEN = {
    "shop/lib::tests::two_things": "passed",
    "shop/lib::tests::in_a_thread": "passed",
    "shop/lib::tests::nothing": "skipped",
    "shop/test/shopping::a_list_has_a_price": "passed",
    "tax/lib::a_fifth": "passed",
    "shop/doc::src/lib.rs - total (line 5)": "passed",
}


@pytest.mark.cargo
def test_cargo_is_green_then_red_at_the_right_line(sample: Sample) -> None:
    workspace = sample("rust")
    green = carry_out(CargoRunner(), workspace)
    assert outcomes(green) == CARGO_GREEN
    assert judge(green).state is RunState.PASSED
    edit(workspace / "src/lib.rs", "price * count", "price + count")
    edit(workspace / "tax/src/lib.rs", "price / 5", "price / 2")
    red = carry_out(CargoRunner(), workspace)
    assert judge(red).state is RunState.FAILED
    assert {test for test, outcome in outcomes(red).items() if outcome == "failed"} == (
        set(CARGO_GREEN) - {"shop/lib::tests::nothing"}
    )
    found = failure(red, "shop/lib::tests::two_things")
    assert (place(found), found.column) == (("src/lib.rs", 18), 9)
    assert found.message == "assertion `left == right` failed: two things\n  left: 5\n right: 6"
    assert place(failure(red, "shop/lib::tests::in_a_thread")) == ("src/lib.rs", 23)
    assert place(failure(red, "shop/test/shopping::a_list_has_a_price")) == ("tests/shopping.rs", 5)
    assert place(failure(red, "tax/lib::a_fifth")) == ("tax/src/lib.rs", 7)
    assert place(failure(red, "shop/doc::src/lib.rs - total (line 5)")) == ("src/lib.rs", 5)
    assert "left: 5" in failure(red, "shop/doc::src/lib.rs - total (line 5)").message


@pytest.mark.cargo
def test_cargo_runs_at_least_what_is_selected(sample: Sample) -> None:
    workspace = sample("rust")
    some = ("shop/lib::tests::two_things", "tax/lib::a_fifth")
    assert set(outcomes(carry_out(CargoRunner(), workspace, some))) == set(some)
    docs = carry_out(CargoRunner(), workspace, ("shop/doc::src/lib.rs - total (line 4)",))
    assert outcomes(docs) == {"shop/doc::src/lib.rs - total (line 5)": "passed"}  # a line has moved meanwhile


@pytest.mark.cargo
def test_what_rust_cannot_compile_is_an_error_at_its_line(sample: Sample) -> None:
    workspace = sample("rust")
    edit(workspace / "tests/shopping.rs", "let sum: u32", "let sum: &str")
    broken = carry_out(CargoRunner(), workspace, ("shop/test/shopping",))
    test, why = the_error(broken)
    assert (test, why.kind) == ("shop/test/shopping", "compile error E0277")
    assert place(why) == ("tests/shopping.rs", 4)
    assert why.source_line is not None
    assert "let sum: &str" in why.source_line
    assert judge(broken).state is RunState.ERROR


@pytest.mark.cargo
def test_a_rust_process_that_aborts_names_the_test_that_ran(sample: Sample) -> None:
    workspace = sample("rust")
    edit(workspace / "tax/src/lib.rs", "assert_eq!(with_tax(10), 12);", "std::process::abort();")
    broken = carry_out(CargoRunner(), workspace, ("tax/lib::a_fifth",))
    assert outcomes(broken) == {"tax/lib::a_fifth": "error"}
    assert failure(broken, "tax/lib::a_fifth").message == "the test process ended while it ran (SIGABRT)"
    assert judge(broken).state is RunState.ERROR
    assert "while a_fifth ran" in judge(broken).reason


@pytest.mark.cargo
def test_a_broken_cargo_manifest_is_an_error_with_cargos_words(sample: Sample) -> None:
    workspace = sample("rust")
    edit(workspace / "Cargo.toml", 'name = "shop"', "name = shop")
    broken = carry_out(CargoRunner(), workspace)
    assert judge(broken).state is RunState.ERROR
    assert not broken.has_collected
    assert "Cargo.toml" in broken.raw_output


@pytest.mark.cargo
def test_a_binary_crate_without_documentation_tests_is_green(tmp_path: Path, sample: Sample) -> None:
    workspace = sample("rust")
    shutil.rmtree(workspace / "tests")
    shutil.rmtree(workspace / "tax")
    (workspace / "Cargo.toml").write_text('[package]\nname = "tool"\nversion = "0.1.0"\nedition = "2021"\n')
    (workspace / "src/lib.rs").rename(workspace / "src/main.rs")
    edit(workspace / "src/main.rs", "#[cfg(test)]", 'fn main() {\n    println!("{}", total(1, 1));\n}\n\n#[cfg(test)]')
    green = carry_out(CargoRunner(), workspace)
    assert judge(green).state is RunState.PASSED
    assert "tool/bin/tool::tests::two_things" in green.results


# -- vitest and jest -------------------------------------------------------------------------------

SCRIPTS = [("vitest", VitestRunner(), "src/price.test.ts"), ("jest", JestRunner(), "src/price.test.js")]
scripts = pytest.mark.parametrize(("name", "runner", "file"), SCRIPTS, ids=["vitest", "jest"])


@scripts
@pytest.mark.npm
def test_javascript_is_green_then_red_at_the_right_line(
    sample: Sample, name: str, runner: VitestRunner | JestRunner, file: str
) -> None:
    workspace = sample(name)
    green = carry_out(runner, workspace)
    assert outcomes(green) == {
        f"{file}::total > is a product": "passed",
        f"{file}::total > of 1 (one by one) > 0": "passed",
        f"{file}::total > of 2 (one by one) > 0": "passed",
        f"{file}::total > has a tax": "skipped",
        f"{file}::nothing costs nothing": "passed",
    }
    assert judge(green).state is RunState.PASSED
    code = workspace / file.replace(".test", "")
    edit(code, "thing.price * thing.count", "thing.price + thing.count.at.all")
    edit(code, "return", "if (thing.price) return thing.price; return")
    red = carry_out(runner, workspace)
    assert judge(red).state is RunState.FAILED
    product = failure(red, f"{file}::total > is a product")
    assert (place(product), product.column) == ((file, 6 if name == "vitest" else 5), 43)
    thrown = failure(red, f"{file}::nothing costs nothing")
    assert thrown.kind == "TypeError"
    assert place(thrown) == (file, 17 if name == "vitest" else 16)
    assert thrown.crash is not None
    assert (thrown.crash.file, thrown.crash.line) == (file.replace(".test", ""), 7 if name == "vitest" else 2)
    assert "\x1b" not in product.message + product.text


@scripts
@pytest.mark.npm
def test_javascript_runs_at_least_what_is_selected(
    sample: Sample, name: str, runner: VitestRunner | JestRunner, file: str
) -> None:
    workspace = sample(name)
    some = (f"{file}::total > of 2 (one by one) > 0", f"{file}::nothing costs nothing")
    assert outcomes(carry_out(runner, workspace, some)) == dict.fromkeys(some, "passed")


@scripts
@pytest.mark.npm
def test_a_javascript_file_that_cannot_be_imported_is_an_error(
    sample: Sample, name: str, runner: VitestRunner | JestRunner, file: str
) -> None:
    workspace = sample(name)
    edit(workspace / file, "./price", "./prize")
    shutil.copy(workspace / file, workspace / file.replace("price", "syntax"))
    edit(workspace / file.replace("price", "syntax"), "describe('total',", "describe('total' =>")
    broken = carry_out(runner, workspace)
    assert judge(broken).state is RunState.ERROR
    errors = {error.test: error.failure for error in broken.collection_errors}
    assert set(errors) == {file, file.replace("price", "syntax")}
    missing, wrong = errors[file], errors[file.replace("price", "syntax")]
    assert missing is not None
    assert wrong is not None
    assert "prize" in missing.message
    assert place(wrong) == (file.replace("price", "syntax"), 4 if name == "vitest" else 3)


@scripts
@pytest.mark.npm
def test_a_project_without_javascript_tests_has_none(
    sample: Sample, name: str, runner: VitestRunner | JestRunner, file: str
) -> None:
    workspace = sample(name)
    (workspace / file).unlink()
    assert judge(carry_out(runner, workspace)).state is RunState.NO_TESTS


@pytest.mark.npm
def test_a_test_that_leaves_the_process_of_jest_is_named_by_its_file(sample: Sample) -> None:
    workspace = sample("jest")
    edit(workspace / "src/price.test.js", "expect(total({ price: 0", "process.exit(0); expect(total({ price: 0")
    broken = carry_out(JestRunner(), workspace)
    test, why = the_error(broken)
    assert (test, place(why)) == ("src/price.test.js", ("src/price.test.js", 16))
    assert judge(broken).state is RunState.ERROR


def test_a_tool_that_is_not_in_the_box_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(RunnerError, match="vitest cannot be run in the box") as caught:
        carry_out(VitestRunner(), tmp_path)
    assert "box.setup" in caught.value.hint
    reports = GoRunner().reader(GoRunner().invocations(None)[0], "/workspace")
    with pytest.raises(RunnerError, match="go cannot be run in the box: sh: 1: go: not found"):
        reports.execution(InvocationEnd(127, output="sh: 1: go: not found\n"))


# -- commands --------------------------------------------------------------------------------------


def test_a_command_is_one_test_by_its_exit_code(tmp_path: Path) -> None:
    green = carry_out(CommandRunner(command=("sh", "-c", "true"), name="lint"), tmp_path)
    assert outcomes(green) == {"lint::run": "passed"}
    assert judge(green).state is RunState.PASSED
    red = carry_out(CommandRunner(command="echo wrong here >&2; exit 5", name="lint"), tmp_path)
    assert judge(red).state is RunState.FAILED
    assert failure(red, "lint::run").message == "exit code 5\nwrong here"


def test_a_command_takes_arguments_as_they_are(tmp_path: Path) -> None:
    words = CommandRunner(command='printf "%s\\n"', args=("a b", "$HOME"), env={"X": "y"})
    assert carry_out(words, tmp_path).raw_output == "a b\n$HOME\n"


def test_a_killed_command_is_an_error_and_not_red(tmp_path: Path) -> None:
    broken = carry_out(CommandRunner(command=("sh", "-c", f"kill -{signal.SIGKILL.value} $$")), tmp_path)
    assert judge(broken).state is RunState.ERROR


def test_a_command_that_writes_junit_tells_its_tests(tmp_path: Path) -> None:
    (tmp_path / "make it.sh").write_text(
        "cat >'out put.xml' <<'END'\n"
        '<testsuites><testsuite><testcase classname="a.b" name="c" time="0.5"/>'
        '<testcase classname="a.b" name="d"><failure type="E" message="no &lt;d&gt;">at src/d.c:12: no</failure>'
        "</testcase></testsuite></testsuites>\nEND\nexit ${1:-1}\n"
    )
    (tmp_path / "src").mkdir()
    (tmp_path / "src/d.c").touch()
    runner = CommandRunner(command=("sh", "make it.sh"), name="unit", junit="out put.xml")
    red = carry_out(runner, tmp_path)
    assert judge(red).state is RunState.FAILED
    assert red.results["unit::a.b.c"].duration_s == 0.5
    found = failure(red, "unit::a.b.d")
    assert (found.kind, found.message, place(found)) == ("E", "no <d>", ("src/d.c", 12))
    lying = carry_out(CommandRunner(command=("sh", "make it.sh", "0"), name="unit", junit="out put.xml"), tmp_path)
    assert judge(lying).state is RunState.FAILED  # exit code 0 does not turn red into green


def test_junit_of_an_earlier_run_is_not_taken_for_this_one(tmp_path: Path) -> None:
    (tmp_path / "junit.xml").write_text('<testsuite><testcase name="old"/></testsuite>')
    broken = carry_out(CommandRunner(command=("true",), junit="junit.xml"), tmp_path)
    assert broken.results == {}
    assert judge(broken).state is RunState.ERROR
    assert "it wrote no junit.xml" in judge(broken).reason


def test_a_command_that_is_red_without_a_red_test_is_an_error(tmp_path: Path) -> None:
    script = "echo '<testsuite><testcase name=\"a\"/></testsuite>' >junit.xml; exit 3"
    broken = carry_out(CommandRunner(command=script, name="unit", junit="junit.xml"), tmp_path)
    assert broken.results["unit::a"].outcome is Outcome.PASSED
    assert judge(broken).state is RunState.ERROR
    assert "exited with 3 and reported no failure" in judge(broken).reason
