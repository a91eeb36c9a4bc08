"""The import graph of the files of a workspace, built from their import statements. Reads no files."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from watchtest.core.impact_rules import INIT
from watchtest.core.recorded import FileFingerprint, ImportName


class ModuleNames:
    """The module names of files. Source roots are derived from the modules that a run has really imported."""

    def __init__(self, modules: Mapping[str, str], paths: Iterable[str]) -> None:
        self._known: dict[str, set[str]] = {}
        for name, path in modules.items():
            self._known.setdefault(path, set()).add(name)
        roots = {found for name, path in modules.items() if (found := _root(name, path)) is not None} | {""}
        self._files: dict[str, set[str]] = {}
        self._names: dict[str, set[str]] = {}
        for path in paths:
            if path.endswith(".py"):
                names = self._known.get(path, set()) | {
                    guess for root in roots if (guess := _name(path, root)) is not None
                }
                self._names[path] = names
                for name in names:
                    self._files.setdefault(name, set()).add(path)

    def of(self, path: str) -> Collection[str]:
        return self._names.get(path, ())

    def files(self, name: str) -> Collection[str]:
        return self._files.get(name, ())

    def named_by(self, path: str, statement: ImportName) -> set[str]:
        """Return the files that an import statement in this file may execute, including parent packages."""
        found: set[str] = set()
        for base in self._bases(path, statement):
            parts = base.split(".") if base else []
            for length in range(1, len(parts) + 1):
                found.update(self.files(".".join(parts[:length])))
            for name in statement.names:
                found.update(self.files(f"{base}.{name}" if base else name))
        return found - {path}

    def imported_by(self, path: str, known: FileFingerprint) -> set[str]:
        """Return the files that are executed because of this one: around it, or named by its import statements."""
        return self.around(path).union(*(self.named_by(path, statement) for statement in known.imports))

    def around(self, path: str) -> set[str]:
        """Return the `__init__` files of the packages around a file: they are executed before it."""
        names = [name.split(".") for name in self.of(path)]
        found = {file for parts in names for end in range(1, len(parts)) for file in self.files(".".join(parts[:end]))}
        return {file for file in found if file.endswith(INIT) and path.startswith(file.removesuffix(INIT))} - {path}

    def _bases(self, path: str, statement: ImportName) -> Iterable[str]:
        if statement.level == 0:
            yield statement.module
            return
        for name in self.of(path):
            parts = name.split(".")
            up = statement.level - 1 if path.rpartition("/")[2] == INIT else statement.level
            if up <= len(parts):
                package = parts[: len(parts) - up] if up else parts
                yield ".".join([*package, *([statement.module] if statement.module else [])])


class ImportGraph:
    """Edges between importing and imported files, from statements (`add`) or observed by a run (`add_edge`)."""

    def __init__(self, names: ModuleNames) -> None:
        self._names = names
        self._importers: dict[str, set[str]] = {}

    def add(self, path: str, known: FileFingerprint) -> None:
        for imported in self._names.imported_by(path, known):
            self.add_edge(path, imported)

    def add_edge(self, importer: str, imported: str) -> None:
        self._importers.setdefault(imported, set()).add(importer)

    def reaching(self, paths: Iterable[str]) -> set[str]:
        """Return these files and all files whose import can lead to one of them."""
        found = set(paths)
        waiting = list(found)
        while waiting:
            for importer in self._importers.get(waiting.pop(), ()):
                if importer not in found:
                    found.add(importer)
                    waiting.append(importer)
        return found


def _root(name: str, path: str) -> str | None:
    """Return the source root from which a module of this name was imported from this file."""
    tail = name.replace(".", "/")
    for ending in (f"{tail}.py", f"{tail}/{INIT}"):
        if path == ending:
            return ""
        if path.endswith(f"/{ending}"):
            return path[: -len(ending) - 1]
    return None


def _name(path: str, root: str) -> str | None:
    if root and not path.startswith(f"{root}/"):
        return None
    inner = path[len(root) + 1 :] if root else path
    stem = inner.removesuffix(f"/{INIT}") if inner.endswith(f"/{INIT}") else inner.removesuffix(".py")
    parts = stem.split("/")
    return ".".join(parts) if all(part.isidentifier() for part in parts) else None
