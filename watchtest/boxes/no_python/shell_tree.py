"""The tree of a box without Python as values: the archive that updates it, and what a listing proves about it.

Only what a listing proves is believed: a path whose line is missing, duplicate or not understood is written again.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterable, Mapping
from typing import IO, NamedTuple, Self

from watchtest.agent.frames import path_bytes, path_text
from watchtest.agent.owned_paths import blob_id, encode_ledger, refusal
from watchtest.boxes.protocols import ContentReader
from watchtest.core.model import Delta, Entry, EntryKind
from watchtest.errors import BoxError

HASHES = {"sha256sum": "sha256", "sha1sum": "sha1", "md5sum": "md5"}
"""The hash tools that an image may have, and their names in hashlib; the first one that exists is used."""
IN_MEMORY = 32 * 1024 * 1024
LINE = re.compile(rb"([0-9a-f]+) (\d+) \./(.*)", re.DOTALL)
HASHED = re.compile(rb"\\?([0-9a-f]{32,64}) [ *]\./(.*)", re.DOTALL)


class OwnedPath(NamedTuple):
    """A path that was written into the box, and the hash of its content by the box's own tool."""

    entry: Entry
    hash: str


Tree = Mapping[str, OwnedPath]


# -- the archive -----------------------------------------------------------------------------------


class FileOwner(NamedTuple):
    """The user and group that own the files in the box."""

    uid: int
    gid: int


def prepare(
    old: Tree, lost: Iterable[str], delta: Delta, read: ContentReader, hash_tool: str, owner: FileOwner
) -> tuple[dict[str, OwnedPath], IO[bytes]]:
    """Return the tree after this delta, and the archive for it: contents, and the lists that `apply` reads."""
    gone = [*delta.remove, *(path for path in lost if path not in delta.write)]
    for path in (*gone, *delta.write):
        if reason := refusal(path):
            raise BoxError(reason)
    with ArchiveBuilder(owner) as builder:
        builder.folder("tree")
        written = {path: _pack(builder, path, entry, read, hash_tool) for path, entry in delta.write.items()}
        tree = {path: owned for path, owned in old.items() if path not in gone} | written
        for name, content in _lists(tree, gone, builder.symlinks, {*old, *lost}, hash_tool).items():
            builder.file(name, content, 0o600)
        return tree, builder.finish()


def _pack(builder: ArchiveBuilder, path: str, entry: Entry, read: ContentReader, hash_tool: str) -> OwnedPath:
    if entry.kind is EntryKind.FOLDER:
        builder.folder(f"tree/{path}")
        return OwnedPath(entry, "")
    content = read(path, entry)
    if len(content) != entry.size or blob_id(content) != entry.digest:
        raise BoxError(f"{path} was damaged in transit")
    builder.parents(f"tree/{path}")
    if entry.kind is EntryKind.SYMLINK:
        builder.symlinks.append(content + b"\0./" + path_bytes(path))
    else:
        builder.file(f"tree/{path}", content, entry.mode)
    return OwnedPath(entry, _hash(hash_tool, content))


