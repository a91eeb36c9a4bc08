"""`watchtest config show|validate|schema`. Reads settings; changes none.

`config show`: every value and where it came from, for people (as TOML) and for machines (as JSON).
"""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchtest.errors import ConfigError
from watchtest.workspace.folder import find_workspace

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
    loaded = _load(arguments)
    print(json.dumps(as_json(loaded), indent=2) if arguments.json else as_text(loaded))
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
    from watchtest.config import load
    from watchtest.workspace.user_dirs import config_dir

    folder = find_workspace(Path(arguments.workspace or "."))
    file = getattr(arguments, "file", None)
    if file is not None:  # that file alone: what the machine adds is not its fault
        return load(folder, explicit=file, environ={}, user_folder=None, flags={})
    return load(
        folder,
        explicit=arguments.config and Path(arguments.config),
        environ=os.environ,
        user_folder=config_dir(),
        flags={},
    )


WIDEST_COLUMN = 44  # a longer value pushes its own comment out, not everyone's


def as_text(loaded: Loaded) -> str:
    """`key = value   # from`, which is also a config file."""
    settings = {f"{key} = {_written(value)}": loaded.origins[key] for key, value in _values(loaded)}
    column = max((len(setting) for setting in settings if len(setting) <= WIDEST_COLUMN), default=0)
    return "\n".join(f"{setting:<{column}}   # {origin}" for setting, origin in settings.items())


def as_json(loaded: Loaded) -> dict[str, Any]:
    return {
        "file": None if loaded.file is None else str(loaded.file),
        "user_file": None if loaded.user_file is None else str(loaded.user_file),
        "settings": {
            key: {
                "value": value,
                "from": str(loaded.origins[key]),
                "layer": loaded.origins[key].layer,
                "place": loaded.origins[key].place,
                "line": loaded.origins[key].line,
            }
            for key, value in _values(loaded)
        },
    }


def _values(loaded: Loaded) -> list[tuple[str, Any]]:
    from watchtest.config.keys import LISTS

    sections = loaded.config.model_dump(mode="json", exclude_none=True)
    lists = [(name, sections.pop(name)) for name in LISTS]
    values = [(f"{name}.{key}", value) for name, section in sections.items() for key, value in section.items()]
    return [*values, *lists]


def _written(value: Any) -> str:
    """Tables, too, whole: these were checked, and are of no great depth."""
    from watchtest.config.toml_literal import literal

    match value:
        case dict():
            return "{" + ", ".join(f"{key} = {_written(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_written, value)) + "]"
        case _:
            return literal(value)
