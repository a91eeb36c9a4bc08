"""The user's consent to what a project asks of this machine, kept in the user's state folder.

What stays inside a container needs no consent. Each consent is to one value of one setting; another value of it needs
another consent, and other settings do not matter. Knows no settings and asks nobody.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from watchtest.core.text import timestamp
from watchtest.errors import WorkspaceError
from watchtest.workspace.folder import replace_file
from watchtest.workspace.machine import workspace_digest

SCHEMA = "watchtest.trust"
SCHEMA_VERSION = 1
FILE_LIMIT = 16 * 1024 * 1024


class Boxes(StrEnum):
    """The kinds of box in which a setting reaches the host."""

    ANY = "any"
    LOCAL = "local"
    """The local box, with or without a sandbox."""
    BARE = "bare"
    """The local box without a sandbox: what runs in it runs on the host."""


@dataclass(frozen=True, slots=True)
class HostRequest:
    """One setting with which a project reaches beyond its container."""

    key: str
    value: str
    """As TOML, complete and printable."""
    origin: str
    """The file and line."""
    why: str
    boxes: Boxes = Boxes.ANY

    @property
    def digest(self) -> str:
        """Return what a consent is stored by: the content, wherever it is written."""
        return hashlib.sha256(f"{self.key}\0{self.value}".encode("utf-8", "surrogateescape")).hexdigest()

    @property
    def line(self) -> str:
        return f"{self.origin}: {self.key} = {self.value}: {self.why}"

    def __str__(self) -> str:
        return f"{self.origin}: {self.key} = {self.value}\n    {self.why}"


@dataclass(frozen=True, slots=True)
class ConsentFile:
    """What the user has consented to in one workspace."""

    state: Path
    """The user's state folder."""
    workspace: Path

    @property
    def path(self) -> Path:
        return self.state / "trust" / f"{workspace_digest(self.workspace)[:16]}.json"

    def granted(self) -> frozenset[str]:
        """Return the digests of the requests with a consent."""
        return frozenset(self._entries())

    def grant(self, requests: Iterable[HostRequest], now: float) -> None:
        entries = self._entries()
        for request in requests:
            entries[request.digest] = {"key": request.key, "value": request.value, "at": timestamp(now)}
        document = {
            "schema": SCHEMA,
            "schema_version": SCHEMA_VERSION,
            "workspace": str(self.workspace),
            "granted": entries,
        }
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            replace_file(self.path, json.dumps(document, indent=1).encode(), mode=0o600)
        except OSError as error:
            text = f"{self.path} cannot be written: {error.strerror}"
            raise WorkspaceError(text, hint="make it writable, or use --trust for a single command") from error

    def revoke(self) -> int:
        """Forget every consent and return how many there were."""
        count = len(self.granted())
        try:
            self.path.unlink(missing_ok=True)
        except OSError as error:
            text = f"{self.path} cannot be removed: {error.strerror}"
            raise WorkspaceError(text, hint="remove it yourself") from error
        return count

    def _entries(self) -> dict[str, Any]:
        """Return the stored consents by digest; none if the file is missing, invalid or not only the user's own.

        A file with other rights may come out of a repository, if the state folder is in one.
        """
        try:
            descriptor = os.open(self.path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
            with os.fdopen(descriptor, "rb") as file:
                document = json.loads(file.read(FILE_LIMIT)) if _is_private(os.fstat(descriptor)) else None
        except (OSError, ValueError, RecursionError):
            return {}
        if not isinstance(document, dict) or document.get("schema_version") != SCHEMA_VERSION:
            return {}
        granted = document.get("granted") if document.get("workspace") == str(self.workspace) else None
        return granted if isinstance(granted, dict) else {}


def _is_private(status: os.stat_result) -> bool:
    if not hasattr(os, "geteuid"):
        return True
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


class NeedsConsent(WorkspaceError):
    """The project asks for more than the user has consented to."""

    code = "consent"

    def __init__(self, requests: Sequence[HostRequest], file: ConsentFile, command: str) -> None:
        listed = "".join(f"\n  {request}" for request in requests)
        super().__init__(
            f"this reaches beyond a container, so it needs your consent:{listed}",
            hint=f"to allow this: `{command}`; for a single command: --trust; or make it a setting of your own",
        )
        self.requests = requests
        self.file = file


def require_consent(file: ConsentFile, requests: Iterable[HostRequest], command: str) -> None:
    """Raise NeedsConsent if a request has no consent. `command` is the command that grants it."""
    granted = file.granted()
    missing = [request for request in requests if request.digest not in granted]
    if missing:
        raise NeedsConsent(missing, file, command)
