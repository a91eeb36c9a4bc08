"""`watchtest gate`: the verdict of exactly one tree, for git hooks. Known: at once. Else: waited for, or run here.

What is known comes from the history, by tree id. A watcher whose lane is on is already on its way to that verdict, so
it is waited for; otherwise the tree is run here, in a box of the gate's own.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.client.settings import add_engine, engine_flag
from watchtest.errors import BoxError, WorkspaceError

if TYPE_CHECKING:
    from watchtest.boxes.protocols import BoxProvider
    from watchtest.config.project import Project
    from watchtest.core.model import Lane, Result, RunState
    from watchtest.core.state import State
    from watchtest.sources.git_tree import GitTree

TIMED_OUT = 124
POLL_S = 0.1
FAILURES_SHOWN = 10
EXIT_CODES = {"passed": 0, "failed": 1, "error": 1, "timed_out": TIMED_OUT, "no_tests": 5}


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("gate", help="the verdict of what is staged, or of a commit, for git hooks")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--staged", action="store_true", help="of what is staged (the default)")
    which.add_argument("--commit", metavar="REV", help="of this commit")
    add_engine(parser)
    parser.add_argument("--timeout", type=float, default=600.0, metavar="S", help="how long to wait (default: 600)")
    parser.set_defaults(run=run)


@dataclass(frozen=True, slots=True)
class Asked:
    """The tree that was asked about."""

    tree: str
    lane: Lane
    name: str
    source: GitTree
    can_be_watched: bool
    """A watcher tests this very thing: the index as it stands, or HEAD."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What is known of the tree."""

    state: RunState
    reason: str
    run: str
    at: float
    results: tuple[Result, ...]


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.settings import project_of
    from watchtest.wiring import choose_provider

    project = project_of(arguments, engine_flag(arguments))
    asked = _asked(project, arguments.commit)
    provider = choose_provider(project, "gate", _say)
    try:
        answer = _answer(project, asked, provider, arguments.timeout)
    finally:
        provider.close()
        asked.source.close()
    if answer is None:
        _say(f"no verdict on {asked.name} within {arguments.timeout:g} s")
        return TIMED_OUT
    _tell(asked, answer)
    return EXIT_CODES[answer.state.value]


def _say(text: str) -> None:
    print(f"watchtest: {text}", file=sys.stderr)


def _asked(project: Project, revision: str | None) -> Asked:
    from watchtest.core.model import Lane
    from watchtest.sources.git import Git
    from watchtest.sources.git_tree import TreeId
    from watchtest.wiring import build_git_tree

    git = Git(project.workspace, project.environ)
    if revision is None:
        # The hooks of `git commit -a` and `git commit FILE` get an index of their own.
        own = git.directory() / "index"
        index = Path(os.environ.get("GIT_INDEX_FILE") or own).absolute()
        source = build_git_tree(project, "index", index=index)
        is_own = index.resolve() == own.resolve() and not os.path.lexists(f"{own}.lock")
        return Asked(source.tree(), Lane.STAGE, "what is staged", source, is_own)
    commit = git.commit(revision)
    tree = git.tree_of(commit) if commit else None
    if commit is None or tree is None:
        raise WorkspaceError(f"gate: {revision}: no such commit", hint="name a commit, a branch or a tag")
    source = build_git_tree(project, TreeId(tree))
    return Asked(tree, Lane.COMMIT, f"commit {commit[:12]}", source, commit == git.head().commit)


def _answer(project: Project, asked: Asked, provider: BoxProvider, timeout_s: float) -> Answer | None:
    environment = _environment(project, asked, provider)
    known = _known(project, asked.tree, environment)
    if known is not None:
        return known
    deadline = time.monotonic() + timeout_s
    if asked.can_be_watched and project.config.history.enabled and _is_watched(project, asked.lane):
        return _wait_for_the_watcher(project, asked, environment, deadline)
    return _run_here(project, asked, provider, deadline)


