"""`watchtest history flaky`: find tests that pass and fail on the same code.

List flaky tests with the runs that prove it, or probe one test by running it repeatedly.

    watchtest history flaky
    watchtest history flaky --probe test_total -n 50
"""

from __future__ import annotations

import argparse
import time
from contextlib import aclosing, nullcontext
from typing import TYPE_CHECKING

from watchtest.client import history_access, history_options
from watchtest.client.history_tables import Screen, format_time
from watchtest.commands import add_engine, load_project
from watchtest.core.text import count, short
from watchtest.errors import UsageError
from watchtest.history.queries.flaky_tests import Evidence, FlakyStatus, FlakyTest, flaky_tests
from watchtest.history.queries.test_names import find_tests
from watchtest.history.store.columns import OUTCOMES, Proof
from watchtest.history.store.database import Connection
from watchtest.history.store.database_file import history_path
from watchtest.history.store.store import Store
from watchtest.workspace.folder import FOLDER
from watchtest.workspace.lock import FolderLock

if TYPE_CHECKING:
    from watchtest.client.flaky_probe import Repeat
    from watchtest.config import Project

DEFAULT_TIMES = 20
LOCK_LIMIT_S = 600.0
STYLES = {FlakyStatus.FLAKY: "bold yellow", FlakyStatus.BROKEN: "bold red", FlakyStatus.RECOVERED: "green"}


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--all", action="store_true", help="include tests that have recovered")
    history_options.add_limit(parser, "--runs", 200, "look at the latest N runs")
    parser.add_argument("--probe", metavar="ID", help="run this test repeatedly on the code as it is now")
    text = f"with --probe: how many times (default: {DEFAULT_TIMES})"
    parser.add_argument("-n", dest="times", type=history_options.parse_limit, metavar="N", help=text)
    add_engine(parser)
    history_options.add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.probe:
        return _probe(arguments)
    if arguments.times:
        raise UsageError("history flaky -n: this option needs --probe", hint="--runs N looks at N runs")

    def query(connection: Connection) -> tuple[FlakyTest, ...]:
        runs, window = history_options.chosen_runs(arguments), arguments.runs
        return flaky_tests(connection, runs, time.time(), window=window, with_recovered=arguments.all)

    found = history_access.query_history(arguments, query, ())
    return history_access.print_answer(arguments, {"tests": found}, lambda: _print(found, with_recovered=arguments.all))


def _print(found: tuple[FlakyTest, ...], *, with_recovered: bool) -> None:
    screen = Screen()
    if not found:
        hint = "" if with_recovered else "; --all includes recovered ones"
        screen.print(f"no flaky tests are known{hint}", wrap=True)
    for test in found:
        _print_test(screen, test)
    if any(test.standing is FlakyStatus.UNSTABLE for test in found):
        text = "\nto check whether an unstable test is flaky: watchtest history flaky --probe ID"
        screen.print(text, style="dim", wrap=True)


def _print_test(screen: Screen, test: FlakyTest) -> None:
    indent = " " * 11
    screen.print(screen.text(f"{test.standing.value:<9}  ", STYLES.get(test.standing, "")), test.identity)
    screen.print(indent, screen.outcome_strip(OUTCOMES[code] for code in test.codes[-max(10, screen.width - 11) :]))
    doubt = "; no proof, edits may be the cause" if test.standing is FlakyStatus.UNSTABLE else ""
    numbers = f"red in {test.failures} of {count(test.runs, 'run')}, {count(test.flips, 'flip')}"
    screen.print(f"{indent}{numbers}{doubt}", style="dim", wrap=True)
    if test.standing is FlakyStatus.UNSTABLE:
        return
    if test.signature:
        screen.print(f"{indent}{test.signature}", style="red")
    if test.standing is FlakyStatus.BROKEN:
        screen.print(f"{indent}it was flaky, but is red in all of the latest runs", style="dim")
    for evidence in test.evidence:
        screen.print(f"{indent}{_proof(evidence)}")
    if test.proofs > len(test.evidence):
        screen.print(f"{indent}… and {test.proofs - len(test.evidence)} more such pairs", style="dim")


