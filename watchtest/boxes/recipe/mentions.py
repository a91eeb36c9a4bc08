"""Find what the files and commands of a setup name: other files, local packages, versions. Parses; runs nothing.

Names that do not exist in the tree are the caller's to ignore, so a word that only looks like a name does no harm.
"""

from __future__ import annotations

import ast
import configparser
import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal, NamedTuple

from watchtest.boxes.recipe.project_files import table, texts

MentionKind = Literal["file", "glob", "script", "project", "package", "existence", "version", "attribute"]


class Mention(NamedTuple):
    """A name, and what of it matters.

    file, glob: the content; script: also what it names in turn; project: what describes an editable package; package:
    every file of a folder, which is copied; existence: that it is there; version: the lines that assign a version;
    attribute: the value of `package.module.NAME`.
    """

    kind: MentionKind
    name: str


INCLUDED = re.compile(r"^(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s*)(?P<path>\S+)")
LOCAL = re.compile(
    r"^(?P<editable>(?:-e|--editable)(?:\s*=\s*|\s*))?"
    r"(?P<path>\.{0,2}/[^\s;\[]*|\.{1,2}(?=$|[\s;\[])|[\w.-]+/[^\s;\[]*|[^\s;\[]+\.(?:whl|zip|tar\.gz))"
)
WHEELS = re.compile(r"^(?:-f|--find-links)(?:\s*=\s*|\s*)(?P<path>[^\s:]+)(?=\s|$)")
LOCAL_URL = re.compile(r"(?:file:/{0,3}|\{root:[a-z:]*uri\}/?)(?:\$\{PROJECT_ROOT\}/?)?(?P<path>[^\s;#]+)")
DOCUMENTS = frozenset({"readme", "license", "license-files", "license_files", "long_description"})
"""Keys of files that end up in the metadata only as text: their content changes no installation."""
VERSION_SOURCES = frozenset({"regex", "file"})
VERSION = re.compile(r"\s*(?:__version__|version)\b", re.IGNORECASE)
WORD = re.compile(r"[^\s;&|()<>\"'`=,]+")
PROGRAM_FILES: Mapping[str, tuple[str, ...]] = {
    "make": ("Makefile", "makefile", "GNUmakefile"),
    "just": ("justfile", "Justfile", ".justfile"),
    "task": ("Taskfile.yml", "Taskfile.yaml"),
    "tox": ("tox.ini",),
    "nox": ("noxfile.py",),
    "inv": ("tasks.py",),
    "invoke": ("tasks.py",),
}
"""What these programs read although no command names it."""
LIFECYCLE = ("preinstall", "install", "postinstall", "prepare")


def in_requirements(text: str) -> Iterator[Mention]:
    """Yield what a requirements file names. Paths of included files are relative to it, all others to the root."""
    for line in map(str.strip, text.splitlines()):
        if found := INCLUDED.match(line):
            yield Mention("file", found["path"])
        elif found := WHEELS.match(line):
            yield Mention("package", f"/{found['path']}")
        elif "://" not in line and (found := LOCAL.match(line)):
            yield Mention("project" if found["editable"] else "package", f"/{found['path']}")
        elif url := _local_url(line):
            yield url


def _local_url(text: str) -> Mention | None:
    found = LOCAL_URL.search(text)
    return Mention("project" if text.startswith("-e") else "package", found["path"]) if found else None


def in_tables(value: object, key: str = "") -> Iterator[Mention]:
    """Yield what the tables of a pyproject.toml or Pipfile name in any of their strings."""
    match value:
        case dict():
            path = value.get("path")
            if isinstance(path, str):
                yield Mention(_kind_of_path(value, path), path)
            for name, inner in value.items():
                if name != "path":
                    yield from in_tables(inner, key if key in DOCUMENTS else name)
        case list():
            for inner in value:
                yield from in_tables(inner, key)
        case str():
            if key in DOCUMENTS:
                yield Mention("existence", value)
            elif key == "attr":
                yield Mention("attribute", value)
            else:
                yield _local_url(value) or Mention("file", value)


def _kind_of_path(value: Mapping[str, Any], path: str) -> MentionKind:
    if path.endswith(".py"):
        # The plain form of hatch and pdm: a pattern or an expression of the project could use any line.
        is_plain = value.keys() <= {"path", "source"} and value.get("source", "regex") in VERSION_SOURCES
        return "version" if is_plain else "file"
    return "project" if value.get("editable") is True or value.get("develop") is True else "package"


def in_setup_cfg(settings: configparser.RawConfigParser) -> Iterator[Mention]:
    for section in settings.sections():
        if section != "metadata" and not section.startswith("options"):
            continue
        for key, value in settings.items(section):
            how, _, rest = value.strip().partition(":")
            if how == "attr":
                yield Mention("attribute", rest.strip())
                continue
            kind: MentionKind = "existence" if key in DOCUMENTS else "file"
            yield from (Mention(kind, word) for word in WORD.findall(rest if how == "file" else value))


