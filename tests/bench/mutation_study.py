"""Random changes to a real project: is any test whose outcome changes left out of the selection?

    python tests/bench/mutation_study.py [--project jinja2] [--seed 1] [--mutants 300] [--testmon 60] [--only NUMBER]

The project is recorded once. For each mutant the study compares our selection, the file-level selection on the same
recording, what pytest-testmon runs from its own recording (only for a random part of the mutants, because it is slow),
and one full cold run that shows which tests changed their outcome. Such a test outside a selection is a miss. A test
does not count if two runs without a mutant show that it is flaky, if its outcome under the mutant differs from run to
run, or if an earlier mutant affected it through files outside the project. Where a test ends the whole session, that
test must be selected; the tests after it cannot be judged. Mutants may write anywhere, so use a disposable machine.

An interrupt or SIGTERM ends a study early and prints its table. The exit code is 1 if our selection misses anything;
each miss is printed with its mutant, which --only reproduces.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from by_testmon import Testmon
from mutants import Mutant, Mutants
from prepared import Prepared, add_options, names, prepared
from support.selection_lab import Lab, Ran, covers, missed

from watchtest.core.model import All, Only, Selection

MODES = {"ours": "affected", "file level": "conservative"}
WAYS = (*MODES, "testmon")
MEMORY_LIMIT = 6 * 1024**3
"""Mutants may allocate memory endlessly."""
HUNG_FACTOR, HUNG_S = 6.0, 60.0
"""A mutant hangs if the full run takes this many times longer, and at least this many seconds. It cannot be judged."""
MOST_NAMED = 5
PROGRESS_EVERY = 25
UNENDED = "unended"
"""Stands in for the outcome of a test that ended the session."""

Outcomes = dict[str, str]


@dataclass(frozen=True)
class Answer:
    """What one method selected for one mutant. Shares are relative to all tests."""

    first: float
    whole: float
    took_s: float
    missed: tuple[str, ...]


@dataclass(frozen=True)
class Judged:
    """`changed` is the number of tests that changed; None if no run was needed to show that none is missed."""

    mutant: Mutant
    changed: int | None
    full_s: float
    answers: dict[str, Answer]


@dataclass
class Study:
    project: Prepared
    lab: Lab
    testmon: Testmon | None
    is_quick: bool = False
    plain_s: float = 0.0
    base: Outcomes = field(default_factory=dict)
    flaky: set[str] = field(default_factory=set)
    hung: list[int] = field(default_factory=list)
    broken: list[int] = field(default_factory=list)

    def begin(self) -> float:
        """Record the project, find the unreliable tests and return the seconds of a plain run."""
        began = time.perf_counter()
        plain = self.lab.run()
        self.plain_s = took_s = time.perf_counter() - began
        if not plain.outcomes:
            raise SystemExit(f"{self.project.name}: no tests ran:\n{plain.output[-4000:]}")
        recorded = self.lab.record()
        self.base = recorded.outcomes
        self.flaky = differing(plain, self.lab.run()) | differing(plain, recorded)
        self.lab.limit_s = max(HUNG_S, HUNG_FACTOR * took_s)
        if self.testmon is not None:
            self.testmon.record()
        return took_s

    def judge(self, mutant: Mutant, *, with_testmon: bool) -> Judged | None:
        try:
            with mutant.applied(self.project.root):
                judged = self._judged(mutant, with_testmon)
            self._tidy()
            if any(answer.missed for answer in judged.answers.values()):
                judged = self._doubted(judged)
        except subprocess.TimeoutExpired:
            self.hung.append(mutant.number)
            self._tidy()
            return None
        return judged

    def _judged(self, mutant: Mutant, with_testmon: bool) -> Judged:
        # Do this first: what a run leaves behind is a change, too.
        selected = {way: self._selected(mode) for way, mode in MODES.items()}
        if self.is_quick and not with_testmon and all(isinstance(chosen, All) for chosen, _ in selected.values()):
            answers = {way: Answer(1.0, 1.0, took_s, ()) for way, (_, took_s) in selected.items()}
            return Judged(mutant, None, self.plain_s, answers)
        began = time.perf_counter()
        after = self.lab.run()
        full_s = time.perf_counter() - began
        if after.unended:
            self.broken.append(mutant.number)
            after = replace(after, outcomes=self.base | after.outcomes | dict.fromkeys(after.unended, UNENDED))
        answers = {way: self._answer(selection, took_s, after) for way, (selection, took_s) in selected.items()}
        if with_testmon and self.testmon is not None:
            answers["testmon"] = self._by_testmon(self.testmon, after)
        changed = [test for test in self.base.keys() | after.outcomes.keys() if self._has_changed(test, after)]
        return Judged(mutant, len(changed), full_s, answers)

    def _doubted(self, judged: Judged) -> Judged:
        """Drop doubtful misses: a mutant can make tests flaky, and an earlier one may have changed files outside the
        project."""
        with judged.mutant.applied(self.project.root):
            once_more = self.lab.run()
            once_more = replace(once_more, outcomes=once_more.outcomes | dict.fromkeys(once_more.unended, UNENDED))
        self._tidy()
        self.flaky |= {test for test, outcome in self.lab.run().outcomes.items() if self.base.get(test) != outcome}
        answers = {
            way: replace(answer, missed=tuple(test for test in answer.missed if self._has_changed(test, once_more)))
            for way, answer in judged.answers.items()
        }
        return replace(judged, answers=answers)

    def _tidy(self) -> None:
        """Remove whatever a run left in the project before the next mutant is judged."""
        assert self.lab.base is not None
        for path in self.lab.snapshot().entries.keys() - self.lab.base.entries.keys():
            (self.project.root / path).unlink()

    def _has_changed(self, test: str, after: Ran) -> bool:
        return test not in self.flaky and self.base.get(test) != after.outcomes.get(test)

    def _selected(self, mode: str) -> tuple[Selection, float]:
        """Select and measure. Our time includes starting a Python to fingerprint the file, which a box need not do."""
        self.lab.selector.mode = mode
        inputs = self.lab.inputs(self.lab.snapshot())
        began = time.perf_counter()
        selection = asyncio.run(self.lab.selector.select(inputs))
        return selection, time.perf_counter() - began

    def _answer(self, selection: Selection, took_s: float, after: Ran) -> Answer:
        left_out = set(missed(selection, self.base, after.outcomes)) - self.flaky
        whole = [test for test in self.base if covers(selection, test)]
        first = self.base if isinstance(selection, All) else selection.first
        return Answer(self._share(first), self._share(whole), took_s, tuple(sorted(left_out)))

    def _by_testmon(self, testmon: Testmon, after: Ran) -> Answer:
        """Run testmon. A test that no longer exists never counts as missed."""
        chosen = testmon.select()
        red_files = {test for test in chosen.tests if "::" not in test}
        is_seen = Only(tuple(chosen.tests), "what it ran")
        fair = after.outcomes.keys() - set(self.project.real.not_for_testmon)
        changed = [test for test in fair if self._has_changed(test, after)]
        left_out = [] if "." in red_files else [test for test in changed if not covers(is_seen, test)]
        share = self._share(chosen.tests)
        return Answer(share, share, chosen.chosen_s, tuple(sorted(left_out)))

    def _share(self, tests: Iterable[str]) -> float:
        return len(self.base.keys() & set(tests)) / len(self.base)


def differing(one: Ran, other: Ran) -> set[str]:
    tests = one.outcomes.keys() | other.outcomes.keys()
    return {test for test in tests if one.outcomes.get(test) != other.outcomes.get(test)}


# -- telling ---------------------------------------------------------------------------------------


def told(judged: list[Judged], way: str, kind: str) -> str:
    """Return one line of the table."""
    rows = [(one, one.answers[way]) for one in judged if way in one.answers and kind in (one.mutant.kind, "total")]
    if not rows:
        return ""
    changing = "-" if all(one.changed is None for one, _ in rows) else sum(1 for one, _ in rows if one.changed)
    misses, mutants = sum(len(answer.missed) for _, answer in rows), sum(1 for _, answer in rows if answer.missed)
    first, whole, select_s, full_s = (
        statistics.mean(values)
        for values in zip(*((a.first, a.whole, a.took_s, one.full_s) for one, a in rows), strict=True)
    )
    return (
        f"{kind:10} {way:11} {len(rows):7} {changing!s:>8} {mutants:7} {misses:6} {first:7.1%} {whole:7.1%}"
        f" {select_s * 1000:9.0f} {full_s * 1000:9.0f} {select_s / full_s:7.3f}"
    )


HEAD = (
    "kind       way         mutants changing missed: tests   first   whole select ms   full ms   ratio\n"
    "                               outcomes mutants        of all  of all"
)


def tell(judged: list[Judged], study: Study) -> None:
    print(HEAD)
    for kind in (*dict.fromkeys(one.mutant.kind for one in judged), "total"):
        for line in filter(None, (told(judged, way, kind) for way in WAYS)):
            print(line)
    unrun = sum(1 for one in judged if one.changed is None)
    if unrun:
        print(f"{unrun} mutants without a full run: everything is selected for them, so that none can be missed")
    if study.hung:
        print(f"hung and not judged: {', '.join(map(str, study.hung))}")
    if study.broken:
        print(f"ended the session in the middle of a test: {', '.join(map(str, study.broken))}")
    if study.flaky:
        print(f"flaky and not counted: {', '.join(sorted(study.flaky)[:MOST_NAMED])} of {len(study.flaky)}")


def tell_one(one: Judged, study: Study, *, is_alone: bool) -> None:
    for way in WAYS if is_alone else MODES:
        if way in one.answers and one.answers[way].missed:
            tell_miss(one, way)
    if is_alone:
        print(one.mutant.diff(), *(finding.because for finding in study.lab.selector.impacts), sep="\n")


def tell_miss(one: Judged, way: str) -> None:
    left_out = one.answers[way].missed
    print(f"{way} misses {len(left_out)} tests of mutant {one.mutant.number} ({one.mutant.kind}):")
    for test in left_out[:MOST_NAMED]:
        print(f"    {test}")
    print("".join(f"    {line}\n" for line in one.mutant.diff().splitlines()[:40]), flush=True)


def studied(project: Prepared, arguments: argparse.Namespace) -> bool:
    study = Study(project, project.lab(), project.testmon(120.0) if arguments.testmon else None, arguments.quick)
    plain_s = study.begin()
    mutants = Mutants(project.root, project.real.paths, arguments.seed)
    share = arguments.testmon / arguments.mutants
    print(f"\n{project.name}: {len(study.base)} tests, seed {arguments.seed}, a full run {plain_s:.1f} s", flush=True)
    if study.testmon is not None:
        study.testmon.limit_s = study.lab.limit_s * 2
        print(f"testmon on a random part of the mutants, {share:.0%}: it runs its tests, too")
    judged: list[Judged] = []
    try:
        for mutant in mutants.chosen(arguments.only):
            if len(judged) == arguments.mutants:
                break
            is_for_testmon = Random(f"{arguments.seed} testmon {mutant.number}").random() < share
            one = study.judge(mutant, with_testmon=is_for_testmon or arguments.only is not None)
            if one is not None:
                judged.append(one)
                tell_one(one, study, is_alone=arguments.only is not None)
            if mutant.number % PROGRESS_EVERY == 0:
                print(f"{len(judged)} of {arguments.mutants}", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print(f"interrupted after {len(judged)} mutants")
    tell(judged, study)
    return not any(one.answers["ours"].missed for one in judged)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, "jinja2,markdown-it-py,tinydb")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mutants", type=int, default=300)
    parser.add_argument("--testmon", type=int, default=60, help="roughly how many mutants testmon gets; 0 for none")
    parser.add_argument("--quick", action="store_true", help="no full run where all is selected: none can be missed")
    parser.add_argument("--only", type=int, help="the mutant of this number alone")
    arguments = parser.parse_args()
    chosen = names(parser, arguments.project)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, resource.RLIM_INFINITY))
    is_sound = True
    for name in chosen:
        with prepared(name, arguments.python, arguments.keep) as project:
            is_sound &= studied(project, arguments)
    return 0 if is_sound else 1


if __name__ == "__main__":
    sys.exit(main())
