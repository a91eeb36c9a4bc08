"""What tests lack is told from their failures, and only what the project itself names is installed."""

from __future__ import annotations

import pytest

from watchtest.boxes.recipe.languages.python.missing_modules import (
    MissingDependencies,
    demands,
    failure_texts,
    missing_dependencies,
    own_modules,
)
from watchtest.boxes.recipe.languages.python.requirement_lists import EXTRA, FILE, RequirementList
from watchtest.core.model import Execution, Failure, Outcome, Result


def missing(
    text: str, *requirements: str, paths: tuple[str, ...] = (), installed: tuple[str, ...] = ()
) -> MissingDependencies:
    lists = [RequirementList(EXTRA, "x", "pyproject.toml", requirements)]
    return missing_dependencies(demands([text], paths), lists, installed)


@pytest.mark.parametrize(
    ("module", "requirement", "name"),
    [
        ("httpx", "httpx>=0.2", "httpx"),
        ("httpx._client", "HTTPX", "httpx"),
        ("yaml", "PyYAML~=6.0", "pyyaml"),
        ("PIL.Image", "Pillow", "pillow"),
        ("dateutil.tz", "python_dateutil", "python-dateutil"),
        ("zope.interface", "zope.interface", "zope-interface"),
        ("google.cloud.storage", "google-cloud-storage", "google-cloud-storage"),
        ("ruamel.yaml", "ruamel.yaml", "ruamel-yaml"),
        ("cv2", "opencv-python-headless", "opencv-python-headless"),
        ("psycopg2", "psycopg2", "psycopg2"),
        ("typing_extensions", "typing-extensions", "typing-extensions"),
        ("usb", "pyusb", "pyusb"),
        ("pytest_mock", "pytest-mock", "pytest-mock"),
    ],
)
def test_a_module_is_found_under_the_name_of_its_distribution(module: str, requirement: str, name: str) -> None:
    found = missing(f"E   ModuleNotFoundError: No module named '{module}'", requirement)
    assert [one for one, _ in found.installable] == [name]
    assert found.reports == ()


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("pytest: error: unrecognized arguments: --cov=src --cov-report=xml\n  inifile: x", "pytest-cov"),
        ("error: unrecognized arguments: -n4", "pytest-xdist"),
        ("error: unrecognized arguments: --timeout=30", "pytest-timeout"),
        ("error: unrecognized arguments: --benchmark-disable", "pytest-benchmark"),
        ("ERROR: Unknown config option: asyncio_mode", "pytest-asyncio"),
        ("ERROR: Missing required plugins: pytest-django>=4", "pytest-django"),
    ],
)
def test_a_plugin_that_the_settings_of_pytest_demand_is_installed_even_if_no_list_names_it(
    text: str, name: str
) -> None:
    assert [one for one, _ in missing(text).installable] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "No module named 'reqeusts'",
        "fixture 'mocker' not found",
        "'asyncio' not found in `markers` configuration option",
        "async def functions are not natively supported.",
        "ERROR: Missing required plugins: pytest-evil",
    ],
)
def test_nothing_else_is_installed_unless_the_project_names_it(text: str) -> None:
    found = missing(text, "requests")
    assert found.installable == ()
    [line] = found.reports
    assert line.startswith("tests need ")
    assert "which no dependency list of the project names: `watchtest exec -- pip install " in line


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("fixture 'mocker' not found", "pytest-mock"),
        ("'asyncio' not found in `markers` configuration option", "pytest-asyncio"),
        ("async def functions are not natively supported.", "anyio"),
        ("RuntimeError: please `pip install 'python-multipart'`", "python-multipart"),
    ],
)
def test_what_a_known_plugin_provides_is_installed_if_the_project_names_it(text: str, name: str) -> None:
    assert [one for one, _ in missing(text, f"{name}>=1").installable] == [name]


def test_an_advice_that_leads_nowhere_is_no_report() -> None:
    assert missing("try: pip install other") == MissingDependencies()


@pytest.mark.parametrize(
    ("module", "paths"),
    [
        ("mine", ("mine/__init__.py",)),
        ("mine.gone", ("src/mine/__init__.py",)),
        ("mine", ("lib/mine/deep/a.py",)),
        ("helpers", ("tests/helpers.py",)),
        ("my_lib", ("packages/my-lib/src/my_lib/__init__.py",)),
        ("tomllib", ()),
    ],
)
def test_a_module_of_the_tree_itself_is_never_taken_from_the_index(module: str, paths: tuple[str, ...]) -> None:
    assert missing(f"No module named '{module}'", module, "my-lib", paths=paths) == MissingDependencies()


def test_folders_of_tests_do_not_hide_the_library_that_they_test() -> None:
    paths = ("tests/redis/test_a.py", "src/mine/redis.py", "src/mine/__init__.py", "tests/redis/conftest.py")
    assert own_modules(paths) == {"mine"}
    assert missing("No module named 'redis'", "redis", paths=paths).installable


def test_a_requirement_with_an_address_is_not_installed() -> None:
    assert missing("No module named 'x'", "x @ https://host/x.whl").installable == ()


def test_what_was_added_and_is_still_missing_is_reported_and_not_added_again() -> None:
    found = missing("No module named 'httpx'", "httpx", installed=("httpx",))
    assert found.installable == ()
    assert found.reports == (
        "tests need httpx, which setup did not provide: "
        "`watchtest exec -- pip install httpx` tries it, box.setup keeps it",
    )


def test_the_reason_names_the_list() -> None:
    lists = [RequirementList(FILE, "docs-requirements.txt", "docs-requirements.txt", ("jinja2>3",))]
    found = missing_dependencies(demands(["No module named 'jinja2'"], ()), lists, ())
    assert found.installable == (("jinja2", "tests need jinja2; named by docs-requirements.txt"),)


def failed(kind: str, message: str) -> Result:
    return Result("t", Outcome.FAILED, 0.0, Failure(kind, message, text=f"{message}\nNo module named 'text'"))


def execution(result: Result, **fields: object) -> Execution:
    fields = {"exit_code": 1, "promised": frozenset({"t"}), "results": {"t": result}, **fields}
    return Execution(**fields)  # type: ignore[arg-type]


def test_of_a_failed_test_only_its_own_failed_import_counts() -> None:
    message = "No module named 'a'"
    assert list(failure_texts(execution(failed("ModuleNotFoundError", message)))) == [message]
    assert list(failure_texts(execution(failed("AssertionError", f"assert 'x' == {message!r}")))) == []


def test_the_output_counts_only_if_no_test_could_be_run() -> None:
    usage = execution(failed("x", "y"), exit_code=4, promised=frozenset(), results={}, raw_output="unrecognized")
    assert list(failure_texts(usage)) == ["unrecognized"]
    assert list(failure_texts(execution(failed("x", "y"), raw_output="noise"))) == []


def test_a_warning_about_a_setting_explains_why_async_tests_fail() -> None:
    message = "async def functions are not natively supported."
    warned = execution(
        failed("Failed", message), raw_output="PytestConfigWarning: Unknown config option: asyncio_mode\n"
    )
    found = missing_dependencies(demands(failure_texts(warned), ()), (), ())
    assert [name for name, _ in found.installable] == ["pytest-asyncio"]
    assert found.reports == ()


def test_a_file_that_cannot_be_collected_counts_with_all_its_text() -> None:
    [text] = failure_texts(execution(failed("x", "y"), results={}, collection_errors=(failed("CollectError", "m"),)))
    assert demands([text], ())[0].what == "text"
