"""Failures as they are kept: their words once, however often they are said, and a signature to find their like by."""

from __future__ import annotations

import hashlib
import json
import zlib
from typing import Any

from watchtest.core.model import Failure, Place
from watchtest.history.store.database import Connection
from watchtest.history.store.zz_history_rows import TEXT_LIMIT, integer, text
from watchtest.history.store.zz_history_signature import signature

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


def failure_of(document: bytes) -> Failure:
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


def _pair(place: Place | None) -> tuple[str, int] | None:
    return None if place is None else (text(place.file), integer(place.line))


def _place(pair: Any) -> Place | None:
    return None if pair is None else Place(pair[0], pair[1])
