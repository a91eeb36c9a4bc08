"""Replay a real git history, commit after commit: is a test whose outcome changes ever left out of the selection?

    python tests/bench/replay_commits.py GIT_DIRECTORY --project jinja2 [--commits 100] [--touching src tests]

The history is cloned into a separate folder. Everything is recorded once, at the first of these commits; from then on
only what is selected is run and recorded, as a watcher would. At each commit one full cold run is the reference: no
test whose outcome differs from the commit before may be left out, and what the watcher would report must be true.

Otherwise the exit code is 1. A test whose outcome differs between two runs of the same commit does not count.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from by_testmon import OFF
from projects import PROJECTS, Unpacked
from support.selection_lab import Lab, covers, missed

from watchtest.core.model import All, Selection

GIT_LIMIT_S = 300.0
MOST_NAMED = 5


@dataclass(frozen=True)
class Step:
    """One commit. `share` is the selected part of the tests; `wrong` lists what the watcher would report
    incorrectly."""

    commit: str
    tests: int
    changed: int
    share: float
    took_s: float
    missed: tuple[str, ...]
    wrong: tuple[str, ...]


class Replay:
    def __init__(self, lab: Lab) -> None:
        self._lab = lab
        self._truth: Mapping[str, str] = {}

    def begin(self) -> int:
        self._truth = self._lab.record().outcomes
        return len(self._truth)

    def step(self, commit: str) -> Step:
        lab, before = self._lab, self._truth
        snapshot = lab.snapshot()
        inputs = lab.inputs(snapshot)
        began = time.perf_counter()
        selection = asyncio.run(lab.selector.select(inputs))
        took_s = time.perf_counter() - began
        self._truth = lab.run().outcomes
        left_out = missed(selection, before, self._truth)
        self._run(selection)
        wrong = [test for test in lab.known.keys() | self._truth.keys() if lab.known.get(test) != self._truth.get(test)]
        if left_out or wrong:
            again = lab.run().outcomes
            steady = {test for test in (*left_out, *wrong) if again.get(test) == self._truth.get(test)}
            left_out, wrong = ([test for test in tests if test in steady] for tests in (left_out, wrong))
        changed = sum(1 for test in before.keys() | self._truth.keys() if before.get(test) != self._truth.get(test))
        share = sum(1 for test in before if covers(selection, test)) / max(len(before), 1)
        lab.known = dict(self._truth)
        return Step(commit, len(self._truth), changed, share, took_s, tuple(left_out), tuple(sorted(wrong)))

    def _run(self, selection: Selection) -> None:
        """Run and record what is selected and take over the outcomes, as the watcher does."""
        lab = self._lab
        snapshot = lab.snapshot()
        inputs = lab.inputs(snapshot)
        if isinstance(selection, All):
            ran = lab.run(record=True)
            lab.known = ran.outcomes
        elif selection.tests:
            ran = lab.run(selection.tests, record=True, first=selection.first, collects_all=selection.collects_all)
            kept = {test: outcome for test, outcome in lab.known.items() if not covers(selection, test)}
            lab.known = kept | ran.outcomes
        lab.base = snapshot
        if isinstance(selection, All) or selection.tests:
            asyncio.run(lab.learn(inputs, ran.recordings))


# -- git -------------------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    command = ["git", "-C", str(folder), *words]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=GIT_LIMIT_S)
    return done.stdout


def commits_of(folder: Path, count: int, touching: list[str]) -> list[str]:
    """Return the last commits, oldest first; each is compared with the one before it."""
    return git(folder, "rev-list", "--first-parent", "--reverse", f"-{count + 1}", "HEAD", "--", *touching).split()


# -- telling ---------------------------------------------------------------------------------------


def tell(step: Step, folder: Path) -> None:
    title = git(folder, "log", "-1", "--format=%h %s", step.commit).strip()[:60]
    print(f"{title:60} {step.tests:6} {step.changed:8} {step.share:8.1%} {len(step.missed):7} {len(step.wrong):6}")
    for word, tests in (("missed", step.missed), ("believed wrongly", step.wrong)):
        for test in tests[:MOST_NAMED]:
            print(f"    {word}: {test}")
    sys.stdout.flush()


def tell_all(steps: list[Step]) -> None:
    changing = sum(1 for step in steps if step.changed)
    share = statistics.mean(step.share for step in steps)
    narrow = sum(1 for step in steps if step.share < 1)
    print(
        f"{len(steps)} commits, {changing} that change outcomes; {narrow} not run as a whole, {share:.1%} selected on"
        f" average, {statistics.median(step.took_s for step in steps) * 1000:.0f} ms to select;"
        f" missed {sum(len(step.missed) for step in steps)}, believed wrongly {sum(len(step.wrong) for step in steps)}"
    )


def replayed(arguments: argparse.Namespace, around: Path) -> bool:
    real = PROJECTS[arguments.project]
    work = around / "work"
    git(around, "clone", "-q", str(arguments.git_directory.resolve()), str(work))
    commits = commits_of(work, arguments.commits, arguments.touching)
    git(work, "checkout", "-q", commits[0])
    python = Unpacked(real, work).host_python(around / "venv", work, arguments.python)
    args = ("-q", "--continue-on-collection-errors", *OFF, *real.args, *real.paths)
    replay = Replay(Lab(work, around / "lab", python, args))
    print(f"{arguments.project}: {replay.begin()} tests at {commits[0][:10]}")
    print(f"{'commit':60}  tests  changed selected  missed  wrong")
    steps = []
    for commit in commits[1:]:
        git(work, "checkout", "-q", commit)
        steps.append(replay.step(commit))
        tell(steps[-1], work)
    tell_all(steps)
    return not any(step.missed or step.wrong for step in steps)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("git_directory", type=Path, help="a repository, bare or not; only read")
    parser.add_argument("--project", default="jinja2", choices=PROJECTS, help="what it is a repository of")
    parser.add_argument("--python", default=sys.executable, help="the Python that the project is to run on")
    parser.add_argument("--commits", type=int, default=100)
    parser.add_argument("--touching", nargs="*", default=[], help="only commits that change one of these paths")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watchtest-bench-") as folder:
        return 0 if replayed(arguments, Path(folder).resolve()) else 1


if __name__ == "__main__":
    sys.exit(main())
