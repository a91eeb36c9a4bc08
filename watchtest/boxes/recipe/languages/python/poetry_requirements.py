"""Translate the requirements of poetry and pipenv, which are tables, into those of pip."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from watchtest.boxes.recipe.languages.python.requirement_lists import normalized
from watchtest.boxes.recipe.project_files import table, texts


def requirements_of(named: Mapping[str, Any]) -> dict[str, str]:
    """Return the requirements of a table by normalized name, without Python itself, paths and addresses."""
    found: dict[str, str] = {}
    for name, value in named.items():
        version = value if isinstance(value, str) else table(value).get("version")
        if name.lower() != "python" and isinstance(version, str) and "||" not in version:
            extras = ",".join(texts(table(value).get("extras")))
            marker = table(value).get("markers")
            text = f"{name}[{extras}]" if extras else name
            text += ",".join(filter(None, map(_specifier, version.split(","))))
            found[normalized(name)] = f"{text}; {marker}" if isinstance(marker, str) else text
    return found


def _specifier(part: str) -> str:
    """Return pip's form of `^1.2` (the leftmost part that is not zero stays), `~1.2`, `1.*` or `1.2`."""
    part = part.strip()
    found = re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)(\S*)", part)
    if found is None:
        return "" if part == "*" else part if not part[:1].isdigit() else f"=={part}"
    numbers = [int(number) for number in found[2].split(".")]
    if found[1] == "~":
        kept = min(1, len(numbers) - 1)
    else:
        kept = next((place for place, number in enumerate(numbers) if number), len(numbers) - 1)
    limit = ".".join(map(str, [*numbers[:kept], numbers[kept] + 1]))
    return f">={found[2]}{found[3]},<{limit}"
