"""Which runners a workspace gets, from the names of its files and a few contents."""

from __future__ import annotations

import pytest

from watchtest.runners.detect import detect, python_runner
from watchtest.runners.registry import KINDS, RunnerDefaults
from watchtest.runners.runner import RunnerSpec

VITEST = '{"devDependencies": {"vitest": "^3"}}'
JEST = '{"devDependencies": {"jest": "^30"}}'


def found(files: dict[str, str]) -> list[str]:
    return [spec.name or spec.kind for spec in detect(files, lambda path: files[path].encode())]


@pytest.mark.parametrize(
    ("files", "names"),
    [
        ({}, ["pytest"]),
        ({"a.py": "", "README.md": ""}, ["pytest"]),
        ({"tests/test_a.py": ""}, ["pytest"]),
        ({"tests/test_a.py": "", "package.json": '{"devDependencies": {"prettier": "3"}}'}, ["pytest"]),
        ({"tests/test_a.py": "", "package.json": VITEST}, ["pytest"]),
        ({"tests/test_a.py": "", "package.json": VITEST, "src/a.test.ts": ""}, ["pytest", "vitest"]),
        ({"go.mod": "", "a.go": "", "a_test.go": ""}, ["go"]),
        ({"go.mod": "", "a.go": ""}, ["go"]),
        ({"go.mod": "", "a_test.go": "", "scripts/make.py": ""}, ["go"]),
        ({"test_a.py": "", "go.mod": "", "a.go": ""}, ["pytest"]),
        ({"Cargo.toml": "", "src/lib.rs": ""}, ["cargo"]),
        ({"package.json": JEST, "a.test.js": ""}, ["jest"]),
        ({"package.json": JEST, "src/__tests__/a.js": ""}, ["jest"]),
        ({"package.json": "{", "a.test.js": ""}, ["pytest"]),
        (
            {
                "package.json": '{"dependencies": {"jest": "1", "vitest": "1"}, "scripts": {"test": "jest"}}',
                "a.spec.ts": "",
            },
            ["jest"],
        ),
        ({"package.json": '{"dependencies": {"jest": "1", "vitest": "1"}}', "a.spec.ts": ""}, ["vitest"]),
    ],
)
def test_a_project_gets_the_runner_of_its_files(files: dict[str, str], names: list[str]) -> None:
    assert found(files) == names


def test_several_languages_get_several_runners_python_first() -> None:
    files = {
        "web/package.json": VITEST,
        "web/src/a.test.ts": "",
        "api/go.mod": "",
        "api/a_test.go": "",
        "core/Cargo.toml": "[package]",
        "core/src/lib.rs": "#[test]\nfn a() {}",
        "tests/test_a.py": "",
    }
    assert found(files) == ["pytest", "go:api", "cargo:core", "vitest:web"]
    specs = detect(files, lambda path: files[path].encode())
    assert [spec.folder for spec in specs] == ["", "api", "core", "web"]
    for spec in specs[1:]:
        assert KINDS[spec.kind].create(spec, RunnerDefaults()).name == spec.name


def test_what_a_project_above_covers_gets_no_runner_of_its_own() -> None:
    cargo = {
        "Cargo.toml": '[workspace]\nmembers = ["a", "b"]\nexclude = ["c"]',
        "a/Cargo.toml": "[package]",
        "b/Cargo.toml": "[package]",
        "c/Cargo.toml": "[package]",
        "d/Cargo.toml": "[workspace]",
    }
    assert found(cargo) == ["cargo", "cargo:c", "cargo:d"]
    vitest = {"package.json": VITEST, "a/package.json": VITEST, "a/x.test.ts": "", "b/package.json": "{}"}
    assert found(vitest) == ["vitest"]
    packages = {"package.json": '{"workspaces": ["a", "b"]}', "a/package.json": VITEST, "b/package.json": JEST}
    assert found({**packages, "a/x.test.ts": "", "b/x.test.ts": ""}) == ["vitest:a", "jest:b"]
    assert found({"go.work": "", "a/go.mod": "", "a/x_test.go": "", "b/go.mod": "", "b/x_test.go": ""}) == [
        "go:a",
        "go:b",
    ]


@pytest.mark.parametrize(
    "folder", ["tests/samples/x", "examples/x", "vendor/x", "node_modules/x", ".cache/x", "testdata"]
)
def test_projects_among_tests_and_other_peoples_code_are_not_ours(folder: str) -> None:
    files = {"tests/test_a.py": "", f"{folder}/go.mod": "", f"{folder}/a_test.go": "", f"{folder}/package.json": JEST}
    assert found(files) == ["pytest"]


@pytest.mark.parametrize(
    ("manifest", "source", "names"),
    [
        ("", "fn a() {}", ["pytest"]),
        ("", "#[test]\nfn a() {}", ["pytest", "cargo"]),
        ("", "#[tokio::test]\nasync fn a() {}", ["pytest", "cargo"]),
        ('pyo3 = { features = ["extension-module"] }', "#[test]\nfn a() {}", ["pytest"]),
    ],
)
def test_rust_in_a_python_project_counts_when_it_has_tests_that_can_be_linked(
    manifest: str, source: str, names: list[str]
) -> None:
    assert found({"tests/test_a.py": "", "Cargo.toml": manifest, "src/lib.rs": source}) == names


@pytest.mark.parametrize(
    "files",
    [
        {"pkg/a_test.py": ""},
        {"conftest.py": ""},
        {"pytest.ini": ""},
        {"pyproject.toml": "[tool.pytest.ini_options]"},
        {"setup.cfg": "[tool:pytest]"},
        {"tox.ini": "[pytest]"},
    ],
)
def test_python_is_known_by_its_tests_or_its_settings(files: dict[str, str]) -> None:
    assert python_runner(files, lambda path: files[path].encode()) == "pytest"
    assert python_runner({"a.py": "", "pyproject.toml": ""}, lambda _: b"") == ""


def test_a_python_project_that_uses_nothing_but_unittest_is_run_by_it() -> None:
    case = "import unittest\n\nclass Sums(unittest.TestCase):\n    def test_sum(self):\n        pass\n"
    assert found({"tests/test_a.py": case, "go.mod": "", "a_test.go": ""}) == ["unittest", "go"]
    assert found({"tests/test_a.py": case, "conftest.py": ""}) == ["pytest"]


def test_the_registry_creates_a_runner_from_all_its_settings() -> None:
    spec = RunnerSpec("command", command="make", junit="a.xml", args=("x",), env={"A": "b"}, folder="web")
    [invocation] = KINDS["command"].create(spec, RunnerDefaults()).invocations(None)
    assert (invocation.folder, invocation.env, invocation.argv[-1]) == ("web", {"A": "b"}, "x")
