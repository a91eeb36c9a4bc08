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

from watchtest.client.history_access import (
    add_filters,
    chosen_lane,
    chosen_workspace,
    parse_limit,
    print_json,
    query_history,
    require_test,
)
from watchtest.client.history_tables import Styled, format_time, make_console, outcome_strip
from watchtest.commands import Subparsers, add_command, add_engine, load_project
from watchtest.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console

    from watchtest.client.flaky_probe import Repeat
    from watchtest.config.project import Project
    from watchtest.history.queries.flaky_tests import Evidence, FlakyTest
    from watchtest.history.store.database import Connection

DEFAULT_TIMES = 20
LOCK_LIMIT_S = 600.0


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "flaky", run, __doc__)
    parser.add_argument("--all", action="store_true", help="include tests that have recovered")
    parser.add_argument(
        "--runs", type=parse_limit, default=200, metavar="N", help="look at the latest N runs (default: 200)"
    )
    parser.add_argument("--probe", metavar="ID", help="run this test repeatedly on the code as it is now")
    parser.add_argument(
        "-n",
        dest="times",
        type=parse_limit,
        metavar="N",
        help=f"with --probe: how many times (default: {DEFAULT_TIMES})",
    )
    add_engine(parser)
    add_filters(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.probe:
        return _probe(arguments)
    if arguments.times:
        raise UsageError("history flaky -n: this option needs --probe", hint="--runs N looks at N runs")
    from watchtest.history.queries.flaky_tests import FlakyStatus, flaky_tests
    from watchtest.history.queries.json_answers import to_json

    found = query_history(
        arguments,
        lambda connection: flaky_tests(
            connection,
            workspace=chosen_workspace(arguments),
            now=time.time(),
            lane=chosen_lane(arguments),
            window=arguments.runs,
            with_recovered=arguments.all,
        ),
        (),
    )
    if arguments.json:
        print_json({"tests": to_json(found)})
        return 0
    console, styled = make_console()
    if not found:
        console.print(styled("no flaky tests are known" + ("" if arguments.all else "; --all includes recovered ones")))
    for test in found:
        _print(console, styled, test)
    if any(test.standing is FlakyStatus.UNSTABLE for test in found):
        console.print(styled("\nto check whether an unstable test is flaky: watchtest history flaky --probe ID", "dim"))
    return 0


def _print(console: Console, styled: Styled, test: FlakyTest) -> None:
    from watchtest.core.text import count
    from watchtest.history.queries.flaky_tests import FlakyStatus
    from watchtest.history.store.columns import OUTCOMES

    styles = {FlakyStatus.FLAKY: "bold yellow", FlakyStatus.BROKEN: "bold red", FlakyStatus.RECOVERED: "green"}
    console.print(
        styled(f"{test.standing.value:<9}  ", styles.get(test.standing, "")),
        styled(test.identity),
        sep="",
        soft_wrap=True,
    )
    width = max(10, console.width - 11)
    outcomes = [OUTCOMES[code] for code in test.codes[-width:]]
    console.print(styled("           "), outcome_strip(outcomes), sep="", soft_wrap=True)
    doubt = "; no proof, edits may be the cause" if test.standing is FlakyStatus.UNSTABLE else ""
    numbers = f"red in {test.failures} of {count(test.runs, 'run')}, {count(test.flips, 'flip')}"
    console.print(styled(f"           {numbers}{doubt}", "dim"))
    if test.standing is FlakyStatus.UNSTABLE:
        return
    if test.signature:
        console.print(styled(f"           {test.signature}", "red"), soft_wrap=True)
    if test.standing is FlakyStatus.BROKEN:
        console.print(styled("           it was flaky, but is red in all of the latest runs", "dim"), soft_wrap=True)
    for evidence in test.evidence:
        console.print(styled(f"           {_proof(evidence)}"), soft_wrap=True)
    if test.proofs > len(test.evidence):
        console.print(styled(f"           … and {test.proofs - len(test.evidence)} more such pairs", "dim"))


def _proof(evidence: Evidence) -> str:
    from watchtest.core.text import short
    from watchtest.history.store.columns import Proof

    words = {
        Proof.RUNS: f"failed in {evidence.failed_run}, passed in {evidence.passed_run}",
        Proof.RERUN: f"in {evidence.failed_run} the runner repeated it until it passed",
        Proof.REPEAT: f"failed in {evidence.failed_run} and passed when that run was repeated",
    }
    return f"{words[evidence.proof]} (tree {short(evidence.tree)}, {format_time(evidence.at)})"


# -- probe -----------------------------------------------------------------------------------------


def _probe(arguments: argparse.Namespace) -> int:
    import asyncio

    from filelock import FileLock, Timeout

    from watchtest.workspace.folder import FOLDER, make_folder

    # Each repetition runs in its own process; a failure in a warm one would first have to be confirmed.
    project = load_project(arguments, {"runner.warm": "off"})
    test = query_history(arguments, lambda connection: _test_id(connection, arguments.probe), str(arguments.probe))
    folder = project.workspace / FOLDER
    make_folder(folder)
    try:
        # The probe uses the box of the gate, which only one process may use at a time.
        with FileLock(folder / "gate.lock", timeout=LOCK_LIMIT_S):
            repeats = asyncio.run(_repeat(arguments, project, test))
    except Timeout as error:
        raise UsageError("history flaky --probe: a gate or another probe is running", hint="try again later") from error
    red = sum(repeat.is_red for repeat in repeats)
    if arguments.json:
        print_json(_probe_json(test, repeats, red))
    else:
        _print_probe(repeats, red)
    return 1 if red else 0


def _test_id(connection: Connection, name: str) -> str:
    from watchtest.history.queries.test_names import find_tests

    return require_test(connection, name, "flaky --probe").identity if find_tests(connection, name) else name


async def _repeat(arguments: argparse.Namespace, project: Project, test: str) -> list[Repeat]:
    from watchtest.client.flaky_probe import probe
    from watchtest.core.text import short
    from watchtest.history.store.database_file import history_path
    from watchtest.history.store.store import Store
    from watchtest.wiring import build_worktree, choose_provider

    console, styled = make_console()
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
                        console.print(styled(f"{test} on tree {short(repeat.tree)}"), soft_wrap=True)
                    console.print(outcome_strip(result.outcome for result in repeat.results), end="")
    finally:
        provider.close()
        if repeats and not arguments.json:
            console.print()
    return repeats


def _print_probe(repeats: list[Repeat], red: int) -> None:
    console, styled = make_console()
    times = len(repeats)
    if red == 0:
        console.print(styled(f"passed {times} of {times} times", "green"))
        # By the rule of three, with a confidence of 95 %.
        console.print(styled(f"it probably fails in at most {min(1.0, 3 / times):.0%} of all runs", "dim"))
        return
    if red == times:
        console.print(styled(f"failed {times} of {times} times: broken, not flaky", "bold red"))
    else:
        console.print(styled(f"flaky: failed {red} of {times} times on the same tree", "bold yellow"))
    failed = next(repeat for repeat in repeats if repeat.is_red)
    console.print(styled(f"see: watchtest history show {failed.run}", "dim"))


def _probe_json(test: str, repeats: list[Repeat], red: int) -> dict[str, object]:
    return {
        "test": test,
        "tree": repeats[0].tree if repeats else None,
        "times": len(repeats),
        "failed": red,
        "flaky": 0 < red < len(repeats),
        "runs": [{"id": repeat.run, "red": repeat.is_red, "state": repeat.state.value} for repeat in repeats],
    }
