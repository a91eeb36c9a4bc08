"""Time from a save to the verdict in a project with a version from git, compared with the same project without.

    python tests/bench/box_git.py [--engine docker|local] [--files 2000] [--commits 2000] [--rounds N]

Both projects have the same files and the same history, and their saves alternate. One takes its version from git by
setuptools-scm, so its box has a git repository; the other one has a fixed version and `box.git = false`. The ratio of
the medians must be at most LIMIT.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from watched import make_repository, next_verdict, watching

LIMIT = 1.10
START_LIMIT_S = 600.0
SAVE_LIMIT_S = 60.0
REST_S = 0.4
PROJECT = """[build-system]
requires = ["setuptools>=64"{scm}]
build-backend = "setuptools.build_meta"
[project]
name = "sample"
{version}
[tool.setuptools]
py-modules = ["shop"]
{table}
"""
FROM_GIT = {"scm": ', "setuptools-scm>=8"', "version": 'dynamic = ["version"]', "table": "[tool.setuptools_scm]"}
FIXED = {"scm": "", "version": 'version = "1.0"', "table": ""}
TEST = "import shop\n\ndef test_shop():\n    assert shop.price() > 0\n"


def make_project(root: Path, words: dict[str, str], files: int, commits: int) -> None:
    root.mkdir(parents=True)
    (root / "pyproject.toml").write_text(PROJECT.format(**words))
    (root / "shop.py").write_text("def price():\n    return 1\n")
    (root / "test_shop.py").write_text(TEST)
    for number in range(files):
        file = root / f"data/{number % 20}/{number}.txt"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{number}\n" * 50)
    make_repository(root)
    stream = b"".join(
        b"commit refs/heads/history\ncommitter a <a@b> %d +0000\ndata 0\n" % at for at in range(1, commits + 1)
    )
    subprocess.run(["git", "fast-import", "--quiet"], cwd=root, input=stream, check=True, timeout=120)
    merge = ("-c", "user.name=a", "-c", "user.email=a@b", "merge", "--quiet", "--allow-unrelated-histories", "-m", "x")
    for command in (("tag", "v1.0", "history"), (*merge, "history")):
        subprocess.run(["git", *command], cwd=root, check=True, timeout=120)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--image", default="watchtest-test/python:3.13")
    parser.add_argument("--files", type=int, default=2000)
    parser.add_argument("--commits", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=30)
    arguments = parser.parse_args()
    times: dict[str, list[float]] = {"from git": [], "fixed": []}
    with tempfile.TemporaryDirectory(prefix="watchtest-bench-") as folder, ExitStack() as stack:
        roots = {name: Path(folder).resolve() / name.replace(" ", "-") / "project" for name in times}
        trees: dict[str, str] = {}
        for name, root in roots.items():
            make_project(root, FROM_GIT if name == "from git" else FIXED, arguments.files, arguments.commits)
            environ = {"WATCHTEST_BOX_GIT": json.dumps(name == "from git")}
            stack.enter_context(watching(root, arguments.engine, arguments.image, environ))
            trees[name], verdict = next_verdict(root, None, START_LIMIT_S)
            must_be_green(name, verdict)
        for number in range(-3, arguments.rounds):  # the first ones warm up
            for name, root in roots.items():
                time.sleep(REST_S)
                began = time.perf_counter()
                (root / "shop.py").write_text(f"def price():\n    return {number + 10}\n")
                trees[name], verdict = next_verdict(root, trees[name], SAVE_LIMIT_S)
                if number >= 0:
                    times[name].append(time.perf_counter() - began)
                must_be_green(name, verdict)
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(
            f"  version {name:9} {median * 1000:6.1f} ms ({min(times[name]) * 1000:.0f}-{max(times[name]) * 1000:.0f})"
        )
    ratio = medians["from git"] / medians["fixed"]
    print(f"  ratio {ratio:.2f}, limit {LIMIT}: {'held' if ratio <= LIMIT else 'NOT held'}")
    return 0 if ratio <= LIMIT else 1


def must_be_green(name: str, verdict: str) -> None:
    if verdict != "passed":
        raise SystemExit(f"not green but {verdict}: version {name}")


if __name__ == "__main__":
    sys.exit(main())
