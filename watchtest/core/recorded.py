"""What tests depend on, as recorded in the box: fingerprints of files, and the dependencies of scopes. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType

SESSION = "session"
TEST, FIXTURE, FILE, IMPORT, MEMO, LIBRARY = "test:", "fixture:", "file:", "import:", "memo:", "library:"
"""Prefixes of scope names, as the recorder in the box writes them."""

Unit = tuple[str, str]
"""A function: its file and its qualified name."""


@dataclass(frozen=True, slots=True)
class ImportName:
    """An import statement: the number of leading dots, the module, and the imported names."""

    level: int
    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """Digests of a Python file: one per function, and one of its shell, the code that runs or is visible at import."""

    shell: str = ""
    functions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    places: Mapping[tuple[int, str], tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """The functions by first line and bare name; empty for code that is part of the shell."""
    writers: frozenset[str] = frozenset()
    """Functions that write global names, so that they affect code that never calls them."""
    imports: tuple[ImportName, ...] = ()
    error: str = ""
    """Why the file has no fingerprint."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What a test or a shared scope (fixture, import, session) depends on. Paths are relative to the workspace."""

    units: frozenset[Unit] = frozenset()
    files: frozenset[str] = frozenset()
    """Read as data."""
    folders: frozenset[str] = frozenset()
    """Listed."""
    probes: frozenset[str] = frozenset()
    """Checked for existence, whether they exist or not."""
    imports: frozenset[str] = frozenset()
    """Files that were executed because of it."""
    missing: frozenset[str] = frozenset()
    """Modules that were looked up by name, found or not."""
    uses: frozenset[str] = frozenset()
    """Other scopes."""
    opaque: frozenset[str] = frozenset()
    """Why its dependencies cannot be recorded completely."""

    def __or__(self, other: Dependencies) -> Dependencies:
        return Dependencies(*(getattr(self, each.name) | getattr(other, each.name) for each in fields(self)))


@dataclass(frozen=True, slots=True)
class RunRecording:
    """What one run recorded: the dependencies of tests and shared scopes, and the files of the project's modules."""

    tests: Mapping[str, Dependencies]
    scopes: Mapping[str, Dependencies]
    modules: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tops: frozenset[str] = frozenset()
    """The top-level names of all loaded modules, of the project and of libraries."""


@dataclass(frozen=True, slots=True)
class ChangedPath:
    """One path of a delta. A fingerprint is None if there is none or if it is unknown."""

    path: str
    was_there: bool
    is_there: bool
    before: FileFingerprint | None = None
    after: FileFingerprint | None = None
    is_content: bool = True
    """Its content has changed, not just its mode."""
    listings: tuple[str, ...] = ()
    """Folders whose listing changed because of it; "." is the workspace."""
    came_or_went: tuple[str, ...] = ()
    """The path, if it was added or removed, and the folders that were added or removed with it."""
    is_link: bool = False
    """It is a symlink, or was one before."""
    real: str = ""
    """The same file without links, if this path leads through one."""

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")
