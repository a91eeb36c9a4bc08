"""Warm and cold runs of whole test suites of real projects must give the same result for every test.

    python tests/bench/real_projects.py [--projects flask,asgiref] [--times 3] [--engine docker|local] [--image IMAGE]

For each project: prepare a box, do one cold run, then the given number of warm and cold runs in turn, saving one of its
modules before each so that warm runs use a session that was started ahead. A test whose outcome differs among the cold
runs is flaky by itself and is listed; any other difference is our defect.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from projects import PROJECTS, Unpacked, unpack

from watchtest.boxes.box import Box
from watchtest.boxes.docker.container_spec import ContainerSpec
from watchtest.boxes.docker.docker_provider import DockerProvider
from watchtest.boxes.docker.engines import find_engine
from watchtest.boxes.docker.images import ImageOwner
from watchtest.boxes.inventory import remove_boxes
from watchtest.boxes.local.local_provider import LocalProvider, LocalSpec
from watchtest.boxes.protocols import (
    BoxProvider,
    BoxSession,
    Command,
    JobLimits,
    JobResult,
    JobSpec,
    NamedImage,
    PytestCommand,
    Recipe,
)
from watchtest.core.model import Entry, EntryKind, Snapshot
from watchtest.sources.tree_id import blob_id
from watchtest.wiring import ca_bundle
from watchtest.workspace.machine import machine_id

LIMITS = JobLimits(600, 300, 5)
READY_LIMIT_S = 120.0
REST_S = 2.0
"""Wait this long before a warm run, so that it can use a session that was started ahead."""
MOST_NAMED = 5

VENV = "/tmp/watchtest-bench-venv"
"""The path of the virtualenv inside the box."""

Outcomes = dict[str, str]


@dataclass
class Ran:
    outcomes: Outcomes
    end: JobResult
    took_s: float


def snapshot_of(root: Path) -> Snapshot:
    files = [path for path in sorted(root.rglob("*")) if path.is_file() and not path.is_symlink()]
    entries = {}
    for path in files:
        content = path.read_bytes()
        mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
        entries[path.relative_to(root).as_posix()] = Entry(EntryKind.FILE, mode, len(content), blob_id(content))
    return Snapshot("tree", entries)


def place_for(engine: str, around: Path) -> BoxProvider:
    if engine == "local":
        return LocalProvider(LocalSpec(around / "box", str(around), python=sys.executable, sandbox="off"), os.environ)
    name = f"watchtest-bench-{os.getpid()}"
    owner = ImageOwner(str(around), machine_id(), f"watchtest/{name}")
    spec = ContainerSpec(f"{name}-save", "save", owner, ca_bundle=ca_bundle("auto", os.environ))
    return DockerProvider(spec, lambda: find_engine(os.environ, "docker"))


async def prepared(box: Box, project: Unpacked, image: str) -> BoxSession:
    recipe = Recipe(NamedImage(image), "the benchmark says so", (), needs_pytest=False, key="bench")
    session, _ = await box.ensure(recipe, lambda _text: None)
    await session.refresh()
    await session.sync(snapshot_of(project.root), lambda path, _entry: (project.root / path).read_bytes())
    setup = f"python3 -m venv --system-site-packages {VENV} && . {VENV}/bin/activate && {project.setup}"
    job = JobSpec(Command(("/bin/sh", "-c", setup)), LIMITS, box.provider.variables)
    end = await session.run(job, lambda _rows: None, lambda _text: None)
    if end.exit_code != 0:
        raise SystemExit(f"the setup of {project.real.requirement} failed:\n{end.output}")
    return session


async def run(session: BoxSession, project: Unpacked, is_warm: bool) -> Ran:
    rows: list[dict[str, Any]] = []
    args = ("-q", *project.real.args, *project.real.paths)
    command = PytestCommand(f"{VENV}/bin/python", args, is_warm=is_warm)
    began = time.perf_counter()
    end = await session.run(JobSpec(command, LIMITS, path_first=(f"{VENV}/bin",)), rows.extend, lambda _text: None)
    took_s = time.perf_counter() - began
    outcomes = {row["test"]: row["outcome"] for row in rows if row["k"] == "test"}
    outcomes |= {row["test"]: "collection error" for row in rows if row["k"] == "collection_error"}
    return Ran(outcomes, end, took_s)


async def save(session: BoxSession, project: Unpacked) -> None:
    with (project.root / project.module).open("a") as stream:
        stream.write("# saved\n")
    await session.refresh()
    await session.sync(snapshot_of(project.root), lambda path, _entry: (project.root / path).read_bytes())


async def warm_run(session: BoxSession, project: Unpacked) -> Ran:
    deadline = time.monotonic() + READY_LIMIT_S
    reasons: set[str] = set()
    while time.monotonic() < deadline:
        await asyncio.sleep(REST_S)
        await save(session, project)
        ran = await run(session, project, is_warm=True)
        if ran.end.is_warm:
            return ran
        reasons.add(ran.end.cold_because)
    raise SystemExit(f"{project.real.requirement} never ran warm: {', '.join(sorted(reasons))}")


async def compared(project: Unpacked, engine: str, image: str, around: Path, times: int) -> bool:
    box = Box(place_for(engine, around))
    try:
        session = await prepared(box, project, image)
        cold = [await run(session, project, is_warm=False)]
        warm = []
        for _ in range(times):
            warm.append(await warm_run(session, project))
            await save(session, project)
            cold.append(await run(session, project, is_warm=False))
    finally:
        await box.close()
        if engine == "docker":
            remove_boxes(str(around), os.environ)
    return told(project, cold, warm)


def told(project: Unpacked, cold: list[Ran], warm: list[Ran]) -> bool:
    tests = sorted({test for ran in (*cold, *warm) for test in ran.outcomes})
    flaky = [test for test in tests if len({ran.outcomes.get(test) for ran in cold}) > 1]
    ours = [
        test
        for test in tests
        if test not in flaky and any(ran.outcomes.get(test) != cold[0].outcomes.get(test) for ran in warm)
    ]
    codes = {ran.end.exit_code for ran in (*cold, *warm)}
    counts: dict[str, int] = {}
    for outcome in cold[0].outcomes.values():
        counts[outcome] = counts.get(outcome, 0) + 1
    words = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items(), key=lambda row: -row[1]))
    is_same = not ours and (len(codes) == 1 or bool(flaky)) and bool(tests)
    seconds = [f"{statistics.median(ran.took_s for ran in runs):7.2f}" for runs in (cold, warm)]
    name = project.real.requirement
    print(
        f"{name:15} {len(tests):6}  {'yes' if is_same else 'NO':4} x{len(warm)} {' '.join(seconds)}  {words}",
        flush=True,
    )
    for what, names in (("flaky when cold", flaky), ("differs when warm", ours)):
        for test in names[:MOST_NAMED]:
            seen = [[ran.outcomes.get(test, "-") for ran in runs] for runs in (cold, warm)]
            print(f"    {what}: {test}: cold {', '.join(seen[0])}; warm {', '.join(seen[1])}")
    return is_same


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--projects", default="more-itertools,asgiref,werkzeug,uncertainties,flask")
    parser.add_argument("--times", type=int, default=3)
    parser.add_argument("--engine", choices=("docker", "local"), default="docker")
    parser.add_argument("--image", default="watchtest-test/python:3.13")
    arguments = parser.parse_args()
    unknown = [name for name in arguments.projects.split(",") if name not in PROJECTS]
    if unknown:
        parser.error(f"no such project: {', '.join(unknown)}; there are {', '.join(PROJECTS)}")
    print("project          tests  same       cold    warm  (seconds) outcomes")
    is_same = True
    for name in arguments.projects.split(","):
        with tempfile.TemporaryDirectory(prefix="watchtest-bench-") as folder:
            around = Path(folder).resolve()
            project = unpack(name, around)
            is_same &= asyncio.run(compared(project, arguments.engine, arguments.image, around, arguments.times))
    return 0 if is_same else 1


if __name__ == "__main__":
    sys.exit(main())
