"""Which image is chosen for a project, and the reason given."""

from __future__ import annotations

import json

import pytest
from support.project_recipes import recipe

from watchtest.boxes.protocols import BuiltImage, NamedImage
from watchtest.errors import ConfigError

DEVCONTAINER = ".devcontainer/devcontainer.json"


def image_name(files: dict[str, str]) -> tuple[str, str]:
    found = recipe(files)
    assert isinstance(found.image, NamedImage)
    return found.image.name, found.because


def project(python: str) -> str:
    return f'[project]\nname = "x"\nrequires-python = "{python}"\n'


@pytest.mark.parametrize(
    ("files", "image", "because"),
    [
        ({}, "python:3.12-slim", "the Python that runs watchtest; the project names none"),
        ({"pyproject.toml": project(">=3.10")}, "python:3.12-slim", "pyproject.toml: requires-python >=3.10"),
        ({"pyproject.toml": project("<3.12")}, "python:3.11-slim", "pyproject.toml: requires-python <3.12"),
        ({"pyproject.toml": project("<=3.12")}, "python:3.11-slim", "pyproject.toml: requires-python <=3.12"),
        ({"pyproject.toml": project(">=3.12.3")}, "python:3.12-slim", "pyproject.toml: requires-python >=3.12.3"),
        (
            {"pyproject.toml": project(">=3.13,<3.15")},
            "python:3.14-slim",
            "pyproject.toml: requires-python >=3.13,<3.15",
        ),
        ({"pyproject.toml": project("==3.9.*")}, "python:3.9-slim", "pyproject.toml: requires-python ==3.9.*"),
        ({"pyproject.toml": project("==3.9.0")}, "python:3.9-slim", "pyproject.toml: requires-python ==3.9.0"),
        (
            {"pyproject.toml": project("nonsense")},
            "python:3.12-slim",
            "the Python that runs watchtest; the project names none",
        ),
        (
            {"pyproject.toml": project("<3.5")},
            "python:3.12-slim",
            "the Python that runs watchtest; no known version satisfies pyproject.toml: requires-python <3.5",
        ),
        ({".python-version": "3.10.4\n"}, "python:3.10-slim", ".python-version: 3.10"),
        ({".python-version": "# mine\ncpython-3.11\n"}, "python:3.11-slim", ".python-version: 3.11"),
        (
            {".python-version": "pypy3.10\n"},
            "python:3.12-slim",
            "the Python that runs watchtest; the project names none",
        ),
        (
            {".python-version": "3.10", "pyproject.toml": project(">=3.8")},
            "python:3.10-slim",
            "pyproject.toml: requires-python >=3.8, .python-version: 3.10",
        ),
        ({"setup.cfg": "[options]\npython_requires = <3.11"}, "python:3.10-slim", "setup.cfg: python_requires <3.11"),
        ({"setup.py": "setup(python_requires='<3.10')"}, "python:3.9-slim", "setup.py: python_requires <3.10"),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.13"'},
            "python:3.15-slim",
            "pyproject.toml: python ^3.13",
        ),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\npython = "~3.10"'},
            "python:3.10-slim",
            "pyproject.toml: python ~3.10",
        ),
        (
            {"pyproject.toml": '[tool.poetry.dependencies]\npython = ">=3.8,<3.11"'},
            "python:3.10-slim",
            "pyproject.toml: python >=3.8,<3.11",
        ),
        ({"go.mod": "module x\n\ngo 1.22.3\n"}, "golang:1.22", "go.mod: go 1.22"),
        ({"go.mod": "module x\ngo 1.22\ntoolchain go1.23.1\n"}, "golang:1.23", "go.mod: toolchain go1.23"),
        ({"go.mod": "module x\n"}, "golang:1", "go.mod names no version"),
        ({"Cargo.toml": '[package]\nrust-version = "1.75.0"'}, "rust:1.75", "Cargo.toml: rust-version 1.75.0"),
        ({"Cargo.toml": '[workspace.package]\nrust-version = "1.80"'}, "rust:1.80", "Cargo.toml: rust-version 1.80"),
        (
            {"Cargo.toml": "[package]\nrust-version.workspace = true\n[workspace.package]\nrust-version='1.81'"},
            "rust:1.81",
            "Cargo.toml: rust-version 1.81",
        ),
        ({"Cargo.toml": '[package]\nname = "x"'}, "rust:1", "Cargo.toml names no rust-version"),
        ({"package.json": "{}"}, "node:24", "package.json names no engines.node"),
        ({"package.json": "[]"}, "node:24", "package.json names no engines.node"),
        ({"package.json": "{}", ".nvmrc": "v20.11\n"}, "node:20", ".nvmrc: 20"),
        ({"package.json": "{}", ".nvmrc": "lts/*\n"}, "node:24", "package.json names no engines.node"),
    ],
)
def test_the_image_follows_the_project_and_says_why(files: dict[str, str], image: str, because: str) -> None:
    assert image_name(files) == (image, because)


