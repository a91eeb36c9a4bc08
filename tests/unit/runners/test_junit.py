"""Reads JUnit XML of several tools, and rejects documents that are unsafe or too large."""

from __future__ import annotations

import pytest

from watchtest.core.model import Outcome, Result
from watchtest.runners.junit import DEPTH_LIMIT, InvalidJUnit, read_junit


def read(document: str) -> list[Result]:
    return read_junit(document.encode(), "unit", "/workspace", "")


def test_every_case_has_an_outcome() -> None:
    cases = read(
        '<?xml version="1.0"?><testsuites><testsuite name="s">'
        '<testcase classname="c" name="passed" time="1,234.5"/>'
        '<testcase classname="c" name="failed"><failure message="m" type="T">text</failure></testcase>'
        '<testcase classname="c" name="broken"><error>only text\nmore</error></testcase>'
        '<testcase classname="c" name="skipped"><skipped/></testcase>'
        '<testcase name="bare"><system-out>noise</system-out></testcase>'
        "</testsuite></testsuites>"
    )
    assert [(case.test, case.outcome.value) for case in cases] == [
        ("unit::c.passed", "passed"),
        ("unit::c.failed", "failed"),
        ("unit::c.broken", "error"),
        ("unit::c.skipped", "skipped"),
        ("unit::bare", "passed"),
    ]
    assert cases[0].duration_s == 1234.5
    failed, broken = cases[1].failure, cases[2].failure
    assert failed is not None
    assert (failed.kind, failed.message, failed.text) == ("T", "m", "text")
    assert broken is not None
    assert (broken.kind, broken.message) == ("error", "only text")


@pytest.mark.parametrize(
    ("attributes", "text", "place"),
    [
        ('file="tests/a.py" line="7"', "", ("tests/a.py", 7)),
        ('file="/workspace/tests/a.py" line="7"', "", ("tests/a.py", 7)),
        ("", "src/x.c:12: wrong", ("src/x.c", 12)),
        ("", 'File "/workspace/tests/a.py", line 9, in b', ("tests/a.py", 9)),
        ("", "at com.shop.Test.a(Test.java:31)", ("Test.java", 31)),
        ('file="tests/a.py" line="7"', "tests/a.py:9: wrong", ("tests/a.py", 9)),
        ("", "/elsewhere/x.c:12: wrong", None),
        ("", "took 12:30 minutes", None),
    ],
)
def test_a_failure_has_the_place_that_the_tool_names(attributes: str, text: str, place: tuple[str, int] | None) -> None:
    [case] = read(f"<testsuite><testcase name='a' {attributes}><failure>{text}</failure></testcase></testsuite>")
    assert case.failure is not None
    where = case.failure.where
    assert (where and (where.file, where.line)) == place


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ('<!DOCTYPE a [<!ENTITY b "c">]><testsuite><testcase name="&b;"/></testsuite>', "document type"),
        ('<!DOCTYPE a SYSTEM "file:///etc/passwd"><testsuite/>', "document type"),
        ("<testsuite><testcase name='a'>", "not valid XML"),
        ("", "not valid XML"),
        ("<a>" * (DEPTH_LIMIT + 1) + "</a>" * (DEPTH_LIMIT + 1), "nested too deeply"),
    ],
)
def test_what_is_unsafe_or_no_xml_is_refused(document: str, reason: str) -> None:
    with pytest.raises(InvalidJUnit, match=reason):
        read(document)


def test_texts_are_bounded_and_clean() -> None:
    long = "x" * 1_000_000
    [case] = read(
        f"<testsuite><testcase name='a\tb'><failure message='&#x9b;31m'>{long}</failure></testcase></testsuite>"
    )
    assert case.failure is not None
    assert len(case.failure.text) <= 256 * 1024
    assert case.test == "unit::a b"
    assert case.outcome is Outcome.FAILED
