"""Time from a change of one function to the selection, in a generated project with thousands of tests.

    python tests/bench/selection_speed.py [--tests 5000] [--modules 400] [--rounds 30] [--seed 1]

The project is really written, run and recorded; then one function after the other is changed. The measured time begins
with the two trees and ends with the selection. It includes the fingerprint of the changed file, computed as the agent
does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from random import Random

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.selection_lab import Lab

from watchtest.agent.code.fingerprints import fingerprint_of
from watchtest.core.model import All, Selection
from watchtest.core.recorded import FileFingerprint
from watchtest.selection.recorded_rows import parse_fingerprint

LIMIT_S = 0.020
TESTS_PER_FILE = 25
FUNCTIONS = 20
CALLS = 12
"""How many functions each test calls; each of them calls a function of a lower module."""
IMPORTS = 4
"""How many modules each module imports."""


def write_project(root: Path, tests: int, modules: int, random: Random) -> None:
    package = root / "generated"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    for number in range(modules):
        (package / f"m{number}.py").write_text(_module(number, random))
    (root / "tests").mkdir()
    for start in range(0, tests, TESTS_PER_FILE):
        text = _test_file(min(TESTS_PER_FILE, tests - start), modules, random)
        (root / "tests" / f"test_{start // TESTS_PER_FILE}.py").write_text(text)


def _module(number: int, random: Random) -> str:
    below = sorted(random.sample(range(number), min(IMPORTS, number)))
    lines = [f"from generated import m{other}" for other in below] + [f"LIMIT = {number}"]
    for function in range(FUNCTIONS):
        call = f"m{random.choice(below)}.f{random.randrange(FUNCTIONS)}(depth - 1)" if below else "0"
        lines += ["", "", f"def f{function}(depth):", f"    return {function} + ({call} if depth else 0)"]
    return "\n".join(lines) + "\n"


def _test_file(count: int, modules: int, random: Random) -> str:
    used = sorted(random.sample(range(modules), CALLS))
    lines = [f"from generated import m{number}" for number in used]
    for number in range(count):
        calls = [f"    m{module}.f{random.randrange(FUNCTIONS)}({random.randrange(4)})" for module in used]
        lines += ["", "", f"def test_{number}():", *calls]
    return "\n".join(lines) + "\n"


async def timed(lab: Lab, function: int, module: str) -> tuple[float, float, Selection]:
    """Change the function, measure the selection and undo the change."""
    file = lab.root / module
    source = file.read_text()
    file.write_text(source.replace(f"return {function} +", f"return {time.perf_counter_ns()} +"))
    inputs = replace(lab.inputs(lab.snapshot()), fetch=_prints_by_the_agent(lab.root))
    began, cpu_began = time.perf_counter(), time.process_time()
    selection = await lab.selector.select(inputs)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    file.write_text(source)
    return took_s, cpu_s, selection


def _prints_by_the_agent(root: Path):  # type: ignore[no-untyped-def]
    async def fetch(paths: Collection[str]) -> Mapping[str, FileFingerprint]:
        return {path: parse_fingerprint(fingerprint_of(str(root), path)) for path in paths}

    return fetch


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, default=5000)
    parser.add_argument("--modules", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    random = Random(arguments.seed)
    with tempfile.TemporaryDirectory(prefix="watchtest-bench-") as folder:
        root = Path(folder).resolve() / "project"
        write_project(root, arguments.tests, arguments.modules, random)
        lab = Lab(root, root.parent / "home", args=("-q", "-p", "no:cacheprovider", "tests"))
        recorded = lab.record()
        print(f"{len(recorded.outcomes)} tests, {arguments.modules} modules, {arguments.modules * FUNCTIONS} functions")
        took, cpu, shares = [], [], []
        for number in range(arguments.rounds + 1):
            module = f"generated/m{random.randrange(arguments.modules)}.py"
            took_s, cpu_s, selection = asyncio.run(timed(lab, random.randrange(FUNCTIONS), module))
            if number:  # the first one warms up
                took.append(took_s)
                cpu.append(cpu_s)
                shares.append(1.0 if isinstance(selection, All) else len(selection.tests) / len(recorded.outcomes))
    median = statistics.median(took)
    spread = f"from {min(took) * 1000:.1f} to {max(took) * 1000:.1f}"
    print(f"from delta to selection: median {median * 1000:.1f} ms, {spread}; {statistics.mean(shares):.1%} selected")
    print(f"processor time of that: median {statistics.median(cpu) * 1000:.1f} ms")
    print(f"limit {LIMIT_S * 1000:.0f} ms {'held' if median <= LIMIT_S else 'NOT HELD'}")
    return 0 if median <= LIMIT_S else 1


if __name__ == "__main__":
    sys.exit(main())
