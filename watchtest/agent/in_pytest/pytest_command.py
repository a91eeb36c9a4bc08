"""How pytest is started with our plugin in it, so that it behaves as `python -m pytest` does. Starts nothing itself."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List

from .. import FOLDER, LOADER

_LOAD = (
    """\
import importlib.util, os, sys
if importlib.util.find_spec('pytest') is None:
    sys.exit(97)
folder = sys.argv[1]
"""
    + LOADER
)
# What `python -m pytest` does: the current folder first on sys.path, before anything else is imported.
_COLD = (
    _LOAD
    + """\
if not getattr(sys.flags, 'safe_path', False):
    sys.path[0] = os.getcwd()
from watchtest_agent.in_pytest import pytest_plugin
sys.exit(pytest_plugin.main(sys.argv[2]))
"""
)
# A process that others are forked from must not see the project: nothing takes that place on the path.
_ZYGOTE = (
    """\
import sys
if not getattr(sys.flags, 'safe_path', False):
    del sys.path[0]
"""
    + _LOAD
    + """\
from watchtest_agent.warm import zygote
zygote.main(int(sys.argv[2]), sys.argv[3])
"""
)
NO_PYTEST = 97
"""The exit code that says that there is no pytest; the stubs above spell it out."""


def complete(order: Dict[str, Any], home: str) -> None:
    """Turn {"pytest": {python, args, tests, order}} into a command. Tests go by file: an argument has its limits."""
    wish = order["pytest"]
    order_file = os.path.join(home, "pytest-order.json")
    with open(order_file, "w") as stream:
        json.dump(plugin_order(order), stream)
    order["argv"] = [wish["python"], "-c", _COLD, FOLDER, order_file]
    order["results"] = "pipe"


def plugin_order(order: Dict[str, Any]) -> Dict[str, Any]:
    """What our plugin has to know."""
    wish = order["pytest"]
    return {
        "args": wish["args"],
        "tests": wish["tests"],
        "order": wish["order"],
        "record": wish["record"],
        "first": wish["first"],
        "collects_all": wish["collects_all"],
        "root": order["root"],
        "folder": order["cwd"],
    }


def zygote_argv(python: str, socket: int, settings: str) -> List[str]:
    """The command of a process that warm runs are forked from; `settings` is a file."""
    return [python, "-c", _ZYGOTE, FOLDER, str(socket), settings]