class ArchiveBuilder:
    """Builds an archive, and closes it if that fails. Folders are its members, so that the box's user owns them."""

    def __init__(self, owner: FileOwner) -> None:
        self._archive: IO[bytes] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115  whoever reads it closes it
        self._tar = tarfile.TarFile(fileobj=self._archive, mode="w", format=tarfile.GNU_FORMAT, encoding="utf-8")
        self._owner = owner
        self._folders: set[str] = set()
        self._now = int(time.time())
        self.symlinks: list[bytes] = []
        """Target and path of each. They are not members, because an engine refuses targets outside of the stage."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: object, *_: object) -> None:
        if error is not None:
            self._archive.close()

    def folder(self, name: str) -> None:
        self.parents(name)
        if name not in self._folders:
            self._folders.add(name)
            member = self._member(name, 0o755)
            member.type = tarfile.DIRTYPE
            self._tar.addfile(member)

    def parents(self, name: str) -> None:
        if "/" in name:
            self.folder(name.rpartition("/")[0])

    def file(self, name: str, content: bytes, mode: int) -> None:
        member = self._member(name, mode)
        member.size = len(content)
        self._tar.addfile(member, io.BytesIO(content))

    def finish(self) -> IO[bytes]:
        """Return the archive, without the padding that Python adds: podman stops reading before it, and then fails."""
        end = self._tar.offset
        self._tar.close()
        self._archive.truncate(end + 2 * tarfile.BLOCKSIZE)
        self._archive.seek(0)
        return self._archive

    def _member(self, name: str, mode: int) -> tarfile.TarInfo:
        member = tarfile.TarInfo(name)
        member.mode, member.uid, member.gid, member.mtime = mode, self._owner.uid, self._owner.gid, self._now
        return member


def _lists(tree: Tree, gone: list[str], symlinks: list[bytes], owned: set[str], hash_tool: str) -> dict[str, bytes]:
    """Return the lists by their names on the stage. `hollow`: folders that may be empty now, the deepest first."""
    deepest_first = sorted(gone, key=lambda path: -path.count("/"))
    hollow = sorted(_folders_above(gone) | set(gone), key=lambda path: -path.count("/"))
    kinds = {kind: [path for path, one in tree.items() if one.entry.kind is kind] for kind in EntryKind}
    return {
        # The format of the agent's ledger: if Python is installed in this box later, its agent knows what is ours.
        "owned": encode_ledger(sorted(owned | tree.keys())),
        "remove": _named(deepest_first),
        "hollow": _named(hollow),
        "symlinks": b"".join(pair + b"\0" for pair in symlinks),
        "paths": _named(sorted({*tree, *_folders_above(tree)})),
        "files": _named(kinds[EntryKind.FILE]),
        "links": _named(kinds[EntryKind.SYMLINK]),
        "hash": hash_tool.encode(),
        "manifest": manifest(tree, hash_tool),
    }


def _named(paths: Iterable[str]) -> bytes:
    return b"".join(b"./" + path_bytes(path) + b"\0" for path in paths)


def _folders_above(paths: Iterable[str]) -> set[str]:
    folders: set[str] = set()
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder and folder not in folders:
            folders.add(folder)
            folder = folder.rpartition("/")[0]
    return folders


# -- manifest and listing --------------------------------------------------------------------------


def manifest(tree: Tree, hash_tool: str) -> bytes:
    rows = {
        path: [one.entry.kind.value, one.entry.mode, one.entry.size, one.entry.digest, one.hash]
        for path, one in tree.items()
    }
    return json.dumps({"hash": hash_tool, "tree": rows}, separators=(",", ":")).encode("ascii")


def read_manifest(content: bytes | None, hash_tool: str) -> dict[str, OwnedPath]:
    """Return what was last written to the box; nothing if it is damaged, or hashed by another tool."""
    try:
        document = json.loads(content or b"{}")
        if document.get("hash") != hash_tool:
            return {}
        return {
            path: OwnedPath(Entry(EntryKind(kind), int(mode), int(size), str(digest)), str(hashed))
            for path, (kind, mode, size, digest, hashed) in document["tree"].items()
        }
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return {}


def proved_paths(tree: Tree, listing: bytes) -> set[str]:
    """Return the paths that the listing proves to be as they should be."""
    found = _Listing(listing, [path for path, one in tree.items() if one.entry.kind is EntryKind.SYMLINK])
    return {path for path, owned in tree.items() if found.proves(path, owned)}


class _Listing:
    """The output of `shell_agent.sh list`."""

    def __init__(self, listing: bytes, links: list[str]) -> None:
        parts = re.split(rb"(?m)^== (?:stat|hash|links|end)\n", listing)
        # A file name that contains one of our headings makes the listing unusable, so it proves nothing.
        _, stats, hashes, targets, _ = parts if len(parts) == 5 else [b""] * 5
        self._stats: dict[str, tuple[int, int] | None] = {}
        for line in stats.split(b"\n"):
            if found := LINE.fullmatch(line):
                path = path_text(found[3])
                self._stats[path] = None if path in self._stats else (int(found[1], 16), int(found[2]))
        self._hashes: dict[str, str | None] = {}
        for line in hashes.split(b"\n"):
            if found := HASHED.fullmatch(line):
                name = _unescaped(found[2]) if line.startswith(b"\\") else found[2]
                path = path_text(name)
                self._hashes[path] = None if path in self._hashes else found[1].decode("ascii")
        words = [line.split(b" ")[0].decode("ascii", "replace") for line in targets.splitlines()]
        self._targets = dict(zip(links, words, strict=True)) if len(words) == len(links) else {}

    def proves(self, path: str, owned: OwnedPath) -> bool:
        status = self._stats.get(path)
        if status is None or not self._has_real_folders(path):
            return False
        mode, size = status
        match owned.entry.kind:
            case EntryKind.FOLDER:
                return stat.S_ISDIR(mode)
            case EntryKind.SYMLINK:
                return stat.S_ISLNK(mode) and self._targets.get(path) == owned.hash
            case EntryKind.FILE:
                is_same = (mode & 0o777, size) == (owned.entry.mode, owned.entry.size)
                return stat.S_ISREG(mode) and is_same and self._hashes.get(path) == owned.hash

    def _has_real_folders(self, path: str) -> bool:
        while "/" in path:
            path = path.rpartition("/")[0]
            status = self._stats.get(path)
            if status is None or not stat.S_ISDIR(status[0]):
                return False
        return True


def _unescaped(name: bytes) -> bytes:
    """Undo the escapes of coreutils, which puts a backslash before the line of such a name."""
    return re.sub(rb"\\(.)", lambda found: {b"n": b"\n", b"r": b"\r"}.get(found[1], found[1]), name)


def _hash(hash_tool: str, content: bytes) -> str:
    return hashlib.new(HASHES[hash_tool], content, usedforsecurity=False).hexdigest() if hash_tool in HASHES else ""