def _proof(evidence: Evidence) -> str:
    words = {
        Proof.RUNS: f"failed in {evidence.failed_run}, passed in {evidence.passed_run}",
        Proof.RERUN: f"in {evidence.failed_run} the runner repeated it until it passed",
        Proof.REPEAT: f"failed in {evidence.failed_run} and passed when that run was repeated",
    }
    return f"{words[evidence.proof]} (tree {short(evidence.tree)}, {format_time(evidence.at)})"


def _probe(arguments: argparse.Namespace) -> int:
    import asyncio

    # Each repetition runs in its own process; a failure in a warm one would first have to be confirmed.
    project = load_project(arguments, {"runner.warm": "off"})
    name: str = arguments.probe
    test = history_access.query_history(arguments, lambda connection: _test_id(connection, name), name)
    try:
        # The probe uses the box of the gate, which only one process may use at a time.
        with FolderLock(project.workspace / FOLDER, "gate.lock", LOCK_LIMIT_S):
            repeats = asyncio.run(_repeat(arguments, project, test))
    except TimeoutError as error:
        raise UsageError("history flaky --probe: a gate or another probe is running", hint="try again later") from error
    red = [repeat for repeat in repeats if repeat.is_red]
    document = {
        "test": test,
        "tree": repeats[0].tree if repeats else None,
        "times": len(repeats),
        "failed": len(red),
        "flaky": 0 < len(red) < len(repeats),
        "runs": [{"id": repeat.run, "red": repeat.is_red, "state": repeat.state} for repeat in repeats],
    }
    history_access.print_answer(arguments, document, lambda: _print_probe(len(repeats), red))
    return 1 if red else 0


def _test_id(connection: Connection, name: str) -> str:
    """Return the id of the only test with this name; the name itself if it has never run."""
    if not find_tests(connection, name):
        return name
    return history_access.require_test(connection, name, "flaky --probe").identity


async def _repeat(arguments: argparse.Namespace, project: Project, test: str) -> list[Repeat]:
    from watchtest.client.flaky_probe import probe
    from watchtest.wiring import build_worktree, choose_provider

    screen = Screen()
    repeats: list[Repeat] = []
    provider = choose_provider(project, "gate", lambda text: None)
    path = history_path(project.dirs.state, project.workspace)
    try:
        with Store(path) if project.config.history.enabled else nullcontext() as store:
            source = build_worktree(project)
            times = arguments.times or DEFAULT_TIMES
            async with aclosing(probe(project, source, provider, test, times, store)) as running:
                async for repeat in running:
                    repeats.append(repeat)
                    if not repeat.results:
                        hint = "give the id that `watchtest history show --tests` prints"
                        raise UsageError(f"history flaky --probe {test}: there is no such test", hint=hint)
                    if arguments.json:
                        continue
                    if len(repeats) == 1:
                        screen.print(f"{test} on tree {short(repeat.tree)}")
                    screen.console.print(screen.outcome_strip(each.outcome for each in repeat.results), end="")
    finally:
        provider.close()
        if repeats and not arguments.json:
            screen.print()
    return repeats


def _print_probe(times: int, red: list[Repeat]) -> None:
    screen = Screen()
    if not red:
        screen.print(f"passed {times} of {times} times", style="green")
        # By the rule of three, with a confidence of 95 %.
        screen.print(f"it probably fails in at most {min(1.0, 3 / times):.0%} of all runs", style="dim", wrap=True)
        return
    if len(red) == times:
        screen.print(f"failed {times} of {times} times: broken, not flaky", style="bold red", wrap=True)
    else:
        screen.print(f"flaky: failed {len(red)} of {times} times on the same tree", style="bold yellow", wrap=True)
    screen.print(f"see: watchtest history show {red[0].run}", style="dim", wrap=True)