@pytest.mark.parametrize(
    ("required", "major"),
    [
        *((">=18", 24), (">18", 24), ("^20.1", 20), ("~22.3", 22), ("20", 20), ("20.x", 20), ("v18.1.0", 18)),
        *(("18 || 20", 20), (">=18 <22", 20), ("<21.1", 20), ("<20.1", 20), ("<=20", 20), ("<20", 18), ("*", 24)),
        *((">=26", 26), ("16 - 19", 18), ("=16.4", 16), ("", 24), (">=18 <20 || >=21 <23", 22), (">99", 24)),
    ],
)
def test_the_range_of_a_node_project_is_read_as_npm_does(required: str, major: int) -> None:
    name, because = image_name({"package.json": json.dumps({"engines": {"node": required}})})
    assert name == f"node:{major}"
    assert required in because


@pytest.mark.parametrize(
    "sign",
    [
        *({"requirements.txt": ""}, {"setup.py": ""}, {"uv.lock": ""}, {"Pipfile": ""}, {"pytest.ini": ""}),
        *({"tests/conftest.py": ""}, {"pyproject.toml": project(">=3.8")}, {"pyproject.toml": "[tool.pytest]"}),
        {"pyproject.toml": "[tool.poetry]"},
    ],
)
def test_a_python_project_is_one_whatever_else_it_holds(sign: dict[str, str]) -> None:
    others = {"go.mod": "", "Cargo.toml": "", "package.json": "{}"}
    assert image_name({**others, **sign})[0] == "python:3.12-slim"


def test_settings_of_a_linter_alone_make_no_python_project() -> None:
    assert image_name({"go.mod": "go 1.22", "pyproject.toml": "[tool.ruff]"})[0] == "golang:1.22"


def test_a_file_that_decides_and_cannot_be_read_is_named() -> None:
    for path in ("package.json", "Cargo.toml", DEVCONTAINER):
        with pytest.raises(ConfigError, match=f"{path} is not valid"):
            recipe({path: "{"})


# -- settings --------------------------------------------------------------------------------------


def test_a_given_image_goes_before_everything() -> None:
    found = recipe({DEVCONTAINER: '{"image": "other"}', "Dockerfile": ""}, image="mine:1", dockerfile="Dockerfile")
    assert (found.image, found.because) == (NamedImage("mine:1"), "box.image")


def test_a_given_dockerfile_goes_before_what_the_project_says() -> None:
    found = recipe({DEVCONTAINER: '{"image": "x"}', "docker/test": "FROM x"}, dockerfile="./docker/test")
    assert isinstance(found.image, BuiltImage)
    assert (found.image.dockerfile, found.image.context, found.because) == ("docker/test", "", "box.dockerfile")
    assert found.image.snapshot is not None
    assert found.image.read is not None


def test_a_given_dockerfile_that_is_missing_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r'box\.dockerfile = "Dockerfile": there is no such file') as caught:
        recipe({}, dockerfile="Dockerfile")
    assert "relative to the root" in caught.value.hint


# -- devcontainer.json -----------------------------------------------------------------------------


@pytest.mark.parametrize("path", [DEVCONTAINER, ".devcontainer.json", ".devcontainer/python/devcontainer.json"])
def test_the_image_of_a_devcontainer_is_used(path: str) -> None:
    text = '// for editors\n{\n  "image": "dev:1", /* ours */\n  "customizations": {"vscode": {"x": ["a",],},},\n}\n'
    assert image_name({path: text, "pyproject.toml": project(">=3.8")}) == ("dev:1", path)


def test_a_devcontainer_is_built_with_its_context_arguments_and_target() -> None:
    build = {"dockerfile": "../docker/Dockerfile", "context": "..", "args": {"B": 1, "A": "x"}, "target": "dev"}
    found = recipe({DEVCONTAINER: json.dumps({"build": build}), "docker/Dockerfile": "FROM x"}).image
    assert isinstance(found, BuiltImage)
    assert (found.dockerfile, found.context, found.target) == ("docker/Dockerfile", "", "dev")
    assert found.arguments == (("A", "x"), ("B", "1"))


