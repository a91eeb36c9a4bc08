"""`watchtest history`: query the recorded runs and tests.

Query the recorded runs. A run is named by its id, or as last, last-failed or last-green.

    watchtest history list
    watchtest history analyse last-failed
"""

from __future__ import annotations

import importlib

from watchtest.commands import Subparsers, add_command

VERBS = {
    "list": "list",
    "show": "show",
    "test": "test",
    "compare": "compare",
    "analyse": "analyse",
    "flaky": "flaky",
    "slowest": "slowest",
    "trend": "trend",
    "cost": "cost",
    "html": "html",
    "export": "export",
    "import": "import_",
    "prune": "prune",
}
"""The module of every verb, in the order of the help."""


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "history", None, __doc__)
    verbs = parser.add_subparsers(dest="history_action", metavar="|".join(VERBS), required=True)
    for module in VERBS.values():
        importlib.import_module(f"{__name__}.{module}").add_to(verbs)
