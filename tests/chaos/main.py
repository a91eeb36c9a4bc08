"""The driver: draws the steps, rests in between, keeps a journal, and stops at the first difference.

    python tests/chaos --seed 1 --steps 2000
    python tests/chaos --seed 1 2 3 4 5 --steps 2000 --jobs 2

A seed and the number of a step determine what is drawn, so a violation can be repeated from the start of its stretch
with `--from`. Every stretch of 250 steps has a fresh project. `--engine auto` uses Docker for every fifth seed.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from chaos import faults
from chaos.judge import python_with_pytest
from chaos.steps import STEPS
from chaos.world import LANES, NotNow, Violation, World, open_world

STRETCH = 250
STEPS_TO_REST = 6
TAIL = 20
POLICIES = {"save": "affected", "stage": "affected", "commit": "all"}
EVERY_FIFTH = 5

Say = Callable[[str], None]


def main(argv: Sequence[str]) -> int:
    options = _parse(argv)
    if len(options.seed) > 1:
        return _run_side_by_side(options)
    return run_seed(
        options.seed[0],
        steps=options.steps,
        first=options.first,
        engine=options.engine,
        lanes=options.lanes.split(",") if options.lanes else (),
        folder=options.folder,
        say=lambda text: print(text, flush=True),
    )


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests/chaos", description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    parser.add_argument("--steps", type=int, default=200, help="steps per seed (default: 200)")
    text = "the step to begin with, rounded down to the start of a stretch"
    parser.add_argument("--from", dest="first", type=int, default=0, help=text)
    parser.add_argument("--engine", choices=("auto", "local", "docker"), default="auto")
    parser.add_argument("--lanes", default="", help="such as save,commit; by default other ones in each stretch")
    parser.add_argument("--jobs", type=int, default=2, help="seeds that run at the same time (default: 2)")
    parser.add_argument("--folder", type=Path, help="where projects and journals are kept (default: a temporary one)")
    return parser.parse_args(argv)


def _run_side_by_side(options: argparse.Namespace) -> int:
    """Run each seed in a process of its own; their lines are printed as they come."""
    began, waiting, running, codes = time.monotonic(), list(options.seed), [], []
    rest = ["--steps", str(options.steps), "--from", str(options.first), "--engine", options.engine]
    rest += ["--lanes", options.lanes] if options.lanes else []
    rest += ["--folder", str(options.folder)] if options.folder else []
    while waiting or running:
        while waiting and len(running) < options.jobs:
            command = [sys.executable, str(Path(__file__).parent), "--seed", str(waiting.pop(0)), *rest]
            running.append(subprocess.Popen(command))
        codes += [process.returncode for process in running if process.poll() is not None]
        running = [process for process in running if process.returncode is None]
        time.sleep(0.2)
    took_s, steps = time.monotonic() - began, options.steps * len(options.seed)
    failed = sum(map(bool, codes))
    rate = f", {steps / took_s:.1f} per second" if not failed else ""
    print(f"{steps} steps in {took_s:.0f} s{rate}; {failed} of {len(codes)} seeds found a difference")
    return max(codes)


def run_seed(
    seed: int,
    *,
    steps: int,
    first: int = 0,
    engine: str = "auto",
    lanes: Sequence[str] = (),
    folder: Path | None = None,
    say: Say,
) -> int:
    """Take the steps of one seed. Return 0, or 1 after a violation, whose evidence is kept."""
    engine = ("local" if seed % EVERY_FIFTH else "docker") if engine == "auto" else engine
    base = Path(tempfile.mkdtemp(prefix=f"chaos-{seed}-", dir=folder))
    python = python_with_pytest(base)
    first -= first % STRETCH
    began = time.monotonic()
    for start in range(first, first + steps, STRETCH):
        around = base / f"from-{start}"
        count = min(STRETCH, first + steps - start)
        try:
            rests = run_stretch(seed, start, count, engine, lanes, python, around, say)
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            tail = (around / "journal.jsonl").read_text().splitlines()[-TAIL:]
            what = str(error) if isinstance(error, AssertionError) else traceback.format_exc()
            say("\n".join([*tail, what, f"seed {seed}, engine {engine}: evidence in {around}"]))
            again = f"python tests/chaos --seed {seed} --from {start} --steps {count} --engine {engine}"
            say(f"again: {again}{' --lanes ' + ','.join(lanes) if lanes else ''}")
            return 1
        shutil.rmtree(around)
        rate = (start + count - first) / (time.monotonic() - began)
        say(f"seed {seed}: {start + count} steps, {rests} rests in the last {count}, {rate:.1f} steps per second")
    shutil.rmtree(base)
    return 0


def run_stretch(
    seed: int, start: int, count: int, engine: str, lanes: Sequence[str], python: Path, around: Path, say: Say
) -> int:
    """Take the steps of one stretch in a fresh project; return how often it was compared."""
    chance = random.Random(f"{seed}/{start}/settings")
    drawn = chance.choice((LANES, LANES, ("save",), ("save", "stage"), ("save", "commit"), ("stage", "commit")))
    settings = {
        "WATCHTEST_RUNNER_ON_CHANGE": chance.choice(("smart", "smart", "restart", "queue")),
        "WATCHTEST_RUNNER_WARM": chance.choice(("auto", "auto", "auto", "off")),
        "WATCHTEST_SELECTION_AUDIT_RUNS": chance.choice(("50", "5", "0")),
    }
    lanes = lanes or drawn
    around.mkdir(parents=True)
    table, weights = list(STEPS), list(STEPS.values())
    with (
        (around / "journal.jsonl").open("w", buffering=1) as journal,
        open_world(around, engine, {lane: POLICIES[lane] for lane in lanes}, python, settings) as world,
    ):
        json.dump({"seed": seed, "from": start, "engine": engine, "lanes": lanes, **settings}, journal)
        journal.write("\n")
        try:
            world.rest()
            for number in range(start, start + count):
                world.number, world.random = number, random.Random(f"{seed}/{number}")
                name, words, took_s = take_step(world, table, weights)
                journal.write(json.dumps({"step": number, "name": name, "words": words, "s": round(took_s, 2)}) + "\n")
                if world.random.random() < 1 / STEPS_TO_REST or number == start + count - 1:
                    began = time.monotonic()
                    world.rest()
                    journal.write(json.dumps({"rest": number, "s": round(time.monotonic() - began, 2)}) + "\n")
            world.finish()
        except AssertionError:
            (around / "status.json").write_text(json.dumps(world.watcher.status, indent=1))
            raise
        return world.rests


def take_step(world: World, table: Sequence[Callable[[World], str]], weights: Sequence[int]) -> tuple[str, str, float]:
    """Take one step, drawing again while what was drawn is not possible; return its name, words and duration."""
    began = time.monotonic()
    while True:
        (step,) = world.random.choices(table, weights)
        try:
            return step.__name__, step(world), time.monotonic() - began
        except NotNow:
            continue


__all__ = ["Violation", "faults", "main", "run_seed"]
