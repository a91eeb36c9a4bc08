"""Whether the memory of the watcher, and of what it keeps in the box, grows with the number of runs.

    python tests/bench/memory.py [--runs N] [--every N]

Saves a tiny project in the local box again as soon as each verdict arrives, and measures the resident memory of the
watcher and all its processes after every `--every` runs. Memory counts as flat if the mean of the last fifth is at most
LIMIT times that of the second fifth (the first one fills bounded caches).
"""

from __future__ import annotations

import argparse
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tiny import descendants, environ, make_project, resident_mib
from watched import next_verdict, watching

LIMIT = 1.05
START_LIMIT_S = 180.0
RUN_LIMIT_S = 60.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--every", type=int, default=50)
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the watcher must not outlive us
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "project"
        root.mkdir()
        make_project(root)
        file = root / "shop.py"
        original = file.read_text()
        own: list[float] = []
        box: list[float] = []
        with watching(root, "local", "auto", environ(root)) as watcher:
            tree, _ = next_verdict(root, None, START_LIMIT_S)
            began = time.monotonic()
            for number in range(1, arguments.runs + 1):
                # Change the body, not just the file, so that each save affects the test and causes a run.
                file.write_text(original.replace("sum(prices)", f"sum(prices) + {number} - {number}"))
                tree, verdict = next_verdict(root, tree, RUN_LIMIT_S)
                if verdict != "passed":
                    raise SystemExit(f"run {number}: {verdict}")
                if number % arguments.every == 0:
                    own.append(resident_mib(watcher.pid))
                    box.append(sum(map(resident_mib, descendants(watcher.pid))))
                    took = (time.monotonic() - began) / number
                    print(f"{number:6} runs  watcher {own[-1]:7.1f} MiB  box {box[-1]:7.1f} MiB  {took:.2f} s a run")
    growths = {"watcher": growth(own), "box": growth(box)}
    for name, (before, after) in growths.items():
        print(f"{name:8} {before:7.1f} MiB → {after:7.1f} MiB: {after / before:.3f}, limit {LIMIT}")
    sys.exit(0 if all(after / before <= LIMIT for before, after in growths.values()) else 1)


def growth(samples: list[float]) -> tuple[float, float]:
    fifth = max(1, len(samples) // 5)
    return statistics.mean(samples[fifth : 2 * fifth] or samples), statistics.mean(samples[-fifth:])


if __name__ == "__main__":
    main()
