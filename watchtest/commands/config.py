"""`watchtest config`: show, check or describe the settings.

Show where each setting comes from, check a config file, or print the JSON Schema. Changes nothing.

    watchtest config show
    watchtest config validate watchtest.toml
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from watchtest.commands import add_command, add_json, load_settings, print_json
from watchtest.errors import ConfigError
from watchtest.workspace.folder import find_workspace

if TYPE_CHECKING:
    from watchtest.config import LoadedConfig


def add_options(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="config_action", metavar="show|validate|schema", required=True)
    show = add_command(verbs, "show", _show, _show.__doc__)
    add_json(show)
    validate = add_command(verbs, "validate", _validate, _validate.__doc__)
    text = "file to check (default: the files that would be used)"
    validate.add_argument("file", nargs="?", type=Path, metavar="FILE", help=text)
    add_json(validate)
    add_command(verbs, "schema", _schema, _schema.__doc__)


def _show(arguments: argparse.Namespace) -> int:
    """`watchtest config show`: print every setting and where its value came from.

    Print every setting and where its value came from: a file, a variable or the default.

        watchtest config show
    """
    loaded = _load(arguments)
    print(json.dumps(as_json(loaded), indent=2) if arguments.json else as_text(loaded))
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    """`watchtest config validate`: check a config file and report everything that is wrong.

    Check a config file and report everything that is wrong at once. Exit code 2 if anything is.

        watchtest config validate
        watchtest config validate watchtest.toml
    """
    try:
        loaded = _load(arguments)
    except ConfigError as error:
        if not arguments.json:
            raise
        print_json({"valid": False, "files": [], "problems": error.message.splitlines()})
        return error.exit_code
    files = [str(file) for file in (loaded.user_file, loaded.file) if file]
    if arguments.json:
        print_json({"valid": True, "files": files, "problems": []})
    else:
        print("\n".join(f"{file}: valid" for file in files) or "no config file; the defaults apply")
    return 0


def _schema(_arguments: argparse.Namespace) -> int:
    """`watchtest config schema`: print the JSON Schema, for editors.

    Print the JSON Schema of the settings, with which editors complete and check a config file.

        watchtest config schema > watchtest.schema.json
    """
    from watchtest.config import json_schema

    print_json(json_schema())
    return 0


def _load(arguments: argparse.Namespace) -> LoadedConfig:
    file = getattr(arguments, "file", None)
    if file is None:
        return load_settings(arguments)[1]
    from watchtest.config import load

    # Check that file alone, without the user's defaults and variables.
    return load(find_workspace(arguments.workspace), explicit=file, environ={}, user_folder=None, flags={})


WIDEST_COLUMN = 44  # a longer value moves its own comment to the right, but not the others


def as_text(loaded: LoadedConfig) -> str:
    """Return lines of `key = value   # origin`, which are also a valid config file."""
    from watchtest.config.toml_literal import inline

    settings = {f"{key} = {inline(value)}": loaded.origins[key] for key, value in _values(loaded)}
    column = max((len(setting) for setting in settings if len(setting) <= WIDEST_COLUMN), default=0)
    return "\n".join(f"{setting:<{column}}   # {origin}" for setting, origin in settings.items())


def as_json(loaded: LoadedConfig) -> dict[str, Any]:
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


def _values(loaded: LoadedConfig) -> list[tuple[str, Any]]:
    from watchtest.config.keys import LISTS

    sections = loaded.config.model_dump(mode="json", exclude_none=True)
    lists = [(name, sections.pop(name)) for name in LISTS]
    values = [(f"{name}.{key}", value) for name, section in sections.items() for key, value in section.items()]
    return [*values, *lists]
