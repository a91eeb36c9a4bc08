"""What recording costs: the processor time of full runs of real test suites, against plain pytest and pytest-testmon.

    python tests/bench/recording_overhead.py [--project jinja2,attrs,more-itertools,click] [--rounds 5]

Runs all methods in turn, round after round, so that other load on the machine affects them alike; the median of each
round's ratios counts. Ours must be at most LIMIT times plain pytest. If a method does not finish every test, or
recording changes an outcome, the benchmark stops with an error.
"""

from __future__ import annotations

import argparse
import os
import re
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
AGENT = Path(__file__).resolve().parents[2] / "watchtest" / "agent"
RUN_LIMIT_S = 900.0

Way = Callable[[], int]
"""A full run; returns how many tests finished."""


def ways_of(project: Prepared) -> dict[str, Way]:
    lab, testmon = project.lab(), project.testmon(RUN_LIMIT_S)
    # Installed packages are compiled; the first run compiles the agent in a box, too.
    subprocess.run([project.python, "-m", "compileall", "-q", str(AGENT)], check=True, timeout=RUN_LIMIT_S)

    def plain() -> int:
        command = [project.python, "-m", "pytest", "-q", *OFF, *project.args]
        env = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=project.root, env=env, capture_output=True, text=True, timeout=RUN_LIMIT_S)
        return counted(done.stdout)

    return {
        "plain": plain,
        "reporting": lambda: counted(lab.run().output),
        "recording": lambda: counted(lab.run(record=True).output),
        "testmon": lambda: len(testmon.record().tests) + len(project.real.not_for_testmon),
    }


def counted(output: str) -> int:
    """Count the tests in pytest's last line. Errors are left out: one after a test comes with that test's own count."""
    last = output.rstrip().rpartition("\n")[2]
    return sum(int(count) for count in re.findall(r"(\d+) (?:passed|failed|skipped|xfailed|xpassed)", last))


def cpu_s(way: Way, tests: int) -> float:
    """Return the processor time of the processes it starts and of their children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    ran = way()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if ran < tests:
        raise SystemExit(f"only {ran} of {tests} tests came to an end: this measures nothing")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def disturbed(project: Prepared) -> list[str]:
    """Return the tests whose outcome differs only when they are recorded."""
    lab = project.lab()
    plain, recorded, again = lab.run().outcomes, lab.run(record=True).outcomes, lab.run().outcomes
    tests = sorted(plain.keys() | recorded.keys())
    return [test for test in tests if plain.get(test) == again.get(test) != recorded.get(test)]


def measured(project: Prepared, rounds: int, random: Random) -> tuple[int, dict[str, float]]:
    """Return the number of tests and, for each method, the median ratio to plain pytest."""
    ways = ways_of(project)
    tests = ways["plain"]()
    for way in ways.values():
        cpu_s(way, tests)
    ratios: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        order = random.sample(list(ways), len(ways))
        took = {name: cpu_s(ways[name], tests) for name in order}
        for name in ways:
            ratios[name].append(took[name] / took["plain"])
    return tests, {name: statistics.median(values) for name, values in ratios.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, "jinja2,attrs,more-itertools,click")
    parser.add_argument("--seed", type=int, default=1, help="for the order of the ways in each round")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    chosen = names(parser, arguments.project)
    print("processor time as ratios to plain pytest\nproject          tests  reporting recording  testmon")
    is_held = True
    for name in chosen:
        with prepared(name, arguments.python, arguments.keep) as project:
            if changed := disturbed(project):
                print(f"{name:15} recording changes {len(changed)} outcomes: {', '.join(changed[:5])}", flush=True)
                is_held = False
                continue
            count, ratios = measured(project, arguments.rounds, Random(arguments.seed))
        is_held &= ratios["recording"] <= LIMIT
        words = "held" if ratios["recording"] <= LIMIT else "NOT HELD"
        columns = f"{ratios['reporting']:10.2f} {ratios['recording']:9.2f} {ratios['testmon']:8.2f}"
        print(f"{name:15} {count:6} {columns}   limit {LIMIT} {words}", flush=True)
    return 0 if is_held else 1


if __name__ == "__main__":
    sys.exit(main())
