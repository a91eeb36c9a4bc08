"""Storage of failures: each text is stored once, and a signature groups similar failures.

A signature is one line: the exception, the message without its variable parts, and the function.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from typing import Any

from watchtest.core.model import Failure, Location
from watchtest.core.text import STORED_TEXT_LIMIT
from watchtest.history.store.columns import storable_integer, storable_text
from watchtest.history.store.database import Connection

SIGNATURE_LIMIT = 300
_READ_LIMIT = 4 * SIGNATURE_LIMIT
COMPRESSION_LEVEL = 3

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


def add_failure(
    connection: Connection, run: int, test: int, attempt: int, failure: Failure, identity: str = ""
) -> None:
    """Store a failure in the caller's transaction. `identity` is the id of the test."""
    document = json.dumps(_document(failure), separators=(",", ":"), ensure_ascii=False).encode()
    digest = hashlib.blake2b(document, digest_size=16).digest()
    signature_text = storable_text(signature(failure, identity))
    connection.execute("INSERT INTO signatures (text) VALUES (?) ON CONFLICT (text) DO NOTHING", (signature_text,))
    if connection.execute("SELECT 1 FROM contents WHERE digest = ?", (digest,)).fetchone() is None:
        packed = zlib.compress(document, COMPRESSION_LEVEL)
        connection.execute("INSERT INTO contents (digest, document) VALUES (?, ?)", (digest, packed))
    connection.execute(
        """
        INSERT INTO failures (run, test, attempt, signature, content)
        SELECT ?, ?, ?, signatures.number, contents.number FROM signatures, contents
        WHERE signatures.text = ? AND contents.digest = ?
        """,
        (run, test, attempt, signature_text, digest),
    )


def unpack_failure(document: bytes) -> Failure:
    """Return the failure that a compressed document describes."""
    raw: dict[str, Any] = json.loads(zlib.decompress(document))
    return Failure(**{**raw, "where": _location(raw["where"]), "crash": _location(raw["crash"])})


def _document(failure: Failure) -> dict[str, object]:
    line = failure.source_line
    return {
        "kind": storable_text(failure.kind, STORED_TEXT_LIMIT),
        "message": storable_text(failure.message, STORED_TEXT_LIMIT),
        "where": _pair(failure.where),
        "column": None if failure.column is None else storable_integer(failure.column),
        "source_line": None if line is None else storable_text(line, STORED_TEXT_LIMIT),
        "crash": _pair(failure.crash),
        "text": storable_text(failure.text, STORED_TEXT_LIMIT),
        "output": storable_text(failure.output, STORED_TEXT_LIMIT),
        "function": storable_text(failure.function, STORED_TEXT_LIMIT),
    }


def _pair(location: Location | None) -> tuple[str, int] | None:
    return None if location is None else (storable_text(location.file), storable_integer(location.line))


def _location(pair: Any) -> Location | None:
    return None if pair is None else Location(pair[0], pair[1])
