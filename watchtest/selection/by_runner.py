"""Joins the selections of several runners into one. Starts nothing.

Python tests are selected by their recorded dependencies; other runners query their tools. A runner that cannot decide
runs all of its tests, and tests that are known to be red always run.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from watchtest.core.model import All, Only, Selection, Snapshot, difference
from watchtest.core.verdict import file_of
from watchtest.runners.registry import AnyRunner
from watchtest.runners.runner import Change, Execute, Rule, Runner, Undecidable, is_below
from watchtest.selection.selector import SelectionInput

log = logging.getLogger(__name__)
TREES_REMEMBERED = 100
NOBODY = ""
"""Used in place of the name of a runner."""


def group_by_runner(
    runners: Sequence[AnyRunner], tests: Iterable[str], default: str = NOBODY
) -> dict[str, frozenset[str]]:
    """Return the tests of each runner by its name. The first runner that claims a test owns it, otherwise `default`."""
    owned: dict[str, set[str]] = {NOBODY: set(), **{runner.name: set() for runner in runners}}
    for test in tests:
        owned[next((runner.name for runner in runners if runner.claims(test)), default)].add(test)
    return {name: frozenset(found) for name, found in owned.items()}


def change_of(base: Snapshot, now: Snapshot, known: frozenset[str], root: str, rules: tuple[Rule, ...] = ()) -> Change:
    delta = difference(base.entries, now.entries)
    return Change(
        changed=frozenset(path for path in delta.write if path in base.entries),
        new=frozenset(path for path in delta.write if path not in base.entries),
        removed=frozenset(delta.remove),
        known=known,
        root=root,
        rules=rules,
    )


@dataclass(slots=True)
class TriedEnvironments:
    """The environments in which each tree was tested, for the last TREES_REMEMBERED trees."""

    _tried: dict[str, set[str]] = field(default_factory=dict)

    def are_as_before(self, inputs: SelectionInput) -> bool:
        """Return whether the base was tested in this environment and in no other."""
        return inputs.base is not None and self._tried.get(inputs.base.id) == {inputs.environment}

    def add(self, inputs: SelectionInput) -> None:
        tree = inputs.snapshot.id
        self._tried[tree] = self._tried.pop(tree, set()) | {inputs.environment}
        for old in list(self._tried)[:-TREES_REMEMBERED]:
            del self._tried[old]


@dataclass(frozen=True, slots=True)
class RunnerSelection:
    """The selection of one runner, or of several that are selected together."""

    runners: tuple[str, ...]
    known_tests: frozenset[str]
    selection: Selection

    @property
    def description(self) -> str:
        return f"{' and '.join(self.runners)}: {self.selection.because}"


async def select_for_runner(runner: Runner, change: Change, ask: Execute) -> RunnerSelection:
    """Return which tests of this runner the change can affect, by its own rules and by those of the user."""
    try:
        for words, matches, where in change.rules:
            for path in change.paths:
                if where == runner.name and matches(path):
                    raise Undecidable(f"{path} matches the rule {words}")
        selection: Selection = _with_ruled(await runner.narrow(change, ask), change)
    except Undecidable as reason:
        selection = All(because=str(reason))
    log.info("%s: %s", runner.name, selection)
    return RunnerSelection((runner.name,), change.known, selection)


def _with_ruled(selection: Only, change: Change) -> Only:
    """Add the tests that the user's rules name."""
    tests, because = set(selection.tests), selection.because
    for words, matches, where in change.rules:
        path = next(filter(matches, change.paths), None)
        found = {test for test in change.known if is_below(file_of(test), where)} if path is not None else set()
        if found - tests:
            tests |= found
            because += f"; {path} matches the rule {words}"
    return Only(tuple(sorted(tests)), because, is_proof=True)


def join_selections(parts: Sequence[RunnerSelection], must_run: frozenset[str]) -> Selection:
    """Return all selections as one; `must_run` lists tests that run in any case."""
    because = "; ".join(part.description for part in parts) if len(parts) > 1 else parts[0].selection.because
    if all(isinstance(part.selection, All) for part in parts):
        return All(because)
    tests = set(must_run)
    whole: list[str] = []
    first: list[str] = []
    reasons: list[str] = []
    collects_all = False
    for part in parts:
        match part.selection:
            case All():
                tests |= part.known_tests
                whole += part.runners
            case Only() as chosen:
                tests.update(chosen.tests)
                first += chosen.first
                reasons += chosen.reasons or [part.description]
                collects_all |= chosen.collects_all
    return Only(
        tuple(sorted(tests)),
        because,
        is_proof=True,
        first=tuple(first),
        reasons=tuple(reasons),
        collects_all=collects_all,
        whole=tuple(whole),
    )
