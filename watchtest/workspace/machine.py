"""Identifies this machine, independently of its network and host name."""

from __future__ import annotations

import functools
import hashlib
import platform
import uuid
from pathlib import Path

FILES = (Path("/etc/machine-id"), Path("/var/lib/dbus/machine-id"))
_IS_MADE_UP = 0b11 << 40
"""Set in a hardware address that no manufacturer assigned: a random one, or that of a container."""


@functools.cache
def machine_id() -> str:
    """Return the id of this machine, or its hardware address, or its host name."""
    for file in FILES:
        try:
            if text := file.read_text(encoding="ascii").strip():
                return text[:16]
        except (OSError, ValueError):
            continue  # not on every system
    address = uuid.getnode()
    return platform.node() if address & _IS_MADE_UP else f"{address:012x}"


def workspace_digest(workspace: Path) -> str:
    """Return a digest that differs between workspaces, and between machines that share a home folder or an engine."""
    identity = f"{machine_id()} {workspace}".encode("utf-8", "surrogateescape")
    return hashlib.sha256(identity).hexdigest()
