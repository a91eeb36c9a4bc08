"""`watchtest why [TEST|FILE]`: why these tests ran; what a test touches and why it ran; who depends on a file.

Asks the running watcher; without one, what the last one has left. Needs no engine.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from watchtest.client.status_file import of_lane, read, say
from watchtest.client.watcher import Watcher, add_lane
from watchtest.core.model import Lane
from watchtest.core.text import clean
from watchtest.errors import ControlError, UsageError
from watchtest.workspace.folder import FOLDER, workspace_root

FUNCTIONS_SHOWN = 5
FILES_SHOWN = 15


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("why", help="why tests ran, what a test touches, or who depends on a file")
    parser.add_argument(
        "what",
        metavar="TEST|FILE",
        nargs="?",
        help="the id of a test, or a path in the workspace (default: the last run)",
    )
    add_lane(parser, "the highest that is on")
    parser.add_argument("--json", action="store_true", help="as JSON")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    if arguments.what is None:
        return _tell_last_run(arguments)
    watcher = Watcher(arguments)
    what = _in_workspace(arguments.what, watcher.folder)
    query = urlencode({"what": what, **({"lane": arguments.lane} if arguments.lane else {})})
    try:
        document = watcher.get(f"/why?{query}")
    except ControlError:
        document = _of_the_last_watcher(watcher.folder, arguments.lane or Lane.SAVE.value, what)
    if arguments.json:
        print(json.dumps(document, indent=2))
        return 0
    lines = _of_test(document) if document["kind"] == "test" else _of_file(document)
    print("\n".join(clean(line) for line in lines))
    return 0


def _tell_last_run(arguments: argparse.Namespace) -> int:
    """What the key `w` shows, by the status file: why these tests, of all that there are."""
    folder = f"{workspace_root(str(Path.cwd()))}/{FOLDER}"
    document, _ = read(folder, time.time())
    scope = of_lane(document, arguments.lane).get("scope")
    if arguments.json:
        print(json.dumps(scope, indent=2))
    elif not isinstance(scope, dict):
        print("nothing has run yet")
    else:
        print(f"{scope['selected']} of {scope['known']} tests, because")
        for reason in str(scope["because"]).split("; "):
            say(f"  {clean(reason)}")
    return 0


def _in_workspace(what: str, folder: Path) -> str:
    """As the workspace names it: `./a.py`, and paths seen from a folder below, mean the same as `a.py`."""
    file, mark, test = what.partition("::")
    path = Path(os.path.normpath(Path.cwd() / file))
    if (path.exists() or file.startswith(".")) and path.is_relative_to(folder):
        file = path.relative_to(folder).as_posix()
    return file + mark + test


def _of_the_last_watcher(folder: Path, lane: str, what: str) -> dict[str, Any]:
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
        raise UsageError(f"nothing is known of {what}", hint="name a test by its id, or a file by its path")
    return {"lane": lane, "note": "no watcher runs; this is what the last one has left", **document}


def _of_test(document: dict[str, Any]) -> Iterator[str]:
    count = document.get("tests", 1)
    yield document["test"] + (f": {count} tests" if count > 1 else "")
    if document.get("note"):
        yield f"  ({document['note']})"
    elif document["selected"]:
        wave = "at once" if document["wave"] == 1 else "behind those that are known to be concerned"
        yield f"  ran for the last change, {wave}, because"
        yield from (f"    {reason}" for reason in document["because"])
    else:
        yield f"  {'were' if count > 1 else 'was'} not concerned by the last change"
    if document["is_opaque"]:
        yield "  starts programs, so it runs for any change"
    functions = document["functions"]
    yield f"  enters {sum(map(len, functions.values()))} functions of {len(functions)} files:"
    for path, names in list(functions.items())[:FILES_SHOWN]:
        more = f" and {len(names) - FUNCTIONS_SHOWN} more" if len(names) > FUNCTIONS_SHOWN else ""
        yield f"    {path}: {', '.join(names[:FUNCTIONS_SHOWN])}{more}"
    if len(functions) > FILES_SHOWN:
        yield f"    and {len(functions) - FILES_SHOWN} more files"
    for title, key in (("reads", "files"), ("lists", "folders"), ("imports", "imports"), ("uses", "scopes")):
        if document[key]:
            more = f" and {len(document[key]) - FILES_SHOWN} more" if len(document[key]) > FILES_SHOWN else ""
            yield f"  {title} {', '.join(document[key][:FILES_SHOWN])}{more}"


def _of_file(document: dict[str, Any]) -> Iterator[str]:
    yield document["file"]
    if document.get("note"):
        yield f"  ({document['note']})"
    yield f"  {document['reached_by']['count']} of {document['of']} tests can reach it by imports"
    if document["tests_in_it"]["count"]:
        yield f"  {document['tests_in_it']['count']} tests are in it"
    if document["read_by"]["count"]:
        yield f"  read by {_some(document['read_by'])}"
    for name, tests in sorted(document["functions"].items(), key=lambda item: -item[1]["count"]):
        yield f"  {name}: {_some(tests)}"


def _some(tests: dict[str, Any]) -> str:
    names = tests["tests"][:2]
    more = f" and {tests['count'] - len(names)} more" if tests["count"] > len(names) else ""
    return (", ".join(names) + more) if names else "no test"
