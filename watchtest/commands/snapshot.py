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
    from watchtest.client.box_visit import visited_place
    from watchtest.client.settings import project_of
    from watchtest.wiring import build_worktree, recipe_wish
    from watchtest.workspace import manual_changes as byhand

    project = project_of(arguments, engine_flag(arguments))
    source = build_worktree(project)
    recipe = recipe_of(recipe_wish(project, source), source.snapshot(), source.read)
    place = visited_place(project, say)
    try:
        kept = place.snapshot(recipe, say)
        byhand.take(project.workspace)
    finally:
        place.close()
    print(f"kept as {kept.removeprefix('sha256:')[:12]}: every box of this workspace now starts from it")
    return 0
