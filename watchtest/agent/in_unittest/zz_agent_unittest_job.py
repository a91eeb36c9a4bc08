"""How unittest is started under our eyes, so that it behaves as `python -m unittest discover` does. Starts nothing."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

from .. import FOLDER, LOADER

# First on the path is the current folder, as for `python -m`, unless this Python was told not to.
STUB = (
    """\
import importlib, importlib.util, os, sys
folder, order_file = sys.argv[1:3]
if not getattr(sys.flags, 'safe_path', False):
    sys.path[0] = os.getcwd()
"""
    + LOADER
    + """\
sys.exit(importlib.import_module('watchtest_agent.in_unittest.unittest_main').main(order_file))
"""
)


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
