"""Declares how the value of a setting can reach the host or its secrets. A project may not set such a value by itself.

What the user has set, or else the default, is the measure: only a value that goes beyond it needs the user's consent.
Values are those of a TOML file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf
from typing import Any

from watchtest.workspace.consent import Boxes

Comparison = Callable[[Any, Any], bool]
"""Whether the first value allows more than the second."""


@dataclass(frozen=True, slots=True)
class HostReach:
    """Belongs to the type of a key that can reach the host."""

    why: str
    """What the value allows, for the person who is asked."""
    goes_beyond: Comparison
    boxes: Boxes = Boxes.ANY
    """The kinds of box in which it does."""


def looser(*order: str | bool) -> Comparison:
    """Compare values by their place in this order, from the strictest to the loosest."""
    return lambda value, own: order.index(value) > order.index(own)


def more_than(harmless: Collection[str] = ()) -> Comparison:
    """Compare lists: a new item allows more, unless it is harmless."""
    return lambda value, own: not {*value} <= {*own, *harmless}


def other_than(*harmless: object) -> Comparison:
    """Every other value reaches the host, unless it is harmless."""
    return lambda value, own: value not in harmless and value != own


def is_path(value: str, own: str) -> bool:
    """A name is looked up on the user's PATH, but a path may lead to a program of the project."""
    return ("/" in value or "\\" in value) and value != own


def replaces_own(value: str, own: str) -> bool:
    """Only what the user has set is protected."""
    return own not in ("", value)


def limit_above(harmless: str | int) -> Comparison:
    """Compare limits. If the user has set none, only one above this, or none at all, allows too much."""
    return lambda value, own: _amount(value) > _amount(harmless if own == "auto" else own)


def _amount(limit: str | float) -> float:
    """Return a size in KiB or a number; 0 and "" mean no limit, and `auto` is never too much."""
    if limit == "auto":
        return 0
    if isinstance(limit, str) and limit:
        return int(limit[:-1]) << 10 * "kmg".index(limit[-1].lower())
    return float(limit) if limit else inf
