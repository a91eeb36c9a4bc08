"""The format of frames, used by both ends: a JSON header and a body of raw bytes, length-prefixed and bounded.

Says nothing about what frames mean.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Dict, Iterator, List, Tuple

LENGTHS = struct.Struct(">4sII")
MAGIC = b"wt1\n"
MAX_HEADER = 1024 * 1024
MAX_BODY = 32 * 1024 * 1024
BODY_PIECE = 4 * 1024 * 1024
"""The most that a sender puts into one body; MAX_BODY is the most that a receiver accepts."""

Header = Dict[str, Any]
Frame = Tuple[Header, bytes]


class BadFrame(Exception):
    """The other side sent something that is not a frame, so the stream cannot be trusted any more."""


def encode(header: Header, body: bytes = b"") -> bytes:
    """Return the frame as bytes. Lone surrogates (names that are not UTF-8) survive as JSON escapes."""
    head = json.dumps(header, separators=(",", ":")).encode("ascii")
    if len(head) > MAX_HEADER or len(body) > MAX_BODY:
        raise BadFrame("frame too large to send: header {} bytes, body {} bytes".format(len(head), len(body)))
    return LENGTHS.pack(MAGIC, len(head), len(body)) + head + body


class Decoder:
    """Turns chunks of a byte stream into frames, keeping at most one unfinished frame in memory."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, piece: bytes) -> Iterator[Frame]:
        self._buffer += piece
        while len(self._buffer) >= LENGTHS.size:
            magic, head_size, body_size = LENGTHS.unpack_from(self._buffer)
            if magic != MAGIC:
                raise BadFrame("not a frame: starts with {!r}".format(bytes(self._buffer[:16])))
            if head_size > MAX_HEADER or body_size > MAX_BODY:
                raise BadFrame("frame too large: header {} bytes, body {} bytes".format(head_size, body_size))
            middle = LENGTHS.size + head_size
            end = middle + body_size
            if len(self._buffer) < end:
                return
            frame = _header(bytes(self._buffer[LENGTHS.size : middle])), bytes(self._buffer[middle:end])
            del self._buffer[:end]
            yield frame


def _header(raw: bytes) -> Header:
    try:
        header = json.loads(raw.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise BadFrame("header is not JSON: {}".format(error)) from error
    if not isinstance(header, dict) or not isinstance(header.get("t"), str):
        raise BadFrame("header has no type: {!r}".format(raw[:80]))
    return header


def path_bytes(path: str) -> bytes:
    """Encode a path of the protocol for the file system, whatever the locale."""
    return path.encode("utf-8", "surrogateescape")


def path_text(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")


def in_pieces(rows: List[Any], count: int = 2000) -> Iterator[Tuple[List[Any], bool]]:
    """Yield `rows` in chunks that fit a body, each with whether it is the last."""
    for start in range(0, max(len(rows), 1), count):
        yield rows[start : start + count], start + count >= len(rows)
