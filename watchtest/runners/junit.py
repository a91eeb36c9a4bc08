"""Parses JUnit XML of any tool. Rejects document types and entities, limits sizes, and reads no files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from watchtest.core.model import Failure, Location, Outcome, Result
from watchtest.core.text import FAILURE_TEXT_LIMIT, NAME_LIMIT
from watchtest.runners.command_report import TEST_LIMIT
from watchtest.runners.untrusted import first_line, location, name, seconds, text

SIZE_LIMIT = 64 * 1024 * 1024
DEPTH_LIMIT = 64
OUTCOMES = {"failure": Outcome.FAILED, "error": Outcome.ERROR, "skipped": Outcome.SKIPPED}
"""By the element in a test case; without one, the test has passed."""
LOCATION = re.compile(
    r"(?:^|[\s(\"'\[])((?:/|\./)?[\w@./-]+\.[A-Za-z]\w{0,7})(?::|\", line |\()(\d{1,9})\b", re.MULTILINE
)


class InvalidJUnit(Exception):
    """The document is not a valid report; the message says why."""


@dataclass(slots=True)
class _Case:
    attributes: dict[str, str]
    outcome: str = ""
    kind: str = ""
    message: str = ""
    parts: list[str] = field(default_factory=list)
    size: int = 0


class _Reader:
    def __init__(self) -> None:
        self.cases: list[_Case] = []
        self._open: list[str] = []
        self._case: _Case | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._open.append(tag)
        if len(self._open) > DEPTH_LIMIT:
            raise InvalidJUnit("it is nested too deeply")
        if tag == "testcase":
            if len(self.cases) >= TEST_LIMIT:
                raise InvalidJUnit("it has too many test cases")
            self._case = _Case(attributes)
            self.cases.append(self._case)
        elif self._case is not None and tag in OUTCOMES and self._case.outcome in ("", "skipped"):
            self._case.outcome = tag
            self._case.kind = attributes.get("type", "")
            self._case.message = attributes.get("message", "")

    def end(self, tag: str) -> None:
        self._open.pop()
        if tag == "testcase":
            self._case = None

    def text(self, data: str) -> None:
        case = self._case
        if case is not None and self._open[-1] in OUTCOMES and case.size < FAILURE_TEXT_LIMIT:
            case.parts.append(data)
            case.size += len(data)


def read_junit(document: bytes, runner: str, root: str, folder: str) -> list[Result]:
    """Return one result per test case; duplicates are kept, and a failure wins. Raises InvalidJUnit."""
    if len(document) > SIZE_LIMIT:
        raise InvalidJUnit(f"it is larger than {SIZE_LIMIT // 1024 // 1024} MiB")
    reader = _Reader()
    parser = expat.ParserCreate()
    parser.StartElementHandler = reader.start
    parser.EndElementHandler = reader.end
    parser.CharacterDataHandler = reader.text
    parser.StartDoctypeDeclHandler = _refuse
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(document, True)
    except expat.ExpatError as error:
        raise InvalidJUnit(f"not valid XML: {error}") from error
    return [_result(case, runner, root, folder) for case in reader.cases]


def _refuse(*_declaration: object) -> None:
    raise InvalidJUnit("it declares a document type, which a JUnit report does not need")


def _result(case: _Case, runner: str, root: str, folder: str) -> Result:
    names = [name(case.attributes.get(key)) for key in ("classname", "name")]
    test = f"{runner}::{'.'.join(part for part in names if part) or 'unnamed'}"
    outcome = OUTCOMES.get(case.outcome, Outcome.PASSED)
    return Result(test, outcome, _seconds(case.attributes.get("time")), _failure(case, root, folder))


def _failure(case: _Case, root: str, folder: str) -> Failure | None:
    if case.outcome not in ("failure", "error"):
        return None
    content = text("".join(case.parts))
    declared = location(case.attributes.get("file", ""), case.attributes.get("line", "1"), root, folder)
    mentioned = _mentioned(f"{case.message}\n{content}", root, folder)
    return Failure(
        kind=text(case.kind)[:NAME_LIMIT] or case.outcome,
        message=text(case.message) or first_line(content) or "no reason was reported",
        where=mentioned if mentioned and (declared is None or declared.file == mentioned.file) else declared,
        crash=mentioned or declared,
        text=content,
    )


def _mentioned(content: str, root: str, folder: str) -> Location | None:
    """Return the first `file:line` of the workspace in a text; tools print the deepest frame first, or only that."""
    for found in LOCATION.finditer(content):
        at = location(found[1], found[2], root, folder)
        if at is not None and "/" not in at.file.partition("node_modules")[2]:
            return at
    return None


def _seconds(raw: str | None) -> float:
    try:
        return seconds(float((raw or "0").replace(",", "")))
    except ValueError:
        return 0.0