@functools.lru_cache(maxsize=64)
def in_python(text: str) -> tuple[Mention, ...]:
    """Return what a setup.py or another script may read: the strings in it that are paths, and what it imports."""
    try:
        nodes = list(ast.walk(ast.parse(text)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    names: list[str] = []
    for node in nodes:
        match node:
            case ast.Constant(value=str(value)):
                names.append(value)
            case ast.Call(args=args):  # os.path.join(here, "a", "b")
                names.append("/".join(_strings(args)))
            case ast.BinOp(op=ast.Div()):  # here / "a" / "b"
                names.append("/".join(_strings(_operands(node))))
            case ast.Import(names=aliases):
                names += [path for alias in aliases for path in _module_files(alias.name)]
            case ast.ImportFrom(module=str(module), level=0, names=aliases):
                modules = [module, *(f"{module}.{alias.name}" for alias in aliases)]
                names += [path for each in modules for path in _module_files(each)]
            case _:
                pass
    return tuple(Mention("file", name) for name in dict.fromkeys(names) if name and "\n" not in name)


def _strings(nodes: Iterable[ast.AST]) -> list[str]:
    return [node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)]


def _operands(node: ast.AST) -> Iterator[ast.AST]:
    if isinstance(node, ast.BinOp):
        yield from _operands(node.left)
        yield from _operands(node.right)
    else:
        yield node


def _module_files(module: str) -> Iterator[str]:
    """Yield the files that an import of this module may read."""
    parts = module.split(".")
    for top in ("", "src/"):
        yield f"{top}{'/'.join(parts)}.py"
        yield from (f"{top}{'/'.join(parts[:end])}/__init__.py" for end in range(1, len(parts) + 1))


def in_command(command: str) -> Iterator[Mention]:
    """Yield what a shell command or script names, relative to the root."""
    words = WORD.findall(command)
    is_install = "install" in words
    for number, word in enumerate(words):
        before = words[number - 1] if number else ""
        word = re.sub(r"^-[a-z](?=\w)", "", word)  # `-rci/all.txt`
        path = word.partition("[")[0]
        yield from (Mention("script", file) for file in PROGRAM_FILES.get(word.rpartition("/")[2], ()))
        if path.startswith("/") or "://" in path or "$" in path:
            continue
        if "*" in word or "?" in word:
            yield Mention("glob", word)
        elif before in ("-e", "--editable"):
            yield Mention("project", path)
        elif path in (".", "./"):
            yield from [Mention("package", path)] if is_install else []
        elif "/" in path.strip("/") or path.startswith("./"):
            yield Mention("script", path)
            yield Mention("package", path)
        else:
            yield Mention("script", path.rstrip("/"))


def in_package_json(content: Mapping[str, Any]) -> Iterator[Mention]:
    workspaces = content.get("workspaces")
    for glob in texts(table(workspaces).get("packages") if isinstance(workspaces, dict) else workspaces):
        yield Mention("glob", f"{glob.rstrip('/')}/package.json")
    for group in ("dependencies", "devDependencies", "optionalDependencies"):
        for value in table(content, group).values():
            how, _, path = value.partition(":") if isinstance(value, str) else ("", "", "")
            if how in ("file", "link", "portal"):
                yield Mention("file", f"{path}/package.json")
                yield from [Mention("package", path)] if how == "file" else []
    scripts = table(content, "scripts")
    for name in LIFECYCLE:
        if isinstance(script := scripts.get(name), str):
            yield from in_command(script)


def in_cargo(content: object) -> Iterator[Mention]:
    for glob in texts(table(content, "workspace").get("members")):
        yield Mention("glob", f"{glob.rstrip('/')}/Cargo.toml")
    for mention in in_tables(content):
        if mention.kind == "package":
            yield Mention("file", f"{mention.name}/Cargo.toml")


def in_go(text: str) -> Iterator[Mention]:
    """Yield the modules that a go.mod replaces, or that a go.work uses, by local ones."""
    for path in re.findall(r"(?:=>|^\s*(?:use\s+)?)\s*(\.{1,2}/[^\s)]*)", text, re.MULTILINE):
        yield Mention("file", f"{path}/go.mod")


@functools.lru_cache(maxsize=64)
def attribute_value(text: str, name: str) -> str | None:
    """Return the value of a literal that a module assigns to this name; None if it must run to tell."""
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError):
        return None
    for node in body:
        match node:
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if target == name:
                return _literal(value)
            case ast.AnnAssign(target=ast.Name(id=target), value=ast.expr() as value) if target == name:
                return _literal(value)
            case _:
                pass
    return None


def _literal(value: ast.expr) -> str | None:
    try:
        return repr(ast.literal_eval(value))
    except (ValueError, TypeError, SyntaxError):
        return None


def version_lines(text: str) -> str:
    """Return the lines that may assign the version, as hatch and pdm look for it."""
    return "\n".join(line for line in text.splitlines() if VERSION.match(line))
