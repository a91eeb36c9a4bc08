"""The files that the setup of a project depends on, and a key of their content: another key means another setup.

They begin with the files that the settings and the commands name, and go on with what those name in turn. Where it is
not certain that a change has no effect on the installation, it counts.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from watchtest.boxes.recipe import mentions
from watchtest.boxes.recipe.mentions import Mention
from watchtest.boxes.recipe.project_files import ProjectFiles, table, texts
from watchtest.errors import ConfigError

PROJECT = "pyproject.toml"
INSTALLABLE = (PROJECT, "setup.py", "setup.cfg")
IRRELEVANT_TOOLS = frozenset(
    {"watchtest", "ruff", "black", "isort", "mypy", "pyright", "basedpyright", "pytest", "coverage", "pylint", "tox"}
    | {"flake8", "bandit", "towncrier", "commitizen", "codespell", "interrogate", "vulture", "pydocstyle"}
    | {"cibuildwheel"}
)
"""Tables of pyproject.toml that do not affect an installation: changing them triggers no setup."""
COMPANIONS: Mapping[str, tuple[str, ...]] = {
    PROJECT: ("uv.toml", "poetry.toml", "pdm.toml", "hatch.toml", "hatch_build.py", "setup.py", "setup.cfg"),
    "setup.py": ("versioneer.py",),
    "package.json": (".npmrc", ".yarnrc", ".yarnrc.yml", "pnpm-workspace.yaml", ".pnpmfile.cjs"),
    "Cargo.toml": (".cargo/config.toml", ".cargo/config", "rust-toolchain", "rust-toolchain.toml"),
    "go.mod": ("go.work", "go.work.sum"),
}
"""Files that the installers read without being told to, beside these."""
SCRIPT_LIMIT = 100_000
"""Larger files are not searched for names."""


@dataclass(frozen=True, slots=True)
class SetupInputs:
    """What a setup reads: the files whose content counts, and facts about others, by name."""

    paths: tuple[str, ...]
    facts: tuple[tuple[str, str], ...]


def setup_inputs(
    files: ProjectFiles, patterns: tuple[str, ...], commands: Iterable[str] = (), paths: Iterable[str] = ()
) -> SetupInputs:
    """Return what setup reads: what the globs match, these paths, what these commands name, and all that those name."""
    search = _Search(files)
    for path in (*files.matching(patterns), *paths):
        search.add_file(path)
    for command in commands:
        search.add(mentions.in_command(command), "")
    return SetupInputs(tuple(sorted(search.paths)), tuple(sorted(search.facts.items())))


def setup_key(commands: Sequence[str], inputs: SetupInputs, files: ProjectFiles) -> str:
    lines = [*commands, *(f"{path} {_relevant_content(path, files)}" for path in inputs.paths)]
    lines += [f"{name} {fact}" for name, fact in inputs.facts]
    return _digest(lines)


class _Search:
    """Collects files and facts, and follows what they name."""

    def __init__(self, files: ProjectFiles) -> None:
        self._files = files
        self.paths: dict[str, None] = {}
        self.facts: dict[str, str] = {}

    def add_file(self, path: str, *, is_script: bool = False) -> None:
        if path in self.paths or not self._files.has(path):
            return
        self.paths[path] = None
        folder, name = posixpath.split(path)
        for companion in COMPANIONS.get(name, ()):
            self.add_file(posixpath.join(folder, companion))
        self.add(self._named_in(path, name), folder)
        if is_script and self._is_readable(path):
            text = self._files.text(path)
            named = mentions.in_python(text) if path.endswith(".py") else tuple(mentions.in_command(text))
            for start in {"", folder}:
                self.add(named, start)

    def add(self, found: Iterable[Mention], folder: str) -> None:
        for mention in found:
            is_rooted = mention.name.startswith("/")
            path = posixpath.normpath(mention.name[1:] if is_rooted else f"{folder or '.'}/{mention.name}")
            if mention.name and path != ".." and not path.startswith(("../", "/")):
                self._add(mention, path, folder)

    def _add(self, mention: Mention, path: str, folder: str) -> None:
        match mention.kind:
            case "file":
                self.add_file(path)
            case "script":
                self.add_file(path, is_script=True)
            case "glob":
                for one in self._files.matching((path,)):
                    self.add_file(one)
            case "project":
                for name in INSTALLABLE:
                    self.add_file(posixpath.normpath(f"{path}/{name}"))
            case "package":
                self._add_package(path)
            case "existence":
                self.facts[f"existence of {path}"] = str(self._files.has(path))
            case "version":
                if self._files.has(path):
                    self.facts[f"version in {path}"] = mentions.version_lines(self._files.text(path))
            case "attribute":
                self._add_attribute(mention.name, folder)

    def _add_package(self, path: str) -> None:
        """Add a local package that is copied, so that every file of it counts."""
        if self._files.has(path):
            self.add_file(path)
            return
        prefix = "" if path == "." else f"{path}/"
        entries = self._files.snapshot.entries
        inside = [f"{one} {entry.mode} {entry.digest}" for one, entry in entries.items() if one.startswith(prefix)]
        if inside:
            self.facts[f"all in {path}"] = _digest(sorted(inside))

    def _add_attribute(self, attribute: str, folder: str) -> None:
        module, _, name = attribute.rpartition(".")
        stem = module.replace(".", "/")
        endings = (f"{stem}.py", f"{stem}/__init__.py")
        candidates = [posixpath.normpath(f"{folder or '.'}/{top}{end}") for top in ("", "src/") for end in endings]
        found = [path for path in candidates if self._files.has(path)]
        if not found:  # the project may name another folder of its packages
            inner = tuple(f"/{end}" for end in endings)
            found = [path for path in self._files.snapshot.entries if path.endswith(inner) and self._files.has(path)]
        for path in found:
            value = mentions.attribute_value(self._files.text(path), name)
            self.facts[f"{name} in {path}"] = self._files.digest(path) if value is None else value

    def _named_in(self, path: str, name: str) -> Iterable[Mention]:
        files = self._files
        if name.endswith((".txt", ".in")):
            return mentions.in_requirements(files.text(path))
        if name == "setup.py":
            return mentions.in_python(files.text(path))
        if name == "setup.cfg":
            return mentions.in_setup_cfg(files.ini(path))
        if name in ("go.mod", "go.work"):
            return mentions.in_go(files.text(path))
        try:
            if name == PROJECT:
                content = _relevant_tables(files.toml(path))
                members = texts(table(content, "tool", "uv", "workspace").get("members"))
                globs = [Mention("glob", f"{member.rstrip('/')}/{PROJECT}") for member in members]
                return [*globs, *mentions.in_tables(content)]
            if name == "Pipfile":
                return mentions.in_tables(dict(files.toml(path)))
            if name == "Cargo.toml":
                return mentions.in_cargo(dict(files.toml(path)))
            return mentions.in_package_json(files.json(path)) if name == "package.json" else ()
        except ConfigError:
            return ()  # whoever needs its content reports the error; setup does

    def _is_readable(self, path: str) -> bool:
        return self._files.snapshot.entries[path].size <= SCRIPT_LIMIT


def _digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _relevant_content(path: str, files: ProjectFiles) -> str:
    """Return a text that changes exactly when the file may lead to another installation."""
    if posixpath.basename(path) != PROJECT:
        return files.digest(path)
    try:
        return json.dumps(_relevant_tables(files.toml(path)), sort_keys=True, default=str)
    except ConfigError:
        return files.digest(path)


def _relevant_tables(content: Mapping[str, object]) -> dict[str, object]:
    tools = {name: value for name, value in table(content, "tool").items() if name not in IRRELEVANT_TOOLS}
    return {**content, "tool": tools}
