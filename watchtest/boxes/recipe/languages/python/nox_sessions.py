"""Read what the nox sessions for tests install, from the syntax tree of noxfile.py. Runs nothing."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator

from watchtest.boxes.recipe.languages.python.install_requests import InstallRequest
from watchtest.boxes.recipe.languages.python.requirement_lists import Purpose, is_plain_test_name, purpose_of
from watchtest.boxes.recipe.languages.python.setup_script import ScriptNames, parsed
from watchtest.boxes.recipe.project_files import ProjectFiles

NOXFILE = "noxfile.py"
INSTALLERS = frozenset({"pip", "uv", "poetry", "pdm"})
TABLES = {"dependency-groups": "--group", "optional-dependencies": "--extra"}


def nox_request(files: ProjectFiles) -> InstallRequest | None:
    """Return what the session for tests installs; None if the project has no such session."""
    return _read(files.text(NOXFILE)) if files.has(NOXFILE) else None


@functools.lru_cache(maxsize=16)
def _read(text: str) -> InstallRequest | None:
    tree = parsed(text)
    sessions = [
        (name, node) for node in tree.body if isinstance(node, ast.FunctionDef) for name in _session_names(node)
    ]
    for_tests = [(name, node) for name, node in sessions if purpose_of(name) is Purpose.TESTS]
    if not for_tests:
        return None
    name, session = min(for_tests, key=lambda found: not is_plain_test_name(found[0]))
    request = InstallRequest(f"{NOXFILE} {name}")
    values = ScriptNames(tree)
    for words in [*_decorator_words(session, values), *_installed_words(session, values)]:
        request.add(words)
    return request


def _session_names(function: ast.FunctionDef) -> Iterator[str]:
    """Yield the name of the session that a function defines, if it does."""
    for decorator in function.decorator_list:
        call = decorator.func if isinstance(decorator, ast.Call) else decorator
        last = call.attr if isinstance(call, ast.Attribute) else call.id if isinstance(call, ast.Name) else ""
        if last not in ("session", "nox_session"):
            continue
        given = decorator.keywords if isinstance(decorator, ast.Call) else []
        names = [one.value.value for one in given if one.arg == "name" and isinstance(one.value, ast.Constant)]
        yield str(names[0]) if names else function.name


def _decorator_words(function: ast.FunctionDef, values: ScriptNames) -> Iterator[list[str]]:
    """Yield what nox-uv installs: `@session(uv_groups=["test"])`."""
    options = {"uv_groups": "--group", "uv_extras": "--extra"}
    for decorator in function.decorator_list:
        for keyword in decorator.keywords if isinstance(decorator, ast.Call) else ():
            if keyword.arg in options:
                given = values.value(keyword.value)
                names = [one for one in given if isinstance(one, str)] if isinstance(given, list) else []
                yield [f"{options[keyword.arg]}={name}" for name in names]
            elif keyword.arg == "uv_all_extras":
                yield ["--all-extras"]


def _installed_words(function: ast.FunctionDef, values: ScriptNames) -> Iterator[list[str]]:
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(attr="install"), args=arguments):
                yield _words(arguments, values)
            case ast.Call(func=ast.Attribute(attr="run" | "run_install" | "run_always"), args=arguments):
                words = _words(arguments, values)
                verbs = [word for word in words[:3] if word in ("install", "sync")]
                if words and words[0] in INSTALLERS and verbs:
                    yield words[words.index(verbs[0]) + 1 :]


def _words(arguments: list[ast.expr], values: ScriptNames) -> list[str]:
    """Return the arguments that are known; tables of pyproject.toml become options that name them."""
    found: list[str] = []
    for argument in arguments:
        if isinstance(argument, ast.Starred):
            found += _starred(argument.value, values)
        elif isinstance(value := values.value(argument), str):
            found.append(value)
        else:
            found.append("--unknown")  # keeps the value of an option in its place
    return found


def _starred(node: ast.expr, values: ScriptNames) -> list[str]:
    match node:
        case ast.Call(func=ast.Attribute(attr="dependency_groups"), args=[_, *names]):
            return [f"--group={name}" for name in map(values.value, names) if isinstance(name, str)]
        case ast.Subscript(value=ast.Subscript(slice=ast.Constant(kind)), slice=ast.Constant(str(name))) if (
            kind in TABLES
        ):
            return [f"{TABLES[kind]}={name}"]
        case _:
            value = values.value(node)
            return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []
