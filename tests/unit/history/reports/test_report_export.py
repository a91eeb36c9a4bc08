"""Export, import and the HTML report, as other tools and browsers see them."""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from support.ctrf_schema import CTRF
from support.history_records import Bench, green, red, tree
from support.needs import BROWSERS

from watchtest.commands import add_module
from watchtest.core.model import Outcome, Result, RunState
from watchtest.core.text import HIDDEN
from watchtest.errors import UsageError, WorkspaceError
from watchtest.history.reports.html_page import embedded
from watchtest.history.reports.report_export import junit_name, parts
from watchtest.history.reports.report_import import InvalidReport, read_ctrf
from watchtest.history.store.database_file import history_path

Ask = Callable[..., str]
EVIL = 'tests/test_evil.py::test_x[</script><img src=x onerror=document.title="PWNED">::\x1b[31m]'
EVIL_WORDS = '<b>bold</b></pre></script><script>document.title="PWNED"</script> & \x00 \u2028 ]]> "q" \u202e\x9b31m'
ONE = "tests/test_a.py::TestShop::test_one"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "my <shop>"
    (folder / ".git").mkdir(parents=True)
    return folder


@pytest.fixture
def bench(tmp_path: Path, workspace: Path) -> Iterator[Bench]:
    made = Bench(history_path(tmp_path / "state", workspace), str(workspace))
    with made.store:
        made.ran(tree("t1", {"a": "1"}), [green(ONE, 0.25), green(EVIL)])
        others = [Result(f"tests/test_b.py::{each}", each, 0.001) for each in (Outcome.SKIPPED, Outcome.XFAILED)]
        made.ran(
            tree("t2", {"a": "2"}),
            [red(ONE, "first"), red(EVIL, EVIL_WORDS), green("tests/test_b.py::test_b"), *others],
            checks=[red(ONE, "second")],
        )
        yield made


@pytest.fixture
def ask(bench: Bench, workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Ask:
    monkeypatch.setenv("WATCHTEST_STATE_DIR", str(bench.path.parents[1]))

    def asked(*words: str | Path, err: str = "") -> str:
        parser = argparse.ArgumentParser()
        parser.add_argument("-C", "--workspace", type=Path)
        add_module(parser.add_subparsers(), "history")
        arguments = parser.parse_args(["-C", str(workspace), "history", *map(str, words)])
        assert arguments.run(arguments) == 0
        said = capsys.readouterr()
        assert said.err == err
        return said.out

    return asked


# -- export ----------------------------------------------------------------------------------------


def test_junit_has_one_testcase_a_test_and_what_it_says_is_text(ask: Ask) -> None:
    text = ask("export")
    assert not re.search(f"[{HIDDEN}]", text)
    root = ElementTree.fromstring(text)
    (suite,) = root
    assert {name: suite.get(name) for name in ("tests", "failures", "errors", "skipped")} == {
        "tests": "5",
        "failures": "2",
        "errors": "0",
        "skipped": "2",
    }
    cases = {f"{case.get('file')}::{case.get('name')}": case for case in suite.iter("testcase")}
    assert len(cases) == 5
    one = cases["tests/test_a.py::test_one"]
    assert one.get("classname") == "tests.test_a.TestShop"
    failure = one.find("failure")
    assert failure is not None
    assert (failure.get("type"), failure.get("message")) == ("AssertionError", "second")
    evil = next(case for name, case in cases.items() if "evil" in name)
    said = evil.find("failure")
    assert said is not None
    assert said.text == EVIL_WORDS.replace("\x00", "\ufffd")


def test_a_run_without_a_verdict_is_not_exported_as_if_it_were_green(ask: Ask, bench: Bench) -> None:
    bench.ran(tree("t3", {"a": "3"}), [green(ONE)], state=RunState.BROKEN)
    said = "run s.3 was broken: the report has only the results up to then\n"
    for form in ("junit", "ctrf"):
        assert ask("export", "--format", form, err=said)


def test_ctrf_is_valid_and_counts_each_test_once(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    assert ask("export", "-o", file) == f"{file}\n"
    report = json.loads(file.read_text())
    jsonschema.validate(report, CTRF)
    summary = report["results"]["summary"]
    assert (summary["tests"], summary["passed"], summary["failed"], summary["skipped"]) == (5, 1, 2, 2)
    by_name = {test["name"]: test for test in report["results"]["tests"]}
    assert (by_name[ONE]["retries"], by_name[ONE]["message"]) == (1, "second")
    assert by_name[EVIL]["suite"] == ["tests/test_evil.py"]


def test_the_schema_refuses_what_the_format_has_no_word_for(ask: Ask) -> None:
    report = json.loads(ask("export", "--format", "ctrf"))
    report["results"]["tests"][0]["outcome"] = "passed"
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(report, CTRF)


@pytest.mark.parametrize("test", [ONE, EVIL, "go.mod", "a.py::test[x::y]"])
def test_the_parts_of_a_name_are_its_own(test: str) -> None:
    file, classes, name = parts(test)
    assert name
    assert "::".join([file, *classes, name]) in (test, f"{test}::{test}")
    assert junit_name("a/b.py::C::d[x::y.z]") == "a.b.C.d[x::y.z]"


# -- import ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["ctrf", "junit"])
def test_what_was_exported_can_be_imported_and_asked(ask: Ask, tmp_path: Path, form: str) -> None:
    file = tmp_path / f"report.{form}"
    ask("export", "--format", form, "-o", file)
    said = ask("import", file)
    name = re.search(r"import-[0-9a-f]{12}", said)
    assert name is not None
    assert "5 tests" in said
    assert "already imported" in ask("import", file)
    found = json.loads(ask("show", name[0], "--json"))
    was = json.loads(ask("show", "s.2", "--json"))
    assert (found["state"], found["imported_from"]) == ("failed", str(file))
    last = {result["test"]: result for result in found["results"]}
    assert ONE in last
    assert last[ONE]["failure"]["message"] == "second"
    assert last[ONE]["duration_s"] == 0.2
    if form == "ctrf":
        assert set(last) == {result["test"] for result in was["results"]}
        assert found["code"]["head"] == "c0ffee"
    new = [pair["identity"] for pair in json.loads(ask("compare", "s.2", name[0], "--json"))["new_failures"]]
    # XML cannot contain an escape character, so that one name differs.
    assert all(form == "junit" and "evil" in each for each in new)


def test_a_report_has_its_own_time_and_never_one_to_come(ask: Ask, tmp_path: Path) -> None:
    for number, stamp in enumerate(("2024-02-03T04:05:06", "2024-02-03T04:05:06+01:00", "9999-01-01T00:00:00", "noon")):
        text = f'<testsuites><testsuite timestamp="{stamp}"><testcase name="b{number}"/></testsuite></testsuites>'
        (tmp_path / f"{number}.xml").write_text(text)
        ask("import", tmp_path / f"{number}.xml")
    by_file = {Path(run["imported_from"] or "").stem: run for run in json.loads(ask("list", "--json"))["runs"]}
    assert by_file["0"]["queued_at"] == "2024-02-03T04:05:06.000Z"
    assert by_file["1"]["queued_at"] == "2024-02-03T03:05:06.000Z"
    assert all("2025" < by_file[name]["queued_at"] < "9" for name in ("2", "3"))


def test_an_imported_run_is_no_verdict_of_ours(ask: Ask, bench: Bench, tmp_path: Path) -> None:
    from watchtest.history.queries.run_queries import last_full_results
    from watchtest.history.store.database_file import open_for_reading

    file = tmp_path / "other.json"
    file.write_text(json.dumps({"results": {"tests": [{"name": "x", "status": "passed", "duration": 5}]}}))
    ask("import", file)
    with open_for_reading(bench.path) as connection:
        assert "x" not in last_full_results(connection, bench.workspace)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b"[]", "not a CTRF report"),
        (b'{"results": {"tests": [{"name": 1}]}}', "name and a status"),
        (b"<testsuite>", "not valid XML"),
        (b"<project/>", "not a JUnit report"),
        (b'<!DOCTYPE a [<!ENTITY b "c">]><a/>', "document type"),
        (b"\xff\xfe", "not valid XML"),
    ],
)
def test_what_cannot_be_read_is_named_and_nothing_is_kept(ask: Ask, tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "report"
    file.write_bytes(content)
    good = tmp_path / "good.xml"
    good.write_text('<testsuite><testcase classname="a" name="b" time="1"/></testsuite>')
    with pytest.raises(UsageError, match=words) as caught:
        ask("import", good, file)
    assert str(file) in str(caught.value)
    assert "import-" not in ask("list", "--all-worktrees")
    with pytest.raises(WorkspaceError, match="cannot read"):
        ask("import", tmp_path / "nowhere.xml")


def test_strange_values_in_a_report_are_bounded() -> None:
    tests = [
        {"name": "a", "status": "passed", "duration": -5, "suite": "no list", "extra": 7},
        {"name": "b" * 10_000, "status": "unheard of", "duration": 1e300, "line": True},
        {
            "name": "c",
            "status": "failed",
            "duration": "x",
            "message": 5,
            "stdout": [1, "out"],
            "line": 3,
            "filePath": "f",
        },
        {"name": "d", "status": "passed", "duration": 3, "flaky": True, "retries": 2},
        {"name": "c", "status": "passed", "filePath": "f"},
        "nothing",
    ]
    raw = {"results": {"tests": tests, "summary": {"start": 1e20}, "environment": []}}
    report = read_ctrf(json.dumps(raw).encode())
    by_name = {result.test[:5]: result for result in report.results}
    assert [by_name[name].outcome for name in ("a", "bbbbb", "f::c", "d")] == [
        Outcome.PASSED,
        Outcome.SKIPPED,
        Outcome.FAILED,
        Outcome.PASSED,
    ]
    assert [by_name[name].duration_s for name in ("a", "bbbbb", "f::c")] == [0, 0, 0]
    assert by_name["d"].reruns == 2
    assert (report.at, report.head) == (None, None)
    with pytest.raises(InvalidReport, match="MiB"):
        read_ctrf(b" " * (64 * 1024 * 1024 + 1))


# -- the page --------------------------------------------------------------------------------------


def test_nothing_of_a_test_is_markup_in_the_page(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ask("html", "-o", file)
    text = file.read_text()
    assert text.count("<script") == 2
    assert text.count("</script>") == 2
    assert "<img" not in text
    assert "my &lt;shop&gt; · watchtest" in text
    assert "\x1b" not in text
    ours = re.sub(r'id="data">.*?</script>', "", text, flags=re.DOTALL)
    assert not re.search(r"(?:src|href)\s*=|url\(|@import|https?://(?!www\.w3\.org/2000/svg)", ours)
    assert json.loads(embedded({"a": EVIL_WORDS})) == {"a": EVIL_WORDS}


def test_a_red_test_that_was_removed_is_red_no_more_on_the_page(ask: Ask, bench: Bench, tmp_path: Path) -> None:
    bench.ran(tree("t3", {"a": "3"}), [green(ONE)])
    ask("html", "-o", tmp_path / "page.html")
    found = re.search(r'id="data">(.*?)</script>', (tmp_path / "page.html").read_text(), flags=re.DOTALL)
    assert found is not None
    gone = {test["id"]: test["gone"] for test in json.loads(found[1])["tests"]}
    assert (gone[ONE], gone["tests/test_b.py::test_b"]) == (False, True)


def test_the_page_has_to_be_written_somewhere(ask: Ask, tmp_path: Path) -> None:
    with pytest.raises(WorkspaceError, match="cannot write"):
        ask("html", "-o", tmp_path / "nowhere" / "page.html")
    assert list(tmp_path.glob("nowhere*")) == []


def rendered(page: Path, fragment: str, folder: Path) -> str:
    """Return the document after a browser has run its script."""
    browser = next(filter(None, map(shutil.which, BROWSERS)))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={folder}"]
    command = [browser, *options, "--virtual-time-budget=3000", "--dump-dom", f"{page.as_uri()}#{fragment}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=100, check=True).stdout


@pytest.mark.chromium
def test_a_browser_draws_the_page_and_runs_nothing_of_a_test(ask: Ask, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    ask("html", "-o", file)
    seen = rendered(file, "test=evil", tmp_path / "profile")
    assert "<title>my &lt;shop&gt; · watchtest</title>" in seen
    assert seen.count('class="run ') == 2
    assert ">1 test<" in seen, "the filter leaves one"
    assert ">red since " in seen
    assert " · last in s.2" in seen
    assert "&lt;img src=x onerror=" in seen
    assert "<img" not in seen
    assert "&lt;b&gt;bold&lt;/b&gt;" in seen, "the failure's text is open"
    assert '<svg class="strip"' in seen
    assert 'aria-label="slowest tests"' in seen
    assert 'aria-label="trend"' in seen
    assert 'aria-label="runs by day"' in seen
