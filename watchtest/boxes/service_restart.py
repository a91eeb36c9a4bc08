"""When a service must restart: the key of its definition and of the files it depends on has changed. Pure."""

from __future__ import annotations

import functools
import hashlib
import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from watchtest.core.model import Entry, EntryKind, Snapshot

PathFilter = Callable[[str], bool]
Matcher = Callable[[Sequence[str]], PathFilter]
"""Turns gitignore-style globs into a filter for paths."""

UNUSED_FILES = re.compile(
    r"(^|/)(test_[^/]*|[^/]*_test|conftest)\.py$|\.(md|rst|lock)$|(^|/)(LICENSE|\.gitignore|watchtest\.toml)$"
    r"|(^|/)([^/]*requirements[^/]*\.txt|pyproject\.toml|setup\.cfg|Pipfile|package-lock\.json|pnpm-lock\.yaml)$"
)
"""Files that a server does not read: tests, texts, and files for setup alone, which does not restart services."""
THIRD_PARTY_SERVERS = frozenset(
    {"redis-server", "valkey-server", "memcached", "postgres", "mysqld", "mariadbd", "mongod", "clickhouse-server"}
    | {"rabbitmq-server", "nats-server", "etcd", "minio", "elasticsearch", "opensearch", "zookeeper"}
    | {"Xvfb", "chromedriver", "geckodriver", "sleep", "tail"}
)
"""Programs that run no code of the project."""


@dataclass(frozen=True, slots=True)
class ReadyCheck:
    """How to tell that a service is ready: a port or URL answers, or a command succeeds."""

    kind: Literal["tcp", "http", "command"]
    what: int | str


@dataclass(frozen=True, slots=True)
class ServiceDefinition:
    """A service as configured."""

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
    """What the key of a service is computed from."""

    definition: str
    files: Mapping[str, str]

    @property
    def key(self) -> str:
        text = json.dumps([self.definition, sorted(self.files.items())])
        return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]

    def difference(self, other: ServiceInputs) -> tuple[str, ...]:
        """Return the files that differ."""
        paths = self.files.keys() | other.files.keys()
        return tuple(sorted(path for path in paths if self.files.get(path) != other.files.get(path)))


class ServiceDependencies:
    """Finds the files of one service in every snapshot. Caches the match of each path."""

    def __init__(self, definition: ServiceDefinition, matcher: Matcher) -> None:
        self._definition = definition
        globs = definition.restart_on
        self._matches = functools.cache(matcher(globs)) if not isinstance(globs, str) else None

    def inputs(self, snapshot: Snapshot, environment: Mapping[str, object]) -> ServiceInputs:
        """Return the inputs of the service in this snapshot; `environment` is what else it is started with."""
        definition = self._definition
        matches = self._matches or automatic(definition.argv, snapshot.entries)
        files = {
            path: entry.digest
            for path, entry in snapshot.entries.items()
            if entry.kind is not EntryKind.FOLDER and matches(path)
        }
        ready = [definition.ready.kind, definition.ready.what] if definition.ready else None
        described = [definition.argv, ready, sorted(definition.env.items()), sorted(environment.items())]
        return ServiceInputs(json.dumps(described), files)


def automatic(argv: Sequence[str], entries: Mapping[str, Entry]) -> PathFilter:
    """Return a filter for the files that a command depends on: any file of the project but its tests and texts.

    A third-party server depends only on the files that its command names.
    """
    words = _words(argv)
    paths = {posixpath.normpath(word) for word in words} & entries.keys()
    named = {path for path in paths if entries[path].kind is not EntryKind.FOLDER}
    program = next((word for word in words if "=" not in word and word != "exec"), "")
    if posixpath.basename(program) in THIRD_PARTY_SERVERS:
        return named.__contains__
    return lambda path: path in named or not UNUSED_FILES.search(path)


def _words(argv: Sequence[str]) -> list[str]:
    """Return the words of the command, or of the script if it is run by a shell."""
    if list(argv[:2]) != ["/bin/sh", "-c"]:
        return list(argv)
    try:
        return shlex.split(argv[2], comments=True)
    except ValueError:
        return argv[2].split()  # quotes that only the shell understands
