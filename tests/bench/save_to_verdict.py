"""Time from a save to the verdict on one test, compared with common alternatives on the same saves.

    python tests/bench/save_to_verdict.py [--project click] [--rounds N] [--engine docker|local]

Compares three methods on the same real project from the package index and the same edit of one of its modules:

    watchtest      a watcher on the container: from the write of the file to the verdict in the status file
    host watcher   `watchfiles "python -m pytest TEST"` on the host: from the write to the end of pytest
    docker exec    the file copied by `docker cp`, then `docker exec python -m pytest TEST`

Ours must be at most LIMIT times either of the others. Prints medians and ratios; methods that disagree are an error.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from projects import PROJECTS, Unpacked, unpack
from watched import make_repository, next_verdict, status_of, watching

LIMIT = 0.30
START_LIMIT_S = 600.0
SAVE_LIMIT_S = 60.0
REST_S = 0.6
"""A pause between two saves, so that no method is measured while another still works."""

Save = Callable[[int], float]
"""Writes edit number N, waits for the answer and returns the seconds it took."""


def edit(file: Path, original: str, number: int) -> None:
    """Change the file in place, as an editor does, so that the code really differs."""
    file.write_text(f"{original}\n_watchtest_bench = {number}\n")


@contextmanager
def by_watchtest(project: Unpacked, root: Path, engine: str, image: str) -> Iterator[Save]:
    environ = {"WATCHTEST_RUNNER_ARGS": json.dumps([project.test]), "WATCHTEST_BOX_SETUP": json.dumps([project.setup])}
    file, original = root / project.module, (root / project.module).read_text()
    with watching(root, engine, image, environ):
        tree, verdict = next_verdict(root, None, START_LIMIT_S)

        def save(number: int) -> float:
            nonlocal tree
            began = time.perf_counter()
            edit(file, original, number)
            tree, verdict = next_verdict(root, tree, SAVE_LIMIT_S)
            took = time.perf_counter() - began
            must_be_green(verdict, f"watchtest: {status_of(root)}")
            return took

        must_be_green(verdict, f"watchtest: {status_of(root)}")
        yield save


@contextmanager
def by_host_watcher(project: Unpacked, root: Path, python: str) -> Iterator[Save]:
    """Measure `watchfiles`. It does not report when its command ends, so the command writes a file."""
    answer = root.parent / "answer"
    command = f"{python} -m pytest -q {project.test}"
    shell = f"sh -c '{command} >/dev/null 2>&1; echo $? > {answer}'"
    watchfiles = str(Path(sys.executable).parent / "watchfiles")
    file, original = root / project.module, (root / project.module).read_text()
    environ = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    watcher = subprocess.Popen([watchfiles, "--filter", "python", shell, "."], cwd=root, env=environ)
    try:
        wait_for(answer)

        def save(number: int) -> float:
            answer.unlink()
            began = time.perf_counter()
            edit(file, original, number)
            code = wait_for(answer)
            took = time.perf_counter() - began
            must_be_green("passed" if code == "0" else code, "watchfiles")
            return took

        yield save
    finally:
        watcher.terminate()
        watcher.wait(30)


@contextmanager
def by_docker_exec(project: Unpacked, root: Path, watched: Path) -> Iterator[Save]:
    """Measure in a second container with the environment that the watcher made: same packages, same image."""
    box = only_line(["docker", "ps", "-q", "--filter", f"label=watchtest.workspace={watched.resolve()}"])
    image = only_line(["docker", "commit", box])
    unlabelled = ["--label", "watchtest.lane=", "--label", "watchtest.workspace="]  # the watcher must not adopt it
    container = only_line(
        ["docker", "run", "-d", "--init", *unlabelled, "--entrypoint", "sleep", image, "infinity"],
    )
    file, original = root / project.module, (root / project.module).read_text()
    target = f"/workspace/{project.module}"
    run = ["docker", "exec", "-w", "/workspace", container, project.box_python, "-m", "pytest", "-q", project.test]
    try:
        # The image may lack the container's environment variables, so name the virtualenv explicitly.
        subprocess.run(run, check=True, stdout=subprocess.DEVNULL, timeout=120)

        def save(number: int) -> float:
            began = time.perf_counter()
            edit(file, original, number)
            subprocess.run(["docker", "cp", "-q", str(file), f"{container}:{target}"], check=True, timeout=60)
            code = subprocess.run(run, stdout=subprocess.DEVNULL, check=False, timeout=120).returncode
            took = time.perf_counter() - began
            must_be_green("passed" if code == 0 else str(code), "docker exec")
            return took

        yield save
    finally:
        subprocess.run(["docker", "rm", "-f", container], check=False, stdout=subprocess.DEVNULL, timeout=60)
        subprocess.run(["docker", "rmi", "-f", image], check=False, stdout=subprocess.DEVNULL, timeout=60)


def only_line(command: list[str]) -> str:
    output = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    (line,) = output.split()
    return line


def wait_for(file: Path) -> str:
    deadline = time.monotonic() + SAVE_LIMIT_S
    while time.monotonic() < deadline:
        try:
            if text := file.read_text().strip():
                return text
        except FileNotFoundError:
            pass
        time.sleep(0.001)
    raise SystemExit(f"nothing came within {SAVE_LIMIT_S:g} s: {file}")


def must_be_green(verdict: str, who: str) -> None:
    if verdict != "passed":
        raise SystemExit(f"not green but {verdict}: {who}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--project", choices=sorted(PROJECTS), default="click")
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--image", default="watchtest-test/python:3.13")
    parser.add_argument("--rounds", type=int, default=12)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="watchtest-bench-") as folder:
        around = Path(folder).resolve()
        project = unpack(arguments.project, around)
        roots = [around / way / "project" for way in ("watchtest", "host", "exec")]
        for root in roots:
            shutil.copytree(project.root, root)
        make_repository(roots[0])
        python = project.host_python(around / "venv", roots[1])
        times: dict[str, list[float]] = {}
        with by_watchtest(project, roots[0], arguments.engine, arguments.image) as ours:
            ways = {"watchtest": ours}
            with by_host_watcher(project, roots[1], python) as host:
                ways["host watcher"] = host
                if arguments.engine == "docker":
                    with by_docker_exec(project, roots[2], roots[0]) as execution:
                        times = measured({**ways, "docker exec": execution}, arguments.rounds)
                else:
                    times = measured(ways, arguments.rounds)
    return told(f"{arguments.project}: {project.test}, {project.module} saved", times)


def measured(ways: dict[str, Save], rounds: int) -> dict[str, list[float]]:
    for number in (1, 2, 3):  # warm up every method
        for save in ways.values():
            save(number)
            time.sleep(2.0)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for number in range(4, rounds + 4):
        for name, save in ways.items():
            time.sleep(REST_S)
            times[name].append(save(number))
    return times


def told(title: str, times: dict[str, list[float]]) -> int:
    print(title)
    medians = {name: statistics.median(values) for name, values in times.items()}
    ours = medians["watchtest"]
    is_within = True
    for name, median in medians.items():
        ratio = ours / median
        is_within &= name == "watchtest" or ratio <= LIMIT
        spread = f"{min(times[name]) * 1000:.0f}-{max(times[name]) * 1000:.0f}"
        print(f"  {name:13} {median * 1000:6.0f} ms ({spread})   ours / this: {ratio:.2f}")
    print(f"  limit {LIMIT}: {'held' if is_within else 'NOT held'}")
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
