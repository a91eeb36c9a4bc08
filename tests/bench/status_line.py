"""What `watchtest status --line` costs a prompt, as a ratio to an interpreter that does nothing.

    python tests/bench/status_line.py [--rounds N]

Runs three commands in turn, in the same interpreter, round by round: `python -c pass`, the console script `watchtest`,
and `python -m watchtest`. Prints medians of processor time (which other load hardly changes) and of wall-clock time.
The console script must be at most LIMIT times the bare interpreter.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from filelock import FileLock
from support.watcher_states import Story, failed, passed

from watchtest.views.status.status_writer import StatusFile, writer_of_this_process

LIMIT = 3.0
# Compile it, as an installation does.
ENVIRON = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60)
    rounds = parser.parse_args().rounds
    script = Path(sys.executable).with_name("watchtest")
    commands: dict[str, list[str]] = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "watchtest": [str(script), "status", "--line"],
        "python -m watchtest": [sys.executable, "-m", "watchtest", "status", "--line"],
    }
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch)
        (root / ".git").mkdir()
        folder = root / ".watchtest"
        watched(folder)
        with FileLock(folder / "lock"):
            took: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
            for command in commands.values():
                cost(command, root)
            for _ in range(rounds):
                (folder / "heartbeat").touch()
                for name, command in commands.items():
                    took[name].append(cost(command, root))
    base = medians(took["python -c pass"])
    print(f"medians of {rounds} rounds, Python {sys.version.split()[0]}")
    print(f"{'':22}{'processor':>12}{'ratio':>8}{'wall':>12}{'ratio':>8}")
    for name, costs in took.items():
        processor, wall = medians(costs)
        ratios = processor / base[0], wall / base[1]
        print(f"{name:22}{processor * 1000:9.1f} ms{ratios[0]:8.2f}{wall * 1000:9.1f} ms{ratios[1]:8.2f}")
    ratio = medians(took["watchtest"])[0] / base[0]
    print(f"watchtest status --line: {ratio:.2f} of a bare interpreter, limit {LIMIT}")
    sys.exit(0 if ratio <= LIMIT else 1)


def watched(folder: Path) -> None:
    """Write the status of a project with a few hundred tests, three of them red."""
    tests = [passed(f"tests/test_{number // 20}.py::test_{number}") for number in range(300)]
    red = [failed(f"tests/test_red.py::test_{number}") for number in range(3)]
    state = Story(now=time.time() - 5).run("3f2a91c4d5e6", *tests, *red).state
    with StatusFile(folder, writer_of_this_process("0"), on_problem=sys.exit) as file:
        file.show(state, time.time())
        file._state = None  # skip the clean shutdown, so that the status still describes a running watcher


def cost(command: Sequence[str], root: Path) -> tuple[float, float]:
    """Return processor time and wall-clock time in seconds."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, env=ENVIRON, timeout=60, check=False)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1) or ("status" in command and "failed 3 of 303" not in done.stdout.decode()):
        raise SystemExit(f"{command}: exit code {done.returncode}: {done.stdout.decode()}")
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime, wall


def medians(costs: Sequence[tuple[float, float]]) -> tuple[float, float]:
    return statistics.median(cost for cost, _ in costs), statistics.median(wall for _, wall in costs)


if __name__ == "__main__":
    main()
