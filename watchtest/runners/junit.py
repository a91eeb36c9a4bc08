"""JUnit XML, from whichever tool, as results. Refuses document types and entities; bounded. Parses; reads no files."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from xml.parsers import expat

from watchtest.core.model import Failure, Location, Outcome, Result
from watchtest.runners.command_report import TEST_LIMIT
from watchtest.runners.untrusted import DURATION_LIMIT_S, KIND_LIMIT, TEXT_LIMIT, first_line, name, place, text

SIZE_LIMIT = 64 * 1024 * 1024
DEPTH_LIMIT = 64
BROKEN = ("failure", "error", "skipped")
OUTCOMES = {"failure": Outcome.FAILED, "error": Outcome.ERROR, "skipped": Outcome.SKIPPED}
SPOKEN = re.compile(
    r"(?:^|[\s(\"'\[])((?:/|\./)?[\w@./-]+\.[A-Za-z]\w{0,7})(?::|\", line |\()(\d{1,9})\b", re.MULTILINE
)


class Unreadable(Exception):
    """What is wrong with the document, in a few words."""


@dataclass(slots=True)
class _Case:
    attributes: dict[str, str]
    broken: str = ""
    kind: str = ""
    message: str = ""
    said: list[str] = field(default_factory=list)
    size: int = 0


class _Reader:
    def __init__(self) -> None:
        self.cases: list[_Case] = []
        self._open: list[str] = []
        self._case: _Case | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._open.append(tag)
        if len(self._open) > DEPTH_LIMIT:
            raise Unreadable("it is nested too deeply")
        if tag == "testcase":
            if len(self.cases) >= TEST_LIMIT:
                raise Unreadable("it has too many test cases")
            self._case = _Case(attributes)
            self.cases.append(self._case)
        elif self._case is not None and tag in BROKEN and self._case.broken in ("", "skipped"):
            self._case.broken = tag
            self._case.kind = attributes.get("type", "")
            self._case.message = attributes.get("message", "")

    def end(self, tag: str) -> None:
        self._open.pop()
        if tag == "testcase":
            self._case = None

    def text(self, data: str) -> None:
        case = self._case
        if case is not None and self._open[-1] in BROKEN and case.size < TEXT_LIMIT:
            case.said.append(data)
            case.size += len(data)


def read_junit(document: bytes, runner: str, root: str, folder: str) -> list[Result]:
    """One result a test case; a case that is there twice counts twice, and red wins. Raises Unreadable."""
    if len(document) > SIZE_LIMIT:
        raise Unreadable(f"it is larger than {SIZE_LIMIT // 1024 // 1024} MiB")
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
        raise Unreadable(f"not valid XML: {error}") from error
    return [_result(case, runner, root, folder) for case in reader.cases]


def _refuse(*_declaration: object) -> None:
    raise Unreadable("it declares a document type, which no JUnit report needs")


def _result(case: _Case, runner: str, root: str, folder: str) -> Result:
    names = [name(case.attributes.get(key)) for key in ("classname", "name")]
    test = f"{runner}::{'.'.join(part for part in names if part) or 'unnamed'}"
    outcome = OUTCOMES.get(case.broken, Outcome.PASSED)
    return Result(test, outcome, _seconds(case.attributes.get("time")), _failure(case, root, folder))


def _failure(case: _Case, root: str, folder: str) -> Failure | None:
    if case.broken not in ("failure", "error"):
        return None
    said = text("".join(case.said))
    where = _given(case.attributes, root, folder)
    spoken = _spoken(f"{case.message}\n{said}", root, folder)
    message = text(case.message) or first_line(said) or "no reason was reported"
    return Failure(
        kind=text(case.kind)[:KIND_LIMIT] or case.broken,
        message=message,
        where=spoken if spoken and (where is None or where.file == spoken.file) else where,
        crash=spoken or where,
        text=said,
    )


def _given(attributes: dict[str, str], root: str, folder: str) -> Location | None:
    return place(attributes.get("file", ""), attributes.get("line", "1"), root, folder)


def _spoken(said: str, root: str, folder: str) -> Location | None:
    """The first `file:line` in the text that lies in the workspace; tools give the deepest frame first or alone."""
    for found in SPOKEN.finditer(said):
        at = place(found[1], found[2], root, folder)
        if at is not None and "/" not in at.file.partition("node_modules")[2]:
            return at
    return None


def _seconds(raw: str | None) -> float:
    try:
        found = float((raw or "0").replace(",", ""))
    except ValueError:
        return 0.0
    return found if 0 <= found < DURATION_LIMIT_S else 0.0
