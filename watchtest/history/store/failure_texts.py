"""Storage of failures: each text is stored once."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

from watchtest.core.model import Failure, Location
from watchtest.core.text import STORED_TEXT_LIMIT
from watchtest.history.store.columns import storable_integer, storable_text
from watchtest.history.store.database import Connection
from watchtest.history.store.failure_signature import signature

COMPRESSION_LEVEL = 3


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
