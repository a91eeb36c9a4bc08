"""What is installed for the tests of a Python project, and why: small layouts, most of them like real projects."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from support.project_recipes import recipe

from watchtest.boxes.protocols import Recipe
from watchtest.boxes.recipe.languages.python.python_project import SOURCE_ON_PATH
from watchtest.errors import ConfigError

BUILD = '[build-system]\nrequires = ["x"]\nbuild-backend = "x"\n'
PROJECT = BUILD + '[project]\nname = "mine"\n'
EXTRAS = "[project.optional-dependencies]\n"
GROUPS = "[dependency-groups]\n"


@dataclass(frozen=True)
class Layout:
    """The files of a project, the lists that tests need, and those that are left out."""

    name: str
    files: dict[str, str]
    commands: tuple[str, ...]
    left_out: frozenset[str] = field(default_factory=frozenset)


def layout(name: str, files: dict[str, str], *commands: str, left_out: str = "") -> Layout:
    return Layout(name, files, commands, frozenset(filter(None, left_out.split("; "))))


LAYOUTS = [
    layout(
        "babel: extras of setup.py, tox",
        {
            "setup.py": "import setuptools as s\ns.setup(extras_require={'dev': ['pytest'], 'docs': []})",
            "tox.ini": "[tox]\nenvlist = py{38,39}, pypy3\n[testenv]\nextras =\n    dev\n",
        },
        "pip install -e '.[dev]'",
        left_out="extra docs in setup.py",
    ),
    layout(
        "cattrs: every extra, from a justfile",
        {
            "pyproject.toml": PROJECT
            + EXTRAS
            + "orjson=['orjson']\nbson=['pymongo']\n"
            + GROUPS
            + "test=['pytest']\nlint=[]",
            "uv.lock": "",
            "Justfile": "test *args:\n    uv run {{ if p != '' { '-p ' + p } else { '' } }} --all-extras --group test"
            " --group lint pytest {{args}}\n",
        },
        'uv sync --active --inexact --python "$VIRTUAL_ENV/bin/python" --extra orjson --extra bson --group test',
        left_out="group lint in pyproject.toml",
    ),
    layout(
        "pydantic-settings: extras from a workflow that installs the group for tests",
        {
            "pyproject.toml": PROJECT + EXTRAS + "yaml=['pyyaml']\n" + GROUPS + "linting=['ruff']\ntesting=['pytest']",
            "uv.lock": "",
            ".github/workflows/ci.yml": "- run: uv sync --group linting\n"
            "- run: |\n    uv sync --group testing --all-extras\n",
        },
        'uv sync --active --inexact --python "$VIRTUAL_ENV/bin/python" --extra yaml --group testing',
        left_out="group linting in pyproject.toml",
    ),
    layout(
        "trio: requirements files in the root",
        {
            "pyproject.toml": PROJECT,
            "docs-requirements.txt": "sphinx",
            "test-requirements.txt": "pytest",
            "test-requirements.in": "pytest",
        },
        "pip install -r test-requirements.txt || pip install -r test-requirements.in",
        "pip install -e .",
        left_out="docs-requirements.txt",
    ),
    layout(
        "hypothesis: a package beside other things",
        {
            "pyproject.toml": "[tool.ruff]\n",
            "requirements/test.txt": "pytest",
            "requirements/tools.in": "black",
            "hypothesis-python/pyproject.toml": PROJECT + EXTRAS + "cli=['click']\nall=['mine[cli]']",
            "hypothesis-python/tests/test_a.py": "",
            "conjecture-rust/Cargo.toml": "",
            "website/package.json": "{}",
            "tooling/setup.py": "",
        },
        "pip install -r requirements/test.txt",
        "cd hypothesis-python && pip install -e .",
        left_out="requirements/tools.in; hypothesis-python: extra cli in pyproject.toml;"
        " hypothesis-python: extra all in pyproject.toml",
    ),
    layout(
        "attrs: groups for many purposes that include the one for tests",
        {
            "pyproject.toml": PROJECT
            + GROUPS
            + "tests=['pytest', 'hypothesis']\nmypy=[{include-group='tests'}]\ncov=[{include-group='tests'}]\n"
            + "docs=['sphinx']\ndev=[{include-group='tests'}]",
        },
        "pip install -e .",
        "pip install pytest hypothesis",
        left_out="group mypy in pyproject.toml; group cov in pyproject.toml; group docs in pyproject.toml;"
        " group dev in pyproject.toml",
    ),
    layout(
        "anyio: tox in pyproject.toml",
        {
            "pyproject.toml": PROJECT
            + EXTRAS
            + "trio=['trio']\n"
            + GROUPS
            + "test=['pytest']\n[tool.tox]\nenv_list=['pre-commit', 'py313']\n"
            + "[tool.tox.env_run_base]\nextras=['trio']\ndependency_groups=['test']\n"
            + "[tool.tox.env.pyright]\ndeps=['pyright']"
        },
        "pip install -e '.[trio]'",
        "pip install pytest",
    ),
    layout(
        "requests: a list for tests makes that for developers superfluous",
        {
            "setup.py": "import setuptools\nsetuptools.setup(extras_require={'socks': ['PySocks']})",
            "pyproject.toml": GROUPS + "test=['pytest']\ntypecheck=['mypy']",
            "requirements-dev.txt": "-e .[socks]\npytest",
        },
        "pip install -e .",
        "pip install pytest",
        left_out="extra socks in setup.py; group typecheck in pyproject.toml; requirements-dev.txt",
    ),
    layout(
        "flask: default groups of uv",
        {
            "pyproject.toml": PROJECT
            + GROUPS
            + "dev=['ruff']\ntests=['pytest']\ntests-random=['pytest-randomly']\n"
            + "[tool.uv]\ndefault-groups=['dev', 'tests']"
        },
        'uv sync --active --inexact --python "$VIRTUAL_ENV/bin/python"',
        left_out="group tests-random in pyproject.toml",
    ),
    layout(
        "a workspace of uv: lists of its members",
        {
            "pyproject.toml": "[tool.uv.workspace]\nmembers=['libs/*', 'tool']\nexclude=['libs/old']",
            "libs/a/pyproject.toml": PROJECT + EXTRAS + "cli=['click']\n" + GROUPS + "test=['pytest']",
            "libs/b/pyproject.toml": PROJECT + GROUPS + "test=['pytest']\ndev=['ruff']",
            "libs/old/pyproject.toml": PROJECT + GROUPS + "tests=['nose']",
            "tool/pyproject.toml": PROJECT + GROUPS + "unit=['pytest']\ndocs=['sphinx']",
            "uv.lock": "",
        },
        'uv sync --active --inexact --python "$VIRTUAL_ENV/bin/python" --group test --all-packages',
        left_out="extra cli in libs/a/pyproject.toml; group unit in tool/pyproject.toml;"
        " group docs in tool/pyproject.toml",
    ),
    layout(
        "fastapi as it was: requirements.txt includes the others",
        {
            "pyproject.toml": PROJECT,
            "requirements.txt": "-e .[all]\n-r requirements-tests.txt\n-r requirements-docs.txt\n",
            "requirements-tests.txt": "pytest",
            "requirements-docs.txt": "mkdocs",
        },
        "pip install -r requirements.txt",
        "pip install -e .",
        left_out="requirements-docs.txt",
    ),
    layout(
        "rich: poetry",
        {
            "pyproject.toml": "[tool.poetry]\nname='rich'\n[tool.poetry.dev-dependencies]\npytest='^7'\n"
            "[tool.poetry.extras]\nj=['x']"
        },
        "poetry install --no-interaction",
        left_out="extra j in pyproject.toml",
    ),
    layout(
        "poetry: an optional group whose content is that of tests",
        {
            "pyproject.toml": "[tool.poetry.group.quality]\noptional=true\n[tool.poetry.group.quality.dependencies]\n"
            "pytest={version='^8', extras=['x']}\n[tool.poetry.group.docs]\noptional=true\n"
        },
        "poetry install --no-interaction --with quality",
        left_out="group docs in pyproject.toml",
    ),
    layout(
        "pdm: groups for developers, and options among them",
        {
            "pdm.lock": "",
            "pyproject.toml": PROJECT + "[tool.pdm.dev-dependencies]\ntest=['pytest', '-e file:///x']\ndoc=['mkdocs']",
        },
        "pip install -e .",
        "pip install pytest",
        left_out="group doc in pyproject.toml",
    ),
    layout(
        "hatch: environments in a file of their own",
        {
            "pyproject.toml": PROJECT + EXTRAS + "http=['httpx']\n" + GROUPS + "quick=['toml']",
            "hatch.toml": "[envs.hatch-test]\nextra-dependencies=['pytest-httpx', 'x @ {root:uri}/x']\n"
            "features=['http']\n"
            "dependency-groups=['quick']\n[envs.docs]\ndependencies=['mkdocs']\n[[envs.hatch-test.matrix]]\npython=['3.9']",
        },
        "pip install -e '.[http]'",
        "pip install toml",
        "pip install pytest pytest-mock pytest-rerunfailures pytest-xdist pytest-httpx",
    ),
    layout(
        "tox alone: conditions, files, references and another tool's environment",
        {
            "setup.cfg": "[metadata]\nname=x\n",
            "ci/needs.txt": "mock",
            "tox.ini": "[tox]\nenvlist = lint, py{311,312}{,-cov}\n[base]\ndeps =\n  pytest>=8\n[testenv]\ndeps =\n"
            "  {[base]deps}\n  -r{toxinidir}/ci/needs.txt\n  py311: tomli\n  py312,py313: six  # why\n"
            "  cov: pytest-cov\n"
            "  !cov: nocov\n[testenv:lint]\ndeps = ruff\n",
        },
        "pip install -r ci/needs.txt",
        "pip install -e .",
        "pip install 'pytest>=8' six nocov",
    ),
    layout(
        "nox alone: constants, a list, a requirements file",
        {
            "pyproject.toml": PROJECT + EXTRAS + "fast=['uvloop']",
            "constraints.txt": "",
            "needs/tests.txt": "",
            "noxfile.py": "import nox\nMORE = ['pytest', 'coverage']\nNAME = 'hypothesis'\n"
            "@nox.session(python=['3.12'])\ndef lint(session):\n    session.install('ruff')\n"
            "@nox.session(name='unit-tests')\ndef run(s):\n    s.install('-e', '.[fast]', *MORE, NAME, compute())\n"
            "    s.install('-c', 'constraints.txt', 'mock')\n    s.run('pytest')\n",
        },
        "pip install -e '.[fast]'",
        "pip install pytest coverage hypothesis mock",
    ),
    layout(
        "folders of requirements: the file for tests, not those of its siblings",
        {
            f"requirements/{name}.txt": "pytest"
            for name in ("base", "build", "dev", "docs", "lint", "tests", "test-ft", "typing")
        },
        "pip install -r requirements/base.txt",
        "pip install -r requirements/tests.txt",
        left_out="requirements/build.txt; requirements/dev.txt; requirements/docs.txt; requirements/lint.txt;"
        " requirements/test-ft.txt; requirements/typing.txt",
    ),
    layout(
        "requirements in unusual places and forms",
        {"tests/requirements.txt": "pytest", "dev_requirements.in": "black", "requirements-mypy.txt": "mypy"},
        "pip install -r tests/requirements.txt",
        left_out="dev_requirements.in; requirements-mypy.txt",
    ),
    layout("nothing but a list for developers", {"dev_requirements.in": "black"}, "pip install -r dev_requirements.in"),
    layout(
        "an extra that is recognized by its content",
        {"pyproject.toml": PROJECT + EXTRAS + "quality=['pytest-mock']\nbench=['pytest-benchmark']\ncli=['click']"},
        "pip install -e '.[quality]'",
        left_out="extra bench in pyproject.toml; extra cli in pyproject.toml",
    ),
    layout(
        "src layout without packaging",
        {"requirements.txt": "six", "src/app/__init__.py": "", "tests/test_a.py": ""},
        "pip install -r requirements.txt",
        SOURCE_ON_PATH,
    ),
    layout(
        "namespace package",
        {"pyproject.toml": PROJECT + EXTRAS + "test=['pytest']", "src/company/tool/a.py": "", "tests/test_a.py": ""},
        "pip install -e '.[test]'",
    ),
    layout(
        "a monorepo whose packages lie below",
        {
            "README.md": "",
            "backend/pyproject.toml": PROJECT + EXTRAS + "test=['pytest']",
            "backend/tests/test_a.py": "",
            "libs/core/setup.py": "from setuptools import setup\nsetup()",
            "libs/core/test_b.py": "",
            "docs/setup.py": "setup()",
            "templates/{{name}}/setup.py": "setup()",
            "scripts/setup.py": "setup()",
        },
        "cd backend && pip install -e '.[test]'",
        "cd libs/core && pip install -e .",
    ),
    layout(
        "an extra that needs another extra of the same project",
        {"pyproject.toml": PROJECT + EXTRAS + "everything=['Mine[net]', 'six']\nnet=['pytest-httpx']\n"},
        "pip install -e '.[everything,net]'",
    ),
    layout(
        "setuptools reads an extra from a file",
        {
            "pyproject.toml": PROJECT
            + "dynamic=['optional-dependencies']\n[tool.setuptools.dynamic.optional-dependencies]\n"
            "quality2={file=['x/need.txt']}",
            "x/need.txt": "pytest\n",
        },
        "pip install -e '.[quality2]'",
    ),
]


def commands_without_tools(found: Recipe) -> tuple[str, ...]:
    return tuple(command for command in found.commands if not command.startswith("command -v"))


@pytest.mark.parametrize("project", LAYOUTS, ids=lambda project: project.name)
def test_a_project_gets_what_a_contributor_would_install(project: Layout) -> None:
    found = recipe(project.files)
    assert commands_without_tools(found) == project.commands
    assert {one.what for one in found.choices if not one.is_chosen} == project.left_out


def test_each_choice_has_a_reason() -> None:
    files = {
        "pyproject.toml": PROJECT + EXTRAS + "test=['pytest']\ncli=['click']\nbench=[]\ndev=['tox']",
        "requirements.txt": "",
        "tox.ini": "[testenv]\ndeps = mock\n",
    }
    assert {one.what: one.because for one in recipe(files).choices} == {
        "extra test in pyproject.toml": "named for tests",
        "requirements.txt": "for the project itself",
        "mock": "installed for tests by tox.ini [testenv]",
        "extra cli in pyproject.toml": "nothing says that tests need this",
        "extra bench in pyproject.toml": "named for something else than tests",
        "extra dev in pyproject.toml": "named for developers; the lists for tests suffice",
    }


def test_extras_that_only_the_build_knows_are_read_from_the_installed_project() -> None:
    computed = "from setuptools import setup\nsetup(name='x', extras_require={n: read(n) for n in names})"
    first, second = recipe({"setup.py": computed}).commands
    assert first == "pip install -e ."
    assert "Provides-Extra" in second
    assert len(recipe({"setup.py": "from setuptools import setup\nsetup(extras_require={'x': read()})"}).commands) == 1


def test_a_half_written_package_file_below_is_an_error_and_not_another_box() -> None:
    with pytest.raises(ConfigError, match=r"backend/pyproject.toml is not valid TOML"):
        recipe({"backend/pyproject.toml": "[project]\nname = ", "backend/test_a.py": ""})
    assert recipe({"samples/pyproject.toml": "[project"}).commands == ()


@pytest.mark.parametrize(
    ("path", "files"),
    [
        ("tests/requirements.txt", {}),
        ("tests/more.txt", {"tests/requirements.txt": "-r more.txt"}),
        ("backend/pyproject.toml", {"backend/test_a.py": ""}),
    ],
)
def test_a_file_that_is_installed_changes_the_key_wherever_it_lies(path: str, files: dict[str, str]) -> None:
    keys = [recipe({**files, path: text}).key for text in ("[project]\na=1", "[project]\na=2")]
    assert keys[0] != keys[1]


def test_what_tests_turned_out_to_need_is_installed_as_the_project_names_it() -> None:
    files = {"pyproject.toml": PROJECT + EXTRAS + "docs=['httpx>=0.23']"}
    added = recipe(files, additions=("httpx", "pytest-timeout", "evil"))
    assert [command.partition(" ||")[0] for command in added.commands] == [
        "pip install -e .",
        "pip install 'httpx>=0.23'",
        "pip install pytest-timeout",
    ]
    assert added.key != recipe(files).key
    assert "tests turned out to need this; named by extra docs in pyproject.toml" in {
        one.because for one in added.choices
    }


def test_what_only_a_command_for_tests_names_may_be_added_but_is_not_installed_before() -> None:
    files = {"setup.py": "", ".github/workflows/a.yml": "run: python -m pip install pytest 'requests-mock>=1' $MORE\n"}
    assert recipe(files).commands == ("pip install -e .",)
    added = recipe(files, additions=("requests-mock",))
    assert added.commands[1].startswith("pip install 'requests-mock>=1' ||")
    assert added.choices[-1].because.endswith("named by command in .github/workflows/a.yml")


def test_an_official_image_tells_which_tools_it_has() -> None:
    assert recipe({"setup.py": ""}).toolchain == "python"
    assert recipe({"go.mod": ""}).toolchain == "go"
    assert recipe({"setup.py": ""}, image="mine").toolchain == ""
    assert recipe({"setup.py": "", ".devcontainer.json": '{"image": "x"}'}).toolchain == ""
