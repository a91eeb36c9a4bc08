"""Choose the requirement lists that tests need, as a contributor would, with a reason for each list.

First come the lists that a test environment of the project installs (tox, nox, hatch), and the lists whose name or
content is that of tests. If none of these brings a test tool, the lists for developers follow. Lists for documentation,
linters or releases are left out unless a test environment installs them.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from watchtest.boxes.protocols import SetupChoice
from watchtest.boxes.recipe.languages.python.install_requests import InstallRequest
from watchtest.boxes.recipe.languages.python.requirement_lists import (
    DEPENDENCIES,
    EXTRA,
    FILE,
    GROUP,
    Purpose,
    RequirementList,
    distribution,
    is_plain_test_name,
    normalized,
    purpose_of,
    test_tools,
)
from watchtest.boxes.recipe.languages.python.requirements_files import is_base, is_production


@dataclass(frozen=True, slots=True)
class ChosenDependencies:
    """The lists to install for tests, further requirements, and the reasons."""

    lists: tuple[RequirementList, ...]
    requirements: tuple[str, ...]
    choices: tuple[SetupChoice, ...]

    def names(self, kind: str) -> list[str]:
        return [one.name for one in self.lists if one.kind == kind]

    def of_kind(self, kind: str) -> list[RequirementList]:
        return [one for one in self.lists if one.kind == kind]


def choose_dependencies(
    lists: Sequence[RequirementList],
    environments: Sequence[InstallRequest],
    hints: Sequence[InstallRequest],
    always: Iterable[str] = (),
) -> ChosenDependencies:
    """Choose among the lists. `always` names the groups that the project's tool installs anyway."""
    choice = _Choice([one for one in lists if one.kind != DEPENDENCIES])
    for one in choice.candidates:
        if one.kind == GROUP and one.name in always:
            choice.take(one, "installed by default")
        elif one.kind == FILE and is_base(one.name):
            choice.take(one, "for the project itself")
    choice.take_requested(environments, is_hint=False)
    choice.take_for_tests({one.kind for one in choice.chosen if one.kind == FILE and not is_base(one.name)})
    choice.take_requested(hints, is_hint=True)
    requested = [one for request in environments for one in request.requirements]
    if not any(test_tools(one.requirements) for one in choice.chosen) and not test_tools(requested):
        choice.take_for_development()
    choice.take_only_files()
    provided = [each for each in lists if each.kind == DEPENDENCIES or each in choice.chosen]
    known = {distribution(one) for each in provided for one in each.requirements}
    more = tuple(dict.fromkeys(one for one in requested if distribution(one) not in known))
    origins = ", ".join(dict.fromkeys(one.origin for one in environments if set(one.requirements) & set(more)))
    chosen = [SetupChoice(", ".join(more), True, f"installed for tests by {origins}")] if more else []
    return ChosenDependencies(tuple(choice.chosen), more, (*choice.reasons(), *chosen))


class _Choice:
    """The lists that were chosen so far, each with its reason."""

    def __init__(self, candidates: list[RequirementList]) -> None:
        self.candidates = candidates
        self._because: dict[RequirementList, str] = {}
        self._left_out: dict[RequirementList, str] = {}

    @property
    def chosen(self) -> list[RequirementList]:
        return [one for one in self.candidates if one in self._because]

    def take(self, one: RequirementList, because: str) -> None:
        self._because.setdefault(one, because)

    def take_requested(self, requests: Iterable[InstallRequest], *, is_hint: bool) -> None:
        """Take the lists that commands name. A hint cannot bring in what is for something else than tests."""
        for request in requests:
            named = {
                EXTRA: {normalized(name) for name in request.extras},
                GROUP: {normalized(name) for name in request.groups},
                FILE: {posixpath.normpath(name) for name in request.files},
            }
            for one in self.candidates:
                name = one.name if one.kind == FILE else normalized(one.name)
                is_named = name in named[one.kind] or (one.kind == EXTRA and request.has_all_extras)
                if is_named and not (is_hint and purpose_of(one.name) is Purpose.OTHER):
                    self.take(one, f"installed for tests by {request.origin}")

    def take_for_tests(self, settled: set[str]) -> None:
        """Take the lists that are for tests by name or content, except of kinds that an environment has settled."""
        open_lists = [one for one in self.candidates if one.kind not in settled]
        for_tests = [one for one in open_lists if purpose_of(one.name) is Purpose.TESTS]
        plain = {one.kind for one in for_tests if is_plain_test_name(one.name) and test_tools(one.requirements)}
        for one in for_tests:
            if one.kind in plain and not is_plain_test_name(one.name):
                self._left_out[one] = "for special tests; there is a plain list"
            else:
                self.take(one, "named for tests")
        for one in () if plain else open_lists:
            tools = test_tools(one.requirements)
            if tools and purpose_of(one.name) is Purpose.UNKNOWN:
                self.take(one, f"contains {tools[0]}")

    def take_for_development(self) -> None:
        for one in self.candidates:
            if purpose_of(one.name) is Purpose.DEVELOPMENT:
                self.take(one, "named for developers; no list for tests has a test tool")

    def take_only_files(self) -> None:
        """If no file was chosen, take those for production, or else those whose purpose is unknown."""
        files = [one for one in self.candidates if one.kind == FILE]
        if not any(one in self._because for one in files):
            production = [one for one in files if is_production(one.name)]
            for one in production or [one for one in files if purpose_of(one.name) is Purpose.UNKNOWN]:
                self.take(one, "for the project itself")

    def reasons(self) -> list[SetupChoice]:
        chosen = [SetupChoice(str(one), True, self._because[one]) for one in self.chosen]
        return chosen + [
            SetupChoice(str(one), False, self._why_not(one)) for one in self.candidates if one not in self._because
        ]

    def _why_not(self, one: RequirementList) -> str:
        match purpose_of(one.name):
            case Purpose.TESTS:
                return self._left_out.get(one, "the test environment installs others")
            case Purpose.DEVELOPMENT:
                return "named for developers; the lists for tests suffice"
            case Purpose.OTHER:
                return "named for something else than tests"
            case Purpose.UNKNOWN:
                return "nothing says that tests need this"
