"""`watchtest gate`: get the verdict on what is staged or on a commit, for git hooks.

Print the verdict on exactly one tree, so that a git hook can refuse a red commit. A known verdict is printed at once;
otherwise the gate waits for the watcher, or runs the tests in a box of its own. Exit code: 0 green, 1 red, 4 box or
engine broken, 5 no tests, 124 no verdict in time.

    watchtest gate --staged
    watchtest gate --commit HEAD~1
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.client.status_file import is_outdated, last_status, read_status
from watchtest.commands import add_engine, load_project, say
from watchtest.core.model import Lane, Result, RunState
from watchtest.core.text import age, one_line, tests
from watchtest.errors import BoxError, WorkspaceError
from watchtest.exit_codes import OF_RUN, TIMED_OUT
from watchtest.views import words
from watchtest.workspace.folder import FOLDER

if TYPE_CHECKING:
    from watchtest.boxes.protocols import BoxProvider
    from watchtest.config import Project
    from watchtest.core.state import State
    from watchtest.sources.git_tree import GitTree

POLL_S = 0.1
FAILURES_SHOWN = 10
JUDGED = (RunState.PASSED, RunState.FAILED, RunState.ERROR, RunState.TIMED_OUT, RunState.NO_TESTS)
"""The states that say something about the code."""


def add_options(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--staged", action="store_true", help="test what is staged (the default)")
    which.add_argument("--commit", metavar="REV", help="test this commit")
    add_engine(parser)
    parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="seconds to wait (default: 600)")


@dataclass(frozen=True, slots=True)
class GateTarget:
    """The tree that the gate was asked about."""

    tree: str
    lane: Lane
    name: str
    source: GitTree
    can_be_watched: bool
    """A watcher may be testing the same tree: the index itself, or HEAD."""


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """What is known about the tree."""

    state: RunState
    reason: str
    run: str
    at: float
    results: tuple[Result, ...]
    """Of the tests that ran for it."""
    is_narrowed: bool = False
    """The other tests cannot be affected by what has changed, so they did not run again."""


def run(arguments: argparse.Namespace) -> int:
    from watchtest.wiring import choose_provider

    project = load_project(arguments)
    target = _target(project, arguments.commit)
    with closing(target.source), closing(choose_provider(project, "gate", say)) as provider:
        verdict = _verdict(project, target, provider, arguments.timeout)
    if verdict is None:
        say(f"no verdict on {target.name} within {arguments.timeout:g} s")
        return TIMED_OUT
    _print(target, verdict)
    return OF_RUN[verdict.state]


def _target(project: Project, revision: str | None) -> GateTarget:
    from watchtest.sources.git import Git
    from watchtest.sources.git_tree import TreeId
    from watchtest.wiring import build_git_tree

    git = Git(project.workspace, project.environ)
    if revision is None:
        # git gives the hooks of `git commit -a` and `git commit FILE` a temporary index.
        own = git.directory() / "index"
        index = Path(os.environ.get("GIT_INDEX_FILE") or own).absolute()
        source = build_git_tree(project, "index", index=index)
        is_own = index.resolve() == own.resolve() and not os.path.lexists(f"{own}.lock")
        return GateTarget(source.tree(), Lane.STAGE, "what is staged", source, is_own)
    commit = git.commit(revision)
    tree = git.tree_of(commit) if commit else None
    if commit is None or tree is None:
        raise WorkspaceError(f"gate: {revision}: no such commit", hint="name a commit, a branch or a tag")
    source = build_git_tree(project, TreeId(tree, commit))
    return GateTarget(tree, Lane.COMMIT, f"commit {commit[:12]}", source, commit == git.head().commit)


def _verdict(project: Project, target: GateTarget, provider: BoxProvider, timeout_s: float) -> GateVerdict | None:
    environment = _environment(project, target, provider)
    known = _known(project, target.tree, environment)
    if known is not None:
        return known
    deadline = time.monotonic() + timeout_s
    if target.can_be_watched and project.config.history.enabled and _is_watched(project, target.lane):
        return _wait_for_watcher(project, target, environment, deadline)
    return _run_here(project, target, provider, deadline)


def _environment(project: Project, target: GateTarget, provider: BoxProvider) -> str:
    """Return the name of the environment in which that tree would be tested."""
    from watchtest.core.events import EVERYTHING
    from watchtest.pipeline import environment_name
    from watchtest.wiring import project_recipe, settings_digest

    snapshot = target.source.snapshot(frozenset({EVERYTHING}))
    recipe = project_recipe(project, target.source, snapshot, provider)
    origin = provider.image_id(recipe)  # asks the engine, which `provider.engine` needs
    return environment_name(provider.engine, provider.image_name(recipe), origin, recipe, settings_digest(project))


def _known(project: Project, tree: str, environment: str) -> GateVerdict | None:
    from watchtest.history.queries import run_queries as queries
    from watchtest.history.store.database_file import history_path, open_for_reading

    path = history_path(project.dirs.state, project.workspace)
    if not path.exists():
        return None
    with open_for_reading(path) as connection:
        run = queries.full_verdict(connection, tree, environment)
        if run is None:
            return None
        results = tuple(past.result for past in queries.run_detail(connection, run).final_results)
    at = run.ended_at or run.queued_at
    return GateVerdict(run.state, run.reason, run.id, at, results, is_narrowed=run.selected is not None)


def _is_watched(project: Project, lane: Lane) -> bool:
    """Return whether a live watcher tests that lane."""
    try:
        document, writer = read_status(project.workspace / FOLDER, time.time())
    except WorkspaceError:
        return False
    return writer.is_alive and bool(document["lanes"].get(lane.value))


def _wait_for_watcher(project: Project, target: GateTarget, environment: str, deadline: float) -> GateVerdict | None:
    say(f"waiting for the watcher's verdict on {target.name}")
    while time.monotonic() < deadline:
        known = _known(project, target.tree, environment)
        if known is not None:
            return known
        if problem := _build_problem(project, target.lane):
            raise BoxError(f"the watcher has no clean environment for {target.name}: {problem}")
        if not _is_watched(project, target.lane):
            raise BoxError("the watcher ended before its verdict", hint="try again: the gate will run the tests itself")
        time.sleep(POLL_S)
    return None


def _build_problem(project: Project, lane: Lane) -> str:
    """Return why the watcher cannot build the clean environment that a verdict needs; "" if it can."""
    document = (last_status(project.workspace).get("lanes") or {}).get(lane.value) or {}
    is_stuck = document.get("activity") == "idle" and is_outdated(document.get("provisional"))
    return str(document["problem"]["message"]) if is_stuck and document.get("problem") else ""


def _run_here(project: Project, target: GateTarget, provider: BoxProvider, deadline: float) -> GateVerdict | None:
    from watchtest.app import run_tree
    from watchtest.workspace.lock import FolderLock

    try:
        with FolderLock(project.workspace / FOLDER, "gate.lock", max(0.0, deadline - time.monotonic())):
            running = run_tree(project, target.lane, target.source, provider, say)
            last = asyncio.run(asyncio.wait_for(running, max(0.1, deadline - time.monotonic())))
    except TimeoutError:
        return None
    return _from_state(target, last)


def _from_state(target: GateTarget, last: State) -> GateVerdict:
    lane = last.top
    finished, snapshot = lane.runs.last, lane.knowledge.snapshot
    if finished is None or finished.state not in JUDGED:
        reason = finished.reason if finished is not None else ""
        raise BoxError(f"{target.name} could not be tested: {reason or 'it was cancelled'}")
    if snapshot is None or snapshot.id != target.tree:
        raise BoxError(f"{target.name} changed while it was tested", hint="try again")
    results = tuple(known.result for known in lane.knowledge.tests.values())
    return GateVerdict(finished.state, finished.reason, finished.run.id, finished.ended_at, results)


def _summary(verdict: GateVerdict, red: int) -> str:
    """Return the verdict with the number of its tests."""
    total = len(verdict.results)
    match verdict.state:
        case RunState.PASSED if verdict.is_narrowed:
            return f"passed: {tests(total) if total else 'no test'} affected since the last green tree"
        case RunState.PASSED:
            return words.passed(verdict.results)
        case RunState.FAILED:
            return f"failed {red} of {tests(total)}"
        case state:
            return state.value.replace("_", " ")


def _print(target: GateTarget, verdict: GateVerdict) -> None:
    red = [result for result in verdict.results if result.outcome.is_red]
    reason = f" · {one_line(verdict.reason)}" if verdict.reason else ""
    when = age(max(0.0, time.time() - verdict.at))
    print(f"{_summary(verdict, len(red))} · {target.name} · tree {target.tree[:8]} · run {verdict.run} {when}{reason}")
    for result in red[:FAILURES_SHOWN]:
        print(f"  {words.failure_line(result)}")
    if len(red) > FAILURES_SHOWN:
        print(f"  … and {len(red) - FAILURES_SHOWN} more: watchtest history show {verdict.run}")
