"""What recording costs: the processor time of full runs of real test suites, against plain pytest and pytest-testmon.

    python tests/bench/recording_overhead.py [--project jinja2,attrs,more-itertools,click] [--rounds 5]

All ways in turn, round after round, so that whatever else the machine does meets them alike; the median of the ratios
of each round counts. Ours has to be at most LIMIT of plain pytest.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from by_testmon import OFF
from prepared import Prepared, add_options, names, prepared

LIMIT = 1.25
RUN_LIMIT_S = 900.0

Way = Callable[[], object]


def ways_of(project: Prepared) -> dict[str, Way]:
    lab, testmon = project.lab(), project.testmon(RUN_LIMIT_S)

    def plain() -> None:
        command = [project.python, "-m", "pytest", "-q", *OFF, *project.args]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        subprocess.run(command, cwd=project.root, env=env, stdout=subprocess.DEVNULL, timeout=RUN_LIMIT_S)

    return {
        "plain": plain,
        "reporting": lambda: lab.run(),
        "recording": lambda: lab.run(record=True),
        "testmon": testmon.record,
    }


def cpu_s(way: Way) -> float:
    """Of the processes that it starts, and of theirs."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    way()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measured(project: Prepared, rounds: int, random: Random) -> dict[str, float]:
    """By way, the median of its ratios to plain pytest."""
    ways = ways_of(project)
    for way in ways.values():
        way()
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        order = random.sample(list(ways), len(ways))
        took = {name: cpu_s(ways[name]) for name in order}
        for name in ways:
            ratios[name].append(took[name] / took["plain"])
    return {name: statistics.median(values) for name, values in ratios.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, "jinja2,attrs,more-itertools,click")
    parser.add_argument("--seed", type=int, default=1, help="for the order of the ways in each round")
    parser.add_argument("--rounds", type=int, default=5)
    wishes = parser.parse_args()
    chosen = names(parser, wishes.project)
    print("processor time as ratios to plain pytest\nproject          tests  reporting recording  testmon")
    is_held = True
    for name in chosen:
        with prepared(name, wishes.python, wishes.keep) as project:
            count = len(project.lab().run().outcomes)
            ratios = measured(project, wishes.rounds, Random(wishes.seed))
        is_held &= ratios["recording"] <= LIMIT
        words = "held" if ratios["recording"] <= LIMIT else "NOT HELD"
        columns = f"{ratios['reporting']:10.2f} {ratios['recording']:9.2f} {ratios['testmon']:8.2f}"
        print(f"{name:15} {count:6} {columns}   limit {LIMIT} {words}", flush=True)
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
