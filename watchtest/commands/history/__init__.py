"""`watchtest history`: query the recorded runs and tests.

Query the recorded runs. A run is named by its id, or as last, last-failed or last-green.

    watchtest history list
    watchtest history analyse last-failed
"""

from __future__ import annotations

import argparse
from keyword import iskeyword

from watchtest.commands import add_module

VERBS = "list|show|test|compare|analyse|flaky|slowest|trend|cost|html|export|import|prune"
"""One module per verb, in the order of the help."""


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="history_action", metavar=VERBS, required=True)
    for verb in VERBS.split("|"):
        add_module(verbs, verb, f"history.{verb}{'_' if iskeyword(verb) else ''}")
