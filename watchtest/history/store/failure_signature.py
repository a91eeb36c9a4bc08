"""Groups similar failures by a signature: the exception, the message without its variable parts, and the function."""

from __future__ import annotations

import re

from watchtest.core.model import Failure

SIGNATURE_LIMIT = 300
_READ_LIMIT = 4 * SIGNATURE_LIMIT

# The order matters: a later pattern would split what an earlier one masks as a whole.
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
    """Return the signature of a failure, such as `AssertionError: assert # == # in total`.

    It ends with the file if there is no function, or if the function is the test itself and thus not shared.
    """
    message = mask(failure.message)
    kind = mask(failure.kind) or "unknown"
    # pytest and others already put the kind in front of the message.
    words = message if message.startswith(kind) else f"{kind}: {message}" if message else kind
    at = failure.crash or failure.where
    is_own = failure.function.rpartition(".")[2] == test.partition("[")[0].rpartition("::")[2]
    place = failure.function if failure.function and not is_own else at.file if at is not None else failure.function
    return f"{words[:SIGNATURE_LIMIT]} in {place}" if place else words[:SIGNATURE_LIMIT]


def mask(message: str) -> str:
    """Return the message without numbers, addresses, times, ids, temporary paths and repeated whitespace."""
    # Text from a box may have any length, so the rest is not even searched.
    text = message[:_READ_LIMIT]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return " ".join(text.split())[:SIGNATURE_LIMIT]
