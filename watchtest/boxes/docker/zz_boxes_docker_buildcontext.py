"""The files that a Dockerfile may copy from, as the archive an engine takes: those of the snapshot, exactly."""

from __future__ import annotations

import io
import tarfile
from typing import IO

from docker.utils.build import PatternMatcher

from watchtest.boxes.protocols import BuiltImage, Read
from watchtest.core.model import Entry, Kind, Snapshot
from watchtest.errors import ImageError

IGNORE_FILE = ".dockerignore"
OUTSIDE = ".watchtest.Dockerfile"
"""Where a Dockerfile that lies outside of its context is put in the archive."""


def write_context(wish: BuiltImage, archive: IO[bytes]) -> str:
    """Write the archive, rewind it, and tell where the Dockerfile is in it."""
    if wish.snapshot is None or wish.read is None:
        raise ImageError(f"{wish.dockerfile}: there is no snapshot to build from")
    prefix = f"{wish.context}/" if wish.context else ""
    inside = {path[len(prefix) :]: path for path in wish.snapshot.entries if path.startswith(prefix)}
    is_inside = wish.dockerfile.startswith(prefix)
    dockerfile = wish.dockerfile[len(prefix) :] if is_inside else OUTSIDE
    ignored = _matcher(inside, wish.snapshot, wish.read)
    with tarfile.open(fileobj=archive, mode="w") as tar:
        for name, path in sorted(inside.items()):
            # The Dockerfile itself is always needed, whatever is ignored.
            if name == dockerfile or ignored is None or not ignored.matches(name):
                _add(tar, name, wish.snapshot.entries[path], path, wish.read)
        if not is_inside:
            _add(tar, OUTSIDE, wish.snapshot.entries[wish.dockerfile], wish.dockerfile, wish.read)
    archive.seek(0)
    return dockerfile


def _matcher(inside: dict[str, str], snapshot: Snapshot, read: Read) -> PatternMatcher | None:
    path = inside.get(IGNORE_FILE)
    if path is None:
        return None
    lines = read(path, snapshot.entries[path]).decode("utf-8", "replace").splitlines()
    patterns = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return PatternMatcher(patterns)


def _add(tar: tarfile.TarFile, name: str, entry: Entry, path: str, read: Read) -> None:
    member = tarfile.TarInfo(name)
    member.mode = entry.mode
    match entry.kind:
        case Kind.FOLDER:
            member.type = tarfile.DIRTYPE
            tar.addfile(member)
        case Kind.SYMLINK:
            member.type, member.linkname = tarfile.SYMTYPE, read(path, entry).decode("utf-8", "surrogateescape")
            tar.addfile(member)
        case Kind.FILE:
            content = read(path, entry)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
