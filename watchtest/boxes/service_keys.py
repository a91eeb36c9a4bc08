"""Of which files a service is made: its key changes exactly when it has to be restarted. Pure."""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from watchtest.core.model import Entry, EntryKind, Snapshot

Matches = Callable[[str], bool]
Matcher = Callable[[Sequence[str]], Matches]
"""From gitignore-style globs to the paths they mean."""

UNREAD = re.compile(
    r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$|\.(md|rst|lock)$|(^|/)(LICENSE|\.gitignore|watchtest\.toml)$"
    r"|(^|/)([^/]*requirements[^/]*\.txt|pyproject\.toml|setup\.cfg|Pipfile|package-lock\.json|pnpm-lock\.yaml)$"
)
"""A server does not read these: tests, texts, and what setup alone reads, which leaves services as they are."""
FOREIGN = frozenset(
    {
        *(
            "redis-server",
            "valkey-server",
            "memcached",
            "postgres",
            "mysqld",
            "mariadbd",
            "mongod",
            "clickhouse-server",
        ),
        *("rabbitmq-server", "nats-server", "etcd", "minio", "elasticsearch", "opensearch", "zookeeper"),
        *("Xvfb", "chromedriver", "geckodriver", "sleep", "tail"),
    }
)
"""Programs that run nothing of the project."""


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """How a service is known to be ready: a port or URL that answers, or a command that succeeds."""

    kind: Literal["tcp", "http", "command"]
    what: int | str


@dataclass(frozen=True, slots=True)
class ServiceDefinition:
    """A service as the settings describe it."""

    name: str
    argv: tuple[str, ...]
    ready: ReadyCheck | None = None
    ready_timeout_s: float = 30.0
    restart_on: Literal["auto"] | tuple[str, ...] = "auto"
    env: Mapping[str, str] = field(default_factory=dict)
    restart_limit: int = 5
    grace_s: float = 2.0


@dataclass(frozen=True, slots=True)
class ServiceInputs:
    """What a key was made of."""

    definition: str
    files: Mapping[str, str]

    @property
    def key(self) -> str:
        text = json.dumps([self.definition, sorted(self.files.items())])
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]

    def difference(self, other: ServiceInputs) -> tuple[str, ...]:
        """The files that differ."""
        paths = self.files.keys() | other.files.keys()
        return tuple(sorted(path for path in paths if self.files.get(path) != other.files.get(path)))


class ServiceDependencies:
    """The files of one service, found again in every snapshot. Each path is matched once."""

    def __init__(self, definition: ServiceDefinition, matcher: Matcher) -> None:
        self._definition = definition
        globs = definition.restart_on
        self._matches = matcher(globs) if not isinstance(globs, str) else None
        self._known: dict[str, bool] = {}

    def basis(self, snapshot: Snapshot, surroundings: Mapping[str, object]) -> ServiceInputs:
        """`surroundings`: what else it is started with; its environment, say."""
        matches = self._remembered if self._matches is not None else automatic(self._definition.argv, snapshot.entries)
        files = {
            path: entry.digest
            for path, entry in snapshot.entries.items()
            if entry.kind is not EntryKind.FOLDER and matches(path)
        }
        one = self._definition
        ready = [one.ready.kind, one.ready.what] if one.ready else None
        described = [one.argv, ready, sorted(one.env.items()), sorted(surroundings.items())]
        return ServiceInputs(json.dumps(described), files)

    def _remembered(self, path: str) -> bool:
        assert self._matches is not None
        known = self._known.get(path)
        if known is None:
            known = self._known[path] = self._matches(path)
        return known


def automatic(argv: Sequence[str], entries: Mapping[str, Entry]) -> Matches:
    """What a command depends on: any file of the project but its tests and texts, for who knows what it reads.

    A server that is none of the project's own work depends on the files its command names.
    """
    words = _words(argv)
    named = {path for word in words if (path := _named(word, entries))}
    program = next((word for word in words if "=" not in word and word != "exec"), "")
    if posixpath.basename(program) in FOREIGN:
        return named.__contains__
    return lambda path: path in named or not UNREAD.search(path)


def _words(argv: Sequence[str]) -> list[str]:
    """Those of the shell's command, where there is a shell."""
    if list(argv[:2]) != ["/bin/sh", "-c"]:
        return list(argv)
    try:
        return shlex.split(argv[2], comments=True)
    except ValueError:
        return argv[2].split()  # quotes that only the shell understands


def _named(word: str, entries: Mapping[str, Entry]) -> str:
    path = posixpath.normpath(word)
    entry = entries.get(path)
    return path if entry is not None and entry.kind is not EntryKind.FOLDER else ""
