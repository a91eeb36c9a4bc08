"""Failures that are alike, by one line: exception, message without what differs by chance, function. Pure."""

from __future__ import annotations

import re

from watchtest.core.model import Failure

LIMIT = 300
_LOOKED_AT = 4 * LIMIT

# In this order: what a later pattern would tear apart has to be gone by then.
_MASKS = tuple(
    (re.compile(pattern), mask)
    for pattern, mask in (
        (r"\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b", "<uuid>"),
        (r"\b\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d)?)?", "<time>"),
        (r"\b0x[0-9a-fA-F]+\b", "<address>"),
        (r"(?:/(?:private/)?(?:tmp|var/folders|var/tmp)|[A-Za-z]:\\[^\s'\"]*\\Temp)[/\\][^\s'\":,)\]]*", "<path>"),
        (r"\b(?=[0-9a-f]*\d)(?=[0-9a-f]*[a-f])[0-9a-f]{12,}\b", "<hex>"),
        (r"(?<![A-Za-z_])[-+]?\d+(?:[.,_]\d+)*(?:[eE][-+]?\d+)?", "#"),
        (r"#(?:, ?#)+", "#"),
        (r"\[(?:#(?:, ?\.\.\.)?)?\]", "[#]"),
    )
)


def signature(failure: Failure, test: str = "") -> str:
    """`AssertionError: assert # == # in total`. Without a function, the file that it happened in.

    A test that itself says no is no function that several tests have in common: then, too, it is the file.
    """
    said = masked(failure.message)
    kind = masked(failure.kind) or "unknown"
    # pytest and others put the kind in front of the message already.
    words = said if said.startswith(kind) else f"{kind}: {said}" if said else kind
    at = failure.crash or failure.where
    is_own = failure.function.rpartition(".")[2] == test.partition("[")[0].rpartition("::")[2]
    place = failure.function if failure.function and not is_own else at.file if at is not None else failure.function
    return f"{words[:LIMIT]} in {place}" if place else words[:LIMIT]


def masked(message: str) -> str:
    """Without numbers, addresses, times, ids and temporary paths; blanks in a row are one."""
    # Text of a box may be of any length: what is not kept is not looked at either.
    text = message[:_LOOKED_AT]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return " ".join(text.split())[:LIMIT]
