"""Failures as they are kept: their words once, however often they are said, and a signature to find their like by.

Failures that are alike, by one line: exception, message without what differs by chance, function. Pure.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Any

from watchtest.core.model import Failure, Location
from watchtest.history.store.columns import TEXT_LIMIT, integer, text
from watchtest.history.store.database import Connection

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
    said = mask(failure.message)
    kind = mask(failure.kind) or "unknown"
    # pytest and others put the kind in front of the message already.
    words = said if said.startswith(kind) else f"{kind}: {said}" if said else kind
    at = failure.crash or failure.where
    is_own = failure.function.rpartition(".")[2] == test.partition("[")[0].rpartition("::")[2]
    place = failure.function if failure.function and not is_own else at.file if at is not None else failure.function
    return f"{words[:LIMIT]} in {place}" if place else words[:LIMIT]


def mask(message: str) -> str:
    """Without numbers, addresses, times, ids and temporary paths; blanks in a row are one."""
    # Text of a box may be of any length: what is not kept is not looked at either.
    text = message[:_LOOKED_AT]
    for pattern, mask in _MASKS:
        text = pattern.sub(mask, text)
    return " ".join(text.split())[:LIMIT]


LEVEL = 3


def add_failure(
    connection: Connection, run: int, test: int, attempt: int, failure: Failure, identity: str = ""
) -> None:
    """Within a transaction of the caller's. `identity` is the test's id."""
    document = json.dumps(_document(failure), separators=(",", ":"), ensure_ascii=False).encode()
    digest = hashlib.blake2b(document, digest_size=16).digest()
    said = text(signature(failure, identity))
    connection.execute("INSERT INTO signatures (text) VALUES (?) ON CONFLICT (text) DO NOTHING", (said,))
    if connection.execute("SELECT 1 FROM contents WHERE digest = ?", (digest,)).fetchone() is None:
        packed = zlib.compress(document, LEVEL)
        connection.execute("INSERT INTO contents (digest, document) VALUES (?, ?)", (digest, packed))
    connection.execute(
        """
        INSERT INTO failures (run, test, attempt, signature, content)
        SELECT ?, ?, ?, signatures.number, contents.number FROM signatures, contents
        WHERE signatures.text = ? AND contents.digest = ?
        """,
        (run, test, attempt, said, digest),
    )


def unpack_failure(document: bytes) -> Failure:
    """As it was told."""
    raw: dict[str, Any] = json.loads(zlib.decompress(document))
    return Failure(
        kind=raw["kind"],
        message=raw["message"],
        where=_place(raw["where"]),
        column=raw["column"],
        source_line=raw["source_line"],
        crash=_place(raw["crash"]),
        text=raw["text"],
        output=raw["output"],
        function=raw["function"],
    )


def _document(failure: Failure) -> dict[str, object]:
    line = failure.source_line
    return {
        "kind": text(failure.kind, TEXT_LIMIT),
        "message": text(failure.message, TEXT_LIMIT),
        "where": _pair(failure.where),
        "column": None if failure.column is None else integer(failure.column),
        "source_line": None if line is None else text(line, TEXT_LIMIT),
        "crash": _pair(failure.crash),
        "text": text(failure.text, TEXT_LIMIT),
        "output": text(failure.output, TEXT_LIMIT),
        "function": text(failure.function, TEXT_LIMIT),
    }


def _pair(place: Location | None) -> tuple[str, int] | None:
    return None if place is None else (text(place.file), integer(place.line))


def _place(pair: Any) -> Location | None:
    return None if pair is None else Location(pair[0], pair[1])
