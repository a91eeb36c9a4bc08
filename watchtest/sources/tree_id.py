"""Computes git's ids of content and trees without git. Pure, except that `file_id` reads from an open file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable

from watchtest.core.model import Entry, EntryKind

CHUNK_BYTES = 1 << 20
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

FILE_MODE = b"100644"
PROGRAM_MODE = b"100755"
SYMLINK_MODE = b"120000"
FOLDER_MODE = b"40000"


def blob_id(content: bytes) -> str:
    """Return git's id of this content."""
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def file_id(descriptor: int, size: int) -> tuple[str, int]:
    """Return git's id of an open file's content, which is valid if it has `size` bytes, and the bytes read."""
    digest = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False)
    count = 0
    # One byte more than expected is enough to know that the file has grown.
    while count <= size and (chunk := os.read(descriptor, min(CHUNK_BYTES, size + 1 - count))):
        digest.update(chunk)
        count += len(chunk)
    return digest.hexdigest(), count


def name_bytes(name: str) -> bytes:
    """Return the name as the file system and git store it."""
    return name.encode("utf-8", "surrogateescape")


def git_mode(entry: Entry) -> bytes:
    """Return git's mode of an entry; of a file's permissions git stores only whether its owner may execute it."""
    if entry.kind is EntryKind.SYMLINK:
        return SYMLINK_MODE
    return PROGRAM_MODE if entry.mode & 0o100 else FILE_MODE


def folder_id(items: Iterable[tuple[bytes, bytes, str]]) -> str:
    """Return git's id of a folder, computed from its children: each child's name, git's mode and git's id."""
    # Git sorts as if the name of a folder ended in a slash.
    ordered = sorted(items, key=lambda item: item[0] + b"/" if item[1] == FOLDER_MODE else item[0])
    body = b"".join([b"%s %s\0%s" % (mode, name, bytes.fromhex(id)) for name, mode, id in ordered])
    return hashlib.sha1(b"tree %d\0" % len(body) + body, usedforsecurity=False).hexdigest()
