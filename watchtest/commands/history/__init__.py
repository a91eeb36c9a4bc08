"""`watchtest history`: query the recorded runs and tests.

Query the recorded runs. A run is named by its id, or as last, last-failed or last-green.

    watchtest history list
    watchtest history analyse last-failed
"""

from __future__ import annotations

import importlib
from keyword import iskeyword

from watchtest.commands import Subparsers, add_command

VERBS = "list|show|test|compare|analyse|flaky|slowest|trend|cost|html|export|import|prune"
"""One module per verb, in the order of the help."""


def add_to(subparsers: Subparsers) -> None:
    parser = add_command(subparsers, "history", None, __doc__)
    verbs = parser.add_subparsers(dest="history_action", metavar=VERBS, required=True)
    for verb in VERBS.split("|"):
        importlib.import_module(f"{__name__}.{verb}{'_' if iskeyword(verb) else ''}").add_to(verbs)
