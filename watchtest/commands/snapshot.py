"""`watchtest snapshot`: keep the box as the starting point for all boxes.

Keep the box with everything that was installed in it. Every box of this workspace then starts from this snapshot;
`watchtest reset --environment` deletes it.

    watchtest exec -- pip install x && watchtest snapshot
"""

from __future__ import annotations

import argparse
from contextlib import closing

from watchtest.commands import add_engine, load_project, say

add_options = add_engine


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.box_access import provider_in_use
    from watchtest.wiring import build_worktree, project_recipe
    from watchtest.workspace import manual_changes

    project = load_project(arguments)
    source = build_worktree(project)
    with closing(provider_in_use(project, say)) as provider:
        kept = provider.snapshot(project_recipe(project, source, source.snapshot(), provider), say)
        manual_changes.take_changes(project.workspace)
    print(f"kept as {kept.removeprefix('sha256:')[:12]}: every box of this workspace now starts from it")
    return 0
