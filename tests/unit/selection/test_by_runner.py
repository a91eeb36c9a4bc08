"""The selections of several runners combined, and what the user's rules and known failures add to them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import pytest
from support.recorded_answers import ROOT, changed

from watchtest.core.model import All, Entry, EntryKind, Only, Selection, Snapshot
from watchtest.runners.command import CommandRunner
from watchtest.runners.go.go_runner import GoRunner
from watchtest.runners.python import PytestRunner
from watchtest.runners.runner import Change, Execute, Invocation, InvocationEnd, Rule, Undecidable
from watchtest.selection.by_runner import (
    NOBODY,
    RunnerSelection,
    TriedEnvironments,
    change_of,
    group_by_runner,
    join_selections,
    select_for_runner,
)
from watchtest.selection.selector import SelectionInput

LINT = CommandRunner(command=("lint",), name="lint")


class Telling(GoRunner):
    """A Go runner that knows the answer."""

    async def narrow(self, change: Change, ask: Execute) -> Only:
        if "go.mod" in change.paths:
            raise Undecidable("go.mod changed")
        return Only(("a",), "a is needed", is_proof=True)


def rule(words: str) -> Rule:
    glob, where = words.split(" -> ")
    return words, lambda path: fnmatchcase(path, glob), where


async def nobody(order: Invocation) -> InvocationEnd:
    raise AssertionError(order)


def selection_of(runner: Any, change: Change) -> Selection:
    part = asyncio.run(select_for_runner(runner, change, nobody))
    assert part.known_tests == change.known
    return part.selection


def test_a_command_without_a_rule_always_runs() -> None:
    assert isinstance(selection_of(LINT, changed("README.md")), All)
    assert isinstance(selection_of(LINT, changed("a.py", rules=(rule("*.py -> tests"),))), All)


def test_a_command_with_rules_runs_for_what_they_name() -> None:
    rules = (rule("web/* -> lint"), rule("*.toml -> lint"))
    assert selection_of(LINT, changed("web/a.js", rules=rules)) == All("web/a.js matches the rule web/* -> lint")
    left_out = selection_of(LINT, changed("a.py", rules=rules))
    assert isinstance(left_out, Only)
    assert (left_out.tests, left_out.is_proof) == ((), True)
    assert left_out.because == "no rule names it for a.py"


def test_a_rule_adds_tests_by_their_place_or_by_the_name_of_their_runner() -> None:
    known = ("b::TestB", "b/c::TestC", "bc::TestBC")
    place = selection_of(Telling(), changed("x.sql", known=known, rules=(rule("*.sql -> b"),)))
    assert isinstance(place, Only)
    assert place.tests == ("a", "b/c::TestC", "b::TestB")
    assert place.because == "a is needed; x.sql matches the rule *.sql -> b"
    assert isinstance(selection_of(Telling(), changed("x.sql", rules=(rule("*.sql -> go"),))), All)


def test_who_cannot_tell_runs_everything() -> None:
    assert selection_of(Telling(), changed("go.mod")) == All("go.mod changed")


def part(name: str, selection: Selection, *known: str) -> RunnerSelection:
    return RunnerSelection((name,), frozenset(known), selection)


GO = part("go", Only(("a",), "a is needed", is_proof=True), "a::TestA", "b::TestB")
PYTHON = part("pytest", Only(("t.py::t",), "f changed", is_proof=True, first=("t.py::t",)), "t.py::t", "t.py::u")


def test_parts_are_joined_with_their_reasons() -> None:
    both = join_selections([PYTHON, GO], frozenset())
    assert isinstance(both, Only)
    assert both.tests == ("a", "t.py::t")
    assert (both.is_proof, both.first, both.whole) == (True, ("t.py::t",), ())
    assert both.because == "pytest: f changed; go: a is needed"


def test_one_part_speaks_for_itself() -> None:
    alone = join_selections([GO], frozenset())
    assert (alone.because, isinstance(alone, Only)) == ("a is needed", True)


def test_a_runner_that_runs_everything_is_named_and_its_known_tests_are_listed() -> None:
    mixed = join_selections([replace(PYTHON, selection=All("who knows")), GO], frozenset())
    assert isinstance(mixed, Only)
    assert mixed.whole == ("pytest",)
    assert mixed.tests == ("a", "t.py::t", "t.py::u")
    assert join_selections([part("go", All("x"), "a::A"), part("jest", All("y"))], frozenset()) == All("go: x; jest: y")


def test_known_red_tests_run_in_any_case() -> None:
    red = join_selections([PYTHON, GO], frozenset({"b::TestB"}))
    assert isinstance(red, Only)
    assert "b::TestB" in red.tests


def test_tests_are_of_the_first_who_claims_them_and_others_of_the_heir() -> None:
    runners = (LINT, PytestRunner(), GoRunner())
    tests = {"lint::run", "t.py::t", "a::TestA", "guide.rst::guide.rst"}
    assert group_by_runner(runners, tests, "pytest") == {
        NOBODY: frozenset(),
        "lint": {"lint::run"},
        "pytest": {"t.py::t", "guide.rst::guide.rst"},
        "go": {"a::TestA"},
    }
    assert group_by_runner(runners, tests)[NOBODY] == {"guide.rst::guide.rst"}


def entry(digest: str) -> Entry:
    return Entry(EntryKind.FILE, 0o644, 1, digest)


def test_a_change_tells_what_is_new_changed_and_gone() -> None:
    base = Snapshot("1", {"a": entry("1"), "b": entry("1"), "c": entry("1")})
    now = Snapshot("2", {"a": entry("2"), "b": entry("1"), "d": entry("1")})
    assert change_of(base, now, frozenset(), ROOT) == changed("a", new=["d"], removed=["c"])


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        ([], False),
        ([("1", "blue")], True),
        ([("1", "red")], False),
        ([("1", "blue"), ("1", "red")], False),
        ([("1", "blue"), ("2", "red")], True),
    ],
)
def test_what_was_tried_elsewhere_proves_nothing_here(trials: list[tuple[str, str]], expected: bool) -> None:
    def at(tree: str, environment: str) -> SelectionInput:
        fetch: Any = None
        return SelectionInput(Snapshot(tree, {}), environment, Snapshot("1", {}), frozenset(), frozenset(), fetch)

    tried = TriedEnvironments()
    for tree, environment in trials:
        tried.add(at(tree, environment))
    assert tried.are_as_before(at("9", "blue")) is expected
