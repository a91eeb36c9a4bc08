"""`watchtest config show|validate|schema`. Reads settings; changes none."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from watchtest.errors import ConfigError
from watchtest.workspace import folder as workspace

if TYPE_CHECKING:
    from watchtest.config import Loaded


def add_to(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = subparsers.add_parser("config", help="show, check or describe the settings")
    parser.set_defaults(run=run)
    actions = parser.add_subparsers(dest="config_action", metavar="show|validate|schema", required=True)
    show = actions.add_parser("show", help="every setting, and where its value came from")
    show.add_argument("--json", action="store_true", help="as JSON")
    validate = actions.add_parser("validate", help="check a config file, and say all that is wrong at once")
    validate.add_argument("file", nargs="?", type=Path, metavar="FILE", help="default: those that would be used")
    validate.add_argument("--json", action="store_true", help="as JSON")
    actions.add_parser("schema", help="print the JSON Schema, for editors")


def run(arguments: argparse.Namespace) -> int:
    match arguments.config_action:
        case "show":
            return _show(arguments)
        case "validate":
            return _validate(arguments)
        case _:
            return _schema()


def _show(arguments: argparse.Namespace) -> int:
    from watchtest.commands import zz_config_explain as explain

    loaded = _load(arguments)
    print(json.dumps(explain.as_json(loaded), indent=2) if arguments.json else explain.as_text(loaded))
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    try:
        loaded = _load(arguments)
    except ConfigError as error:
        if not arguments.json:
            raise
        print(json.dumps({"valid": False, "files": [], "problems": error.message.splitlines()}, indent=2))
        return error.exit_code
    files = [str(file) for file in (loaded.user_file, loaded.file) if file]
    if arguments.json:
        print(json.dumps({"valid": True, "files": files, "problems": []}, indent=2))
    else:
        print("\n".join(f"{file}: valid" for file in files) or "no config file; the defaults hold")
    return 0


def _schema() -> int:
    from watchtest.config import json_schema

    print(json.dumps(json_schema(), indent=2))
    return 0


def _load(arguments: argparse.Namespace) -> Loaded:
    from platformdirs import user_config_path

    from watchtest.config import load

    folder = workspace.find(Path(arguments.workspace or "."))
    file = getattr(arguments, "file", None)
    if file is not None:  # that file alone: what the machine adds is not its fault
        return load(folder, explicit=file, environ={}, user_folder=None, flags={})
    return load(
        folder,
        explicit=arguments.config and Path(arguments.config),
        environ=os.environ,
        user_folder=user_config_path("watchtest"),
        flags={},
    )
