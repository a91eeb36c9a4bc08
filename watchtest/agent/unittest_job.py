"""How unittest is started under our eyes, so that it behaves as `python -m unittest discover` does. Starts nothing."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

# Our modules are loaded as a package from their folder, under a name of our own: no folder of ours is on the path of
# the tests. What is first on it is the current folder, as for `python -m`, unless this Python was told not to.
STUB = """\
import importlib, importlib.util, os, sys
folder, order_file = sys.argv[1:3]
if not getattr(sys.flags, 'safe_path', False):
    sys.path[0] = os.getcwd()
spec = importlib.util.spec_from_file_location(
    'watchtest_agent', os.path.join(folder, '__init__.py'), submodule_search_locations=[folder])
package = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = package
spec.loader.exec_module(package)
sys.exit(importlib.import_module('watchtest_agent.unittest_runner').main(order_file))
"""
FOLDER = os.path.dirname(os.path.abspath(__file__))


def complete(order: Dict[str, Any], home: str) -> None:
    """Turn {"unittest": {python, args, tests, folder, record}} into a command that runs in that folder, its `cwd`.

    The tests go by file: an argument has its limits.
    """
    wish = order["unittest"]
    order_file = os.path.join(home, "unittest-order.json")
    with open(order_file, "w") as stream:
        json.dump(
            {
                "args": wish["args"],
                "tests": wish["tests"],
                "root": _root(order["cwd"], wish["folder"]),
                "record": wish["record"],
            },
            stream,
        )
    order["argv"] = [wish["python"], "-c", STUB, FOLDER, order_file]
    order["results"] = "pipe"


def _root(cwd: str, folder: str) -> str:
    """The workspace: test ids and places are relative to it, wherever unittest runs."""
    depth = len([part for part in folder.split("/") if part not in ("", ".")])
    for _ in range(depth):
        cwd = os.path.dirname(cwd.rstrip("/"))
    return cwd