def _environment(project: Project, asked: Asked, provider: BoxProvider) -> str:
    """In what that very tree would be tested."""
    from watchtest.boxes.recipe.recipe import recipe_of
    from watchtest.core.events import EVERYTHING
    from watchtest.pipeline import environment_name
    from watchtest.wiring import recipe_input, settings_digest

    snapshot = asked.source.snapshot(frozenset({EVERYTHING}))
    recipe = recipe_of(recipe_input(project, asked.source), snapshot, asked.source.read)
    origin = provider.image_id(recipe)  # asks the engine, and so learns which one it is
    return environment_name(provider.engine, provider.image_name(recipe), origin, recipe, settings_digest(project))


def _known(project: Project, tree: str, environment: str) -> Answer | None:
    from watchtest.history.queries import run_queries as queries
    from watchtest.history.store.database_file import history_path, reading

    path = history_path(project.dirs.state, project.workspace)
    if not path.exists():
        return None
    with reading(path) as connection:
        run = queries.judged(connection, tree, environment)
        detail = queries.detail(connection, run.id) if run is not None else None
    if run is None or detail is None:
        return None
    results = tuple(past.result for past in detail.last_words)
    return Answer(run.state, run.reason, run.id, run.ended_at or run.queued_at, results)


def _is_watched(project: Project, lane: Lane) -> bool:
    """Whether a living watcher tests that lane."""
    from watchtest.client.status_file import read
    from watchtest.workspace.folder import FOLDER

    try:
        document, life = read(project.workspace / FOLDER, time.time())
    except WorkspaceError:
        return False
    return life.is_alive and bool(document["lanes"].get(lane.value))


def _wait_for_the_watcher(project: Project, asked: Asked, environment: str, deadline: float) -> Answer | None:
    _say(f"waiting for the watcher's verdict on {asked.name}")
    while time.monotonic() < deadline:
        known = _known(project, asked.tree, environment)
        if known is not None:
            return known
        if not _is_watched(project, asked.lane):
            raise BoxError("the watcher ended before its verdict", hint="try again: the gate then runs by itself")
        time.sleep(POLL_S)
    return None


def _run_here(project: Project, asked: Asked, provider: BoxProvider, deadline: float) -> Answer | None:
    from filelock import FileLock, Timeout

    from watchtest.app import run_tree
    from watchtest.workspace.folder import FOLDER, make_folder

    folder = project.workspace / FOLDER
    make_folder(folder)
    try:
        with FileLock(folder / "gate.lock", timeout=max(0.0, deadline - time.monotonic())):
            running = run_tree(project, asked.lane, asked.source, provider, _say)
            last = asyncio.run(asyncio.wait_for(running, max(0.1, deadline - time.monotonic())))
    except (Timeout, TimeoutError):
        return None
    return _from_state(asked, last)


def _from_state(asked: Asked, last: State) -> Answer:
    lane = last.top
    finished, snapshot = lane.last, lane.knowledge.snapshot
    if finished is None or finished.state.value not in EXIT_CODES:
        reason = finished.reason if finished is not None else ""
        raise BoxError(f"{asked.name} could not be tested: {reason or 'it was cancelled'}")
    if snapshot is None or snapshot.id != asked.tree:
        raise BoxError(f"{asked.name} changed while it was tested", hint="try again")
    results = tuple(known.result for known in lane.knowledge.tests.values())
    return Answer(finished.state, finished.reason, finished.run.id, finished.ended_at, results)


def _tell(asked: Asked, answer: Answer) -> None:
    from watchtest.core.text import age, one_line

    red = [result for result in answer.results if result.outcome.is_red]
    count = f"{len(red)} of {len(answer.results)}" if red else str(len(answer.results))
    why = f" · {one_line(answer.reason)}" if answer.reason else ""
    when = age(max(0.0, time.time() - answer.at))
    print(f"{answer.state.value} {count} tests · {asked.name} · tree {asked.tree[:8]} · run {answer.run} {when}{why}")
    for line in _failures(red[:FAILURES_SHOWN]):
        print(line)
    if len(red) > FAILURES_SHOWN:
        print(f"  … and {len(red) - FAILURES_SHOWN} more: watchtest history show {answer.run}")


def _failures(red: Iterable[Result]) -> Iterable[str]:
    from watchtest.views.words import failed

    return (f"  {failed(result)}" for result in red)
