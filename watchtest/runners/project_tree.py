"""The files of a workspace, as a runner sees them when it looks for its projects. Pure.

Files among tests, samples or vendored code belong to these and do not make a project.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

OTHERS_CODE = frozenset(
    {
        *("node_modules", "vendor", "third_party", "target", "dist", "build", "testdata"),
        *("test", "tests", "__tests__", "e2e", "fixtures", "__fixtures__", "samples", "examples", "example"),
        *("docs", "doc", "templates", "template", "benchmarks"),
    }
)


@dataclass(frozen=True, slots=True)
class DetectedProject:
    """A folder in which a runner should run."""

    folder: str
    has_tests: bool


@dataclass(frozen=True, slots=True)
class ProjectTree:
    """The paths of all files, and a function that reads one of them."""

    paths: Collection[str]
    read: Callable[[str], bytes]
    has_python_tests: bool = False

    def folders_with(self, manifest: str) -> list[str]:
        """Return the folders that contain a manifest of this name, outermost first."""
        found = [path for path in self.paths if path.endswith(manifest) and _is_project(path, manifest)]
        found.sort(key=lambda path: (path.count("/"), path))
        return [path.rpartition("/")[0] for path in found]

    def below(self, folder: str) -> Iterator[str]:
        prefix = f"{folder}/" if folder else ""
        return (path for path in self.paths if path.startswith(prefix))


def _is_project(path: str, manifest: str) -> bool:
    *folders, name = path.split("/")
    is_own = OTHERS_CODE.isdisjoint(folders) and not any(folder.startswith((".", "_")) for folder in folders)
    return name == manifest and is_own


def in_folder(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name
