"""`config show`: every value and where it came from, for people (as TOML) and for machines (as JSON)."""

from __future__ import annotations

from typing import Any

from watchtest.config.keys import LISTS
from watchtest.config.loader import Loaded
from watchtest.config.toml_literal import literal

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
    sections = loaded.config.model_dump(mode="json", exclude_none=True)
    lists = [(name, sections.pop(name)) for name in LISTS]
    values = [(f"{name}.{key}", value) for name, section in sections.items() for key, value in section.items()]
    return [*values, *lists]


def _written(value: Any) -> str:
    """Tables, too, whole: these were checked, and are of no great depth."""
    match value:
        case dict():
            return "{" + ", ".join(f"{key} = {_written(one)}" for key, one in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_written, value)) + "]"
        case _:
            return literal(value)
