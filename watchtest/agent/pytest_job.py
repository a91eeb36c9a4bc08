"""How pytest is started with our plugin in it, so that it behaves as `python -m pytest` does. Starts nothing itself."""

from __future__ import annotations

import json
import os
from typing import Any, Dict

# What `python -m pytest` does: the current folder first on sys.path, pytest's own __main__ as argv[0]. The plugin is
# loaded from its file, so that no folder of ours is on the path of the tests.
STUB = """\
import importlib.util, os, sys
if importlib.util.find_spec('pytest') is None:
    sys.exit(97)
plugin_file, order_file = sys.argv[1:3]
sys.path[0] = os.getcwd()
spec = importlib.util.spec_from_file_location('watchtest_pytest_plugin', plugin_file)
plugin = importlib.util.module_from_spec(spec)
sys.modules[spec.name] = plugin
spec.loader.exec_module(plugin)
sys.exit(plugin.main(order_file))
"""
NO_PYTEST = 97
"""The exit code that says that there is no pytest; the stub above spells it out."""
PLUGIN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "pytest_plugin.py")


def complete(order: Dict[str, Any], home: str) -> None:
    """Turn {"pytest": {python, args, tests}} into a command. The tests go by file: an argument has its limits."""
    wish = order.pop("pytest")
    order_file = os.path.join(home, "pytest-order.json")
    with open(order_file, "w") as stream:
        json.dump({"args": wish["args"], "tests": wish["tests"], "root": order["cwd"]}, stream)
    order["argv"] = [wish["python"], "-c", STUB, PLUGIN, order_file]
    order["wants_results"] = True
