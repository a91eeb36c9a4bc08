"""The commands that start pytest with our plugin, so that it behaves like `python -m pytest`. Starts nothing itself."""

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
# Like `python -m pytest`: the current folder comes first on sys.path, before anything else is imported.
_COLD = (
    _LOAD
    + """\
if not getattr(sys.flags, 'safe_path', False):
    sys.path[0] = os.getcwd()
from watchtest_agent.in_pytest import pytest_plugin
sys.exit(pytest_plugin.main(sys.argv[2]))
"""
)
# The zygote must not see the project, so the current folder is not on its path.
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
"""The exit code that means that pytest is not installed; the source above contains it."""
WARM_NOT_READY = "the warm process is not ready yet"
"""Why a run is cold, in the most common and harmless case."""


def cold_argv(order: Dict[str, Any], home: str) -> List[str]:
    """Write the order to a file, because the length of arguments is limited; return the command that executes it."""
    order_file = os.path.join(home, "pytest-order.json")
    with open(order_file, "w") as stream:
        json.dump(order, stream)
    return [order["python"], "-c", _COLD, FOLDER, order_file]


def zygote_argv(python: str, socket: int, settings: str) -> List[str]:
    """Return the command that starts a zygote; `settings` is a file."""
    return [python, "-c", _ZYGOTE, FOLDER, str(socket), settings]
