"""What is known of how tests hang together with files: prints of files, and what a scope has touched. Values only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

SESSION = "session"
TEST, FIXTURE, FILE, IMPORT, MEMO, LIBRARY = "test:", "fixture:", "file:", "import:", "memo:", "library:"
"""How the names of scopes begin, as the recorder in the box gives them."""

Unit = tuple[str, str]
"""A function: its file, and its name in there."""


@dataclass(frozen=True, slots=True)
class ImportName:
    """An import statement: so many folders up, this module, these names of it."""

    level: int
    module: str
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileFingerprint:
    """A Python file in digests: a function each, and its shell: all that runs or is seen when it is imported."""

    shell: str = ""
    functions: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    places: Mapping[tuple[int, str], tuple[str, ...]] = field(default_factory=lambda: MappingProxyType({}))
    """By first line and bare name: the functions there; none for a part of the shell."""
    writers: frozenset[str] = frozenset()
    """Functions that write global names: what they leave is seen by others who never enter them."""
    imports: tuple[ImportName, ...] = ()
    error: str = ""
    """Why there is nothing but this."""


@dataclass(frozen=True, slots=True)
class Dependencies:
    """What one scope has touched. Paths are relative to the workspace."""

    units: frozenset[Unit] = frozenset()
    files: frozenset[str] = frozenset()
    """Read as data."""
    folders: frozenset[str] = frozenset()
    """Listed."""
    probes: frozenset[str] = frozenset()
    """Asked for, be they there or not."""
    imports: frozenset[str] = frozenset()
    """Files that were executed because of it."""
    missing: frozenset[str] = frozenset()
    """Modules that were looked for by name, found or not."""
    uses: frozenset[str] = frozenset()
    """Other scopes."""
    opaque: frozenset[str] = frozenset()
    """Why what it touches cannot be known."""

    def and_also(self, other: Dependencies) -> Dependencies:
        return Dependencies(
            self.units | other.units,
            self.files | other.files,
            self.folders | other.folders,
            self.probes | other.probes,
            self.imports | other.imports,
            self.missing | other.missing,
            self.uses | other.uses,
            self.opaque | other.opaque,
        )


@dataclass(frozen=True, slots=True)
class RunRecording:
    """What one run told: of tests, of the scopes they share, and where modules of the project lie."""

    tests: Mapping[str, Dependencies]
    scopes: Mapping[str, Dependencies]
    modules: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    tops: frozenset[str] = frozenset()
    """The first part of the name of every module there was, the project's own and others."""


@dataclass(frozen=True, slots=True)
class ChangedPath:
    """One path of a delta. A print is None where there is none, or where it is not known."""

    path: str
    was_there: bool
    is_there: bool
    before: FileFingerprint | None = None
    after: FileFingerprint | None = None
    is_content: bool = True
    """Not just its mode."""
    listings: tuple[str, ...] = ()
    """Folders that hold something else than before because of it; "." is the top."""
    came_or_went: tuple[str, ...] = ()
    """It, if it is new or gone, and the folders that are so with it."""
    is_link: bool = False
    """It leads elsewhere, or did so before."""

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")
