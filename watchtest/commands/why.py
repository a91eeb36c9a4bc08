"""`watchtest why`: explain why tests ran, or what depends on a file.

Without an argument, explain the selection of the last run. For a test, show whether and why it ran and what it touches;
for a file, show the tests that depend on it. Works without a watcher, from what the last one recorded.

    watchtest why tests/test_cart.py::test_total
    watchtest why shop/prices.py
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from watchtest.client.status_file import of_lane, print_text, read_status
from watchtest.client.watcher import Watcher, from_workspace
from watchtest.commands import add_json, add_lane, print_json
from watchtest.core.model import Lane
from watchtest.core.text import clean, count
from watchtest.errors import ControlError, UsageError
from watchtest.workspace.folder import FOLDER, find_workspace

FUNCTIONS_SHOWN = 5
FILES_SHOWN = 15


def add_options(parser: argparse.ArgumentParser) -> None:
    text = "a test id, or a path in the workspace (default: the last run)"
    parser.add_argument("what", metavar="TEST|FILE", nargs="?", help=text)
    add_lane(parser)
    add_json(parser)


def run(arguments: argparse.Namespace) -> int:
    if arguments.what is None:
        return _print_last_run(arguments)
    watcher = Watcher(arguments)
    what = from_workspace(arguments.what, watcher.folder)
    query = urlencode({"what": what, **({"lane": arguments.lane} if arguments.lane else {})})
    try:
        document = watcher.get(f"/why?{query}")
    except ControlError:
        document = _from_recording(watcher.folder, arguments.lane or Lane.SAVE.value, what)
    if arguments.json:
        print_json(document)
        return 0
    lines = _test_lines(document) if document["kind"] == "test" else _file_lines(document)
    print("\n".join(clean(line) for line in lines))
    return 0


def _print_last_run(arguments: argparse.Namespace) -> int:
    """Print what the key `w` of the dashboard shows, from the status file."""
    document, _ = read_status(find_workspace(arguments.workspace) / FOLDER, time.time())
    scope = of_lane(document, arguments.lane).get("scope")
    if arguments.json:
        print_json(scope)
    elif not isinstance(scope, dict):
        print("nothing has run yet")
    else:
        print(f"{scope['selected']} of {count(scope['known'], 'test')}, because")
        for reason in str(scope["because"]).split("; "):
            print_text(f"  {clean(reason)}")
    return 0


def _from_recording(folder: Path, lane: str, what: str) -> dict[str, Any]:
    from watchtest.selection.explanation import explain
    from watchtest.selection.map_file import load
    from watchtest.selection.map_keeper import map_file
    from watchtest.selection.selector import Selector
    from watchtest.wiring import maps_folder
    from watchtest.workspace.user_dirs import state_dir

    kept = load(map_file(maps_folder(state_dir(), folder), Lane(lane)))
    if kept is None:
        raise UsageError(f"nothing is recorded for {folder} yet", hint="let `watchtest watch` run the tests once")
    selector = Selector()
    selector.resume(kept)
    document = explain(selector, what)
    if document is None:
        raise UsageError(f"nothing is known about {what}", hint="name a test by its id, or a file by its path")
    return {"lane": lane, "note": "no watcher is running; this is what the last one recorded", **document}


def _test_lines(document: dict[str, Any]) -> Iterator[str]:
    tests = document.get("tests", 1)
    yield document["test"] + (f": {tests} tests" if tests > 1 else "")
    if document.get("note"):
        yield f"  ({document['note']})"
    elif document["selected"]:
        wave = "in the first wave" if document["wave"] == 1 else "in the second wave"
        yield f"  ran for the last change, {wave}, because"
        yield from (f"    {reason}" for reason in document["because"])
    else:
        yield f"  {'were' if tests > 1 else 'was'} not affected by the last change"
    if document["is_opaque"]:
        yield "  starts other programs, so it runs for any change"
    functions = document["functions"]
    entered = count(sum(map(len, functions.values())), "function")
    yield f"  enters {entered} of {count(len(functions), 'file')}:"
    for path, names in list(functions.items())[:FILES_SHOWN]:
        yield f"    {path}: {_first(names[:FUNCTIONS_SHOWN], len(names))}"
    if len(functions) > FILES_SHOWN:
        yield f"    and {len(functions) - FILES_SHOWN} more files"
    for title, key in (("reads", "files"), ("lists", "folders"), ("imports", "imports"), ("uses", "scopes")):
        if document[key]:
            yield f"  {title} {_first(document[key][:FILES_SHOWN], len(document[key]))}"


def _file_lines(document: dict[str, Any]) -> Iterator[str]:
    yield document["file"]
    if document.get("note"):
        yield f"  ({document['note']})"
    yield f"  {document['reached_by']['count']} of {count(document['of'], 'test')} can reach it by imports"
    if document["tests_in_it"]["count"]:
        yield f"  contains {count(document['tests_in_it']['count'], 'test')}"
    if document["read_by"]["count"]:
        yield f"  read by {_some(document['read_by'])}"
    for name, tests in sorted(document["functions"].items(), key=lambda item: -item[1]["count"]):
        yield f"  {name}: {_some(tests)}"


def _some(tests: dict[str, Any]) -> str:
    return _first(tests["tests"][:2], tests["count"]) if tests["tests"] else "no test"


def _first(names: list[str], total: int) -> str:
    return ", ".join(names) + (f" and {total - len(names)} more" if total > len(names) else "")
