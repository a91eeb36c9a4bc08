"""`watchtest stop`: stop the watcher.

Stop the watcher of this workspace, whether it runs in the background or in another terminal. Returns when it has ended.
The box stays.

    watchtest stop
"""

from __future__ import annotations

import argparse

from watchtest.commands import say


def run(arguments: argparse.Namespace) -> int:
    from watchtest.client.background import BackgroundWatcher
    from watchtest.workspace.folder import find_workspace

    folder = find_workspace(arguments.workspace)
    process = BackgroundWatcher(folder).stop(say)
    print(f"no watcher is running on {folder}" if process is None else f"stopped the watcher of {folder}: {process}")
    return 0