def test_the_older_way_to_name_a_dockerfile_is_known() -> None:
    found = recipe({DEVCONTAINER: '{"dockerFile": "Dockerfile"}', ".devcontainer/Dockerfile": "FROM x"}).image
    assert isinstance(found, BuiltImage)
    assert (found.dockerfile, found.context) == (".devcontainer/Dockerfile", ".devcontainer")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ({"dockerComposeFile": "c.yml", "image": "x"}, "it uses dockerComposeFile"),
        ({}, "it names neither an image nor a Dockerfile"),
        ({"image": "x:${localEnv:V}"}, "its image x:${localEnv:V} contains a variable"),
        ({"build": {"dockerfile": "D", "args": {"V": "${localEnv:V}"}}}, "its build settings contain a variable"),
        ({"build": {"dockerfile": "D", "context": 3}}, "its build settings contain a variable"),
        ({"build": {"dockerfile": "../../D"}}, "its Dockerfile or context is outside the workspace"),
        ({"build": {"dockerfile": "Gone"}}, "its Dockerfile .devcontainer/Gone does not exist"),
        ({"image": "base", "features": {"ghcr.io/x/features/python:1": {}}}, "it gets python from a feature"),
    ],
)
def test_a_devcontainer_that_cannot_be_used_is_passed_over_and_that_is_said(
    content: dict[str, object], reason: str
) -> None:
    files = {DEVCONTAINER: json.dumps(content), ".devcontainer/D": "", "pyproject.toml": project("==3.9.*")}
    name, because = image_name(files)
    assert name == "python:3.9-slim"
    assert because.startswith(f"{DEVCONTAINER} cannot be used: {reason}")
    assert because.endswith("; pyproject.toml: requires-python ==3.9.*")


def test_the_next_devcontainer_is_tried() -> None:
    files = {
        DEVCONTAINER: "{}",
        ".devcontainer/a/devcontainer.json": "{}",
        ".devcontainer/b/devcontainer.json": '{"image": "b"}',
    }
    name, because = image_name(files)
    assert name == "b"
    assert because.endswith("; .devcontainer/b/devcontainer.json")


def test_features_that_are_not_installed_are_said() -> None:
    content = {"image": "x", "features": {"ghcr.io/devcontainers/features/github-cli:1": {}, "./local": {}}}
    assert image_name({DEVCONTAINER: json.dumps(content)}) == (
        "x",
        f"{DEVCONTAINER} (its features are not installed: github-cli, local)",
    )


# -- when an image is built again ------------------------------------------------------------------

DOCKERFILE = 'FROM x\nCOPY a.sh b.sh /bin/\nADD ["c.sh", "/bin"]\nCOPY --chown=1 src /src\nCOPY \\\n  d.sh /bin\n'


def built(files: dict[str, str]) -> BuiltImage:
    basis = {"Dockerfile": DOCKERFILE, "a.sh": "", "b.sh": "", "c.sh": "", "d.sh": "", "src/x.py": "", "test.py": ""}
    found = recipe({**basis, **files}, dockerfile="Dockerfile").image
    assert isinstance(found, BuiltImage)
    return found


@pytest.mark.parametrize(
    "path",
    ["Dockerfile", ".dockerignore", "Dockerfile.dockerignore", "a.sh", "b.sh", "c.sh", "d.sh"],
)
def test_what_goes_into_an_image_builds_it_again(path: str) -> None:
    changed = built({path: DOCKERFILE + "# changed"})
    assert changed != built({})
    assert changed.key != built({}).key


def test_code_that_is_mirrored_anyway_builds_nothing_again() -> None:
    assert built({"src/x.py": "changed", "test.py": "changed"}) == built({})


@pytest.mark.parametrize(
    ("line", "is_built_again"),
    [
        ("COPY requirements.txt .", True),
        ("COPY require*.txt setup.* ./", True),
        ("copy . /app", True),
        ("COPY ./ /app", True),
        ("RUN --mount=type=bind,target=. pip install -r requirements.txt", True),
        ("COPY src /src", False),
        ("COPY --from=base /requirements /x", False),
        ("RUN true", False),
    ],
)
def test_a_dependency_file_builds_it_again_only_if_it_is_copied(line: str, is_built_again: bool) -> None:
    """Otherwise setup runs again in the existing box, which keeps what was done in it."""
    keys = []
    for text in "12":
        files = {"Dockerfile": f"FROM x\n{line}\n", "requirements.txt": text}
        found = recipe(files, dockerfile="Dockerfile")
        assert isinstance(found.image, BuiltImage)
        keys.append((found.image.key, found.key))
    assert (keys[0][0] != keys[1][0]) == is_built_again
    assert keys[0][1] != keys[1][1]


def test_arguments_and_target_build_it_again() -> None:
    keys = set()
    for build in ({}, {"args": {"A": "1"}}, {"args": {"A": "2"}}, {"target": "x"}, {"context": ".."}):
        text = json.dumps({"build": {"dockerfile": "D", **build}})
        found = recipe({DEVCONTAINER: text, ".devcontainer/D": "FROM x"}).image
        assert isinstance(found, BuiltImage)
        keys.add(found.key)
    assert len(keys) == 5
