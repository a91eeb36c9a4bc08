"""`watchtest snapshot`: keep the box as it is now, as what all boxes of this workspace grow from."""

from __future__ import annotations

import argparse

from watchtest.client.settings import add_engine, engine_flag
from watchtest.commands.exec import say


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser(
        "snapshot", help="keep the box, with all that was installed in it, as the environment"
    )
    add_engine(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from watchtest.boxes.recipe.recipe import recipe_of
    from watchtest.client.box_visit import visited_provider
    from watchtest.client.settings import project_of
    from watchtest.wiring import build_worktree, recipe_input
    from watchtest.workspace import manual_changes

    project = project_of(arguments, engine_flag(arguments))
    source = build_worktree(project)
    recipe = recipe_of(recipe_input(project, source), source.snapshot(), source.read)
    provider = visited_provider(project, say)
    try:
        kept = provider.snapshot(recipe, say)
        manual_changes.take(project.workspace)
    finally:
        provider.close()
    print(f"kept as {kept.removeprefix('sha256:')[:12]}: every box of this workspace now starts from it")
    return 0
