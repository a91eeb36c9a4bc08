"""What a save costs in a huge workspace, as a ratio to a small one, in the same session on the same machine.

    python tests/bench/many_files.py [--engine docker|local] [--saves N]

The huge workspace has 100,000 files, 90,000 of them ignored; the small one has 100. Both hold the same test. Prints the
median time from the write of one file to the verdict on its tree, how many folders each watcher subscribes to, and the
ratio, which must stay below 1.5.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

from watched import make_repository, next_verdict, watching

LIMIT = 1.5
START_LIMIT_S = 300.0
SAVE_LIMIT_S = 60.0


def fill(root: Path, kept: int, ignored: int) -> None:
    (root / "test_it.py").write_text("from code_of import X\n\n\ndef test_it():\n    assert X >= 0\n")
    (root / "code_of.py").write_text("X = 0\n")
    (root / "pytest.ini").write_text("[pytest]\ntestpaths = test_it.py\n")
    (root / ".gitignore").write_text("heap/\n__pycache__/\n.pytest_cache/\n")
    for folder, count in (("data", kept - 4), ("heap", ignored)):
        for number in range(count):
            file = root / folder / str(number % 200) / f"{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(str(number))
    make_repository(root)


def subscriptions(pid: int) -> int:
    """Return how many folders the process watches with inotify."""
    count = 0
    for file in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            count += file.read_text().count("inotify wd:")
        except OSError:
            continue
    return count


def measure(root: Path, engine: str, image: str, saves: int) -> tuple[float, int, float]:
    began = time.perf_counter()
    with watching(root, engine, image) as watcher:
        tree, _ = next_verdict(root, None, START_LIMIT_S)
        started_s = time.perf_counter() - began
        times = []
        for number in range(1, saves + 1):
            time.sleep(0.5)
            began = time.perf_counter()
            (root / "code_of.py").write_text(f"X = {number}\n")
            tree, _ = next_verdict(root, tree, SAVE_LIMIT_S)
            times.append(time.perf_counter() - began)
        return statistics.median(times), subscriptions(watcher.pid), started_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--image", default="watchtest-test/python:3.13")
    parser.add_argument("--saves", type=int, default=15)
    arguments = parser.parse_args()
    found = {}
    for name, kept, ignored in (("small", 100, 0), ("huge", 10_000, 90_000)):
        with tempfile.TemporaryDirectory(prefix="watchtest-bench-") as folder:
            root = Path(folder).resolve() / "project"
            root.mkdir()
            fill(root, kept, ignored)
            found[name], watched, started_s = measure(root, arguments.engine, arguments.image, arguments.saves)
        words = (
            f"{name:<6} {kept:>6} files, {ignored:>6} ignored: save to verdict {found[name] * 1000:.0f} ms (median of"
        )
        print(
            f"{words} {arguments.saves}), {watched} folders watched, first verdict after {started_s:.1f} s", flush=True
        )
    ratio = found["huge"] / found["small"]
    print(f"ratio {ratio:.2f}, limit {LIMIT}: {'held' if ratio <= LIMIT else 'BROKEN'}")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
