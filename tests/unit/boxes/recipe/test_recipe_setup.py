"""What a project's own files say about its setup. Only the plan is tested here; contract and Docker tests run it."""

from __future__ import annotations

import time

import pytest
from support.project_recipes import HOST, recipe, snapshot_of

from watchtest.boxes.recipe.recipe import recipe_of
from watchtest.boxes.recipe.recipe_input import RecipeInput
from watchtest.config.keys import DEPENDENCIES
from watchtest.errors import ConfigError

PROJECT = '[build-system]\nrequires = ["hatchling"]\n[project]\nname = "x"\n'
EXTRAS = "[project.optional-dependencies]\n"
UV = 'uv sync --active --inexact --python "$VIRTUAL_ENV/bin/python"'


@pytest.mark.parametrize(
    ("files", "commands"),
    [
        ({"test_a.py": ""}, ()),
        ({"requirements.txt": "x", "requirements-dev.txt": "y"}, ("-r requirements-dev.txt", "-r requirements.txt")),
        ({"my requirements.txt": "", "requirements space.txt": ""}, ("-r 'requirements space.txt'",)),
        ({"deep/requirements.txt": "x"}, ()),
        (
            {f"requirements/{name}.txt": "" for name in ("base", "docs", "prod", "test", "unit-tests", "latest")},
            ("-r requirements/base.txt", "-r requirements/test.txt", "-r requirements/unit-tests.txt"),
        ),
        ({"requirements/docs.txt": "", "requirements/production.txt": ""}, ("-r requirements/production.txt",)),
        (
            {"requirements.txt": "", "requirements/test.txt": "", "constraints.txt": ""},
            ("-r requirements.txt", "-r requirements/test.txt"),
        ),
        ({"pyproject.toml": PROJECT}, ("-e .",)),
        ({"pyproject.toml": PROJECT + EXTRAS + "test=[]\ndev=[]\nx=[]"}, ("-e '.[test,dev]'",)),
        ({"pyproject.toml": PROJECT + "optional-dependencies = 3"}, ("-e .",)),
        ({"pyproject.toml": "[tool.ruff]\n"}, ()),
        ({"setup.py": ""}, ("-e .",)),
        ({"setup.py": "", "pyproject.toml": "[tool.black]\n"}, ("-e .",)),
        ({"setup.cfg": "[metadata]\nname=x\n[options.extras_require]\ntest=\n  pytest\n"}, ("-e '.[test]'",)),
        ({"setup.cfg": "[flake8]\n"}, ()),
        ({"setup.cfg": "[metadata\n"}, ()),
        ({"pyproject.toml": '[project]\nname="x"\ndependencies=["a>1", "b"]\n' + EXTRAS + 'dev=["c"]'}, ("'a>1' b c",)),
        ({"pyproject.toml": '[dependency-groups]\ntests = ["b>1", {include-group = "c"}]\nc = ["d"]'}, ("'b>1' d",)),
        ({"pyproject.toml": '[dependency-groups]\ntests = [{include-group = "tests"}]'}, ()),
        ({"pyproject.toml": "[dependency-groups]\ntests = 3"}, ()),
        ({"pyproject.toml": "dependency-groups = 3"}, ()),
        ({"pdm.lock": "", "pyproject.toml": PROJECT + '[tool.pdm.dev-dependencies]\ntest=["a"]'}, ("-e .", "a")),
        (
            {
                "pyproject.toml": PROJECT + EXTRAS + 'all=[]\n[tool.hatch.envs.default]\nfeatures=["all"]\n'
                'dependencies=["a", "b @ {root:uri}/b"]\n[tool.hatch.envs.test]\nextra-dependencies=["c"]'
            },
            ("-e '.[all]'", "a c"),
        ),
    ],
)
def test_ordinary_projects_are_installed_by_pip(files: dict[str, str], commands: tuple[str, ...]) -> None:
    found = recipe(files)
    assert found.commands == tuple(f"pip install {command}" for command in commands)
    assert found.needs_pytest


@pytest.mark.parametrize(
    ("files", "tool", "command"),
    [
        ({"pyproject.toml": PROJECT, "uv.lock": "", "requirements.txt": "x"}, "uv", UV),
        ({"pyproject.toml": PROJECT + "[tool.uv]"}, "uv", UV),
        (
            {"pyproject.toml": PROJECT + EXTRAS + "tests=[]\n[dependency-groups]\ntest=[]\ndev=[]", "uv.lock": ""},
            "uv",
            f"{UV} --extra tests --group test",
        ),
        ({"pyproject.toml": '[tool.uv.workspace]\nmembers=["a"]', "uv.lock": ""}, "uv", f"{UV} --all-packages"),
        ({"pyproject.toml": PROJECT, "poetry.lock": ""}, "poetry", "poetry install --no-interaction"),
        (
            {
                "pyproject.toml": "[tool.poetry.extras]\ntest=[]\n[tool.poetry.group.dev]\noptional=true\n"
                "[tool.poetry.group.tests]\n[tool.poetry.group.docs]\noptional=true"
            },
            "poetry",
            "poetry install --no-interaction --with dev --extras test",
        ),
        ({"Pipfile": "", "Pipfile.lock": "{}"}, "pipenv", "pipenv sync --dev"),
        ({"Pipfile": ""}, "pipenv", "pipenv install --dev --skip-lock"),
    ],
)
def test_projects_of_uv_poetry_and_pipenv_are_installed_by_them(files: dict[str, str], tool: str, command: str) -> None:
    found = recipe(files)
    assert found.commands[0].startswith(f'command -v {tool} || (cd "$VIRTUAL_ENV" && python -m venv tools/{tool} && ')
    assert found.commands[1:] == (command,)
    assert found.needs_pytest


@pytest.mark.parametrize(
    ("files", "command"),
    [
        ({"go.mod": "module x"}, "go mod download"),
        ({"Cargo.toml": ""}, "cargo fetch"),
        ({"Cargo.toml": "", "Cargo.lock": ""}, "cargo fetch --locked"),
        ({"package.json": "{}"}, "npm install"),
        ({"package.json": "{}", "package-lock.json": "{}"}, "npm ci"),
        (
            {"package.json": "{}", "pnpm-lock.yaml": ""},
            "(command -v pnpm || npm install -g pnpm) && pnpm install --frozen-lockfile",
        ),
        (
            {"package.json": "{}", "yarn.lock": ""},
            "(command -v yarn || npm install -g yarn) && yarn install --frozen-lockfile",
        ),
        (
            {"package.json": '{"packageManager": "yarn@4.1"}', "yarn.lock": ""},
            "(command -v corepack || npm install -g corepack) && corepack enable && yarn install --immutable",
        ),
    ],
)
def test_projects_of_other_languages_get_what_they_depend_on_and_no_pytest(files: dict[str, str], command: str) -> None:
    found = recipe(files)
    assert found.commands == (command,)
    assert not found.needs_pytest


def test_given_commands_are_all_that_is_done() -> None:
    found = recipe({"requirements.txt": "x"}, setup=("make deps",))
    assert found.commands == ("make deps",)
    assert not found.needs_pytest


def test_a_half_written_project_file_is_an_error_and_not_another_box() -> None:
    with pytest.raises(ConfigError, match=r"pyproject.toml is not valid TOML: .*line 1") as caught:
        recipe({"pyproject.toml": "[project\n"})
    assert "save" in caught.value.hint
    found = recipe({"pyproject.toml": "[project\n"}, image="mine", setup=("make",))
    assert found.commands == ("make",)


# -- when it is done again -------------------------------------------------------------------------


def test_the_key_changes_with_dependencies_and_commands_and_with_nothing_else() -> None:
    first = recipe({"requirements.txt": "x", "a.py": "1"})
    assert recipe({"requirements.txt": "x", "a.py": "2"}).key == first.key
    assert recipe({"requirements.txt": "y", "a.py": "1"}).key != first.key
    assert recipe({"requirements.txt": "x"}, setup=("make",)).key != first.key


@pytest.mark.parametrize(
    "path", ["uv.lock", "pylock.dev.toml", "requirements/lint.txt", "Cargo.lock", "constraints.txt"]
)
def test_a_changed_lock_or_constraint_changes_the_key(path: str) -> None:
    assert recipe({path: "1"}, setup=()).key != recipe({path: "2"}, setup=()).key


@pytest.mark.parametrize("path", ["sub/uv.lock", "requirements/deep/x.txt", "requirements.txt.bak", "docs/conf.txt"])
def test_files_of_samples_and_other_names_do_not_change_the_key(path: str) -> None:
    assert recipe({path: "1"}, setup=()).key == recipe({path: "2"}, setup=()).key


@pytest.mark.parametrize(
    ("glob", "path", "is_named"),
    [
        ("services/*/requirements.txt", "services/a/requirements.txt", True),
        ("services/*/requirements.txt", "services/a/b/requirements.txt", False),
        ("**/package.json", "package.json", True),
        ("**/package.json", "a/b/package.json", True),
        ("**/package.json", "a/b/xpackage.json", False),
        ("tools/**", "tools/a/b", True),
        ("/Makefile", "Makefile", True),
        ("Makefile", "sub/Makefile", False),
        ("[Mm]akefile", "makefile", True),
        ("[!Mm]akefile", "makefile", False),
        ("a?c", "abc", True),
        ("a.c", "abc", False),
        ("[", "[", True),
    ],
)
def test_the_settings_say_which_files_count(glob: str, path: str, is_named: bool) -> None:
    keys = [recipe({path: text}, setup=(), dependencies=(glob,)).key for text in "12"]
    assert (keys[0] != keys[1]) == is_named


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("-r ../deps/base.txt", "deps/base.txt"),
        ("--requirement=base.txt", "requirements/base.txt"),
        ("-cx/limits.txt", "requirements/x/limits.txt"),
        ("  --constraint x/limits.txt  # why", "requirements/x/limits.txt"),
        ("-e ./lib[extra]", "lib/pyproject.toml"),
        ("./lib ; python_version > '3'", "lib/setup.py"),
    ],
)
def test_what_requirements_name_counts_too_wherever_it_lies(line: str, path: str) -> None:
    keys = [recipe({"requirements/test.txt": line, path: text}, setup=()).key for text in ("a", "b")]
    assert keys[0] != keys[1]


def test_requirements_that_name_one_another_or_nothing_come_to_an_end() -> None:
    files = {"requirements.txt": "-r a.txt\n-r none.txt\n-r /etc/passwd\n-r ../../x\n", "a.txt": "-r requirements.txt"}
    assert recipe(files).key != recipe({**files, "a.txt": "-r requirements.txt\nb"}).key


def test_files_that_setuptools_reads_the_dependencies_from_count() -> None:
    project = (
        '[tool.setuptools.dynamic]\ndependencies = {file = ["need.in"]}\noptional-dependencies.x = {file = "x.in"}'
    )
    files = {"pyproject.toml": project, "need.in": "a", "x.in": "b"}
    assert len({recipe(files).key, recipe({**files, "need.in": ""}).key, recipe({**files, "x.in": ""}).key}) == 3


BUILD = '[build-system]\nrequires = ["setuptools"]\n[project]\nname = "x"\n'
DYNAMIC = "[tool.setuptools.dynamic]\n"
UV = "[tool.uv.sources]\n"
READS_VERSION = "from setuptools import setup\nimport os\nsetup(version=open('VERSION').read())\n"
JOINS = "open(os.path.join(here, 'meta', 'about.txt'))\n(Path('.') / 'meta' / 'b.txt')\n"
VERSIONS = ("VERSION = '1'", "VERSION = '1'\nmore = 2")
REQUIREMENTS_HOOK = "[tool.hatch.metadata.hooks.requirements_txt]\n"


@pytest.mark.parametrize(
    ("file", "text", "path"),
    [
        ("setup.py", READS_VERSION, "VERSION"),
        ("setup.py", JOINS, "meta/about.txt"),
        ("setup.py", JOINS, "meta/b.txt"),
        ("setup.py", "from pkg.version import version\n", "pkg/version.py"),
        ("setup.py", "import versioneer\n", "versioneer.py"),
        ("setup.py", "Extension('fast', sources=['src/fast.c'])", "src/fast.c"),
        ("setup.cfg", "[metadata]\nversion = file: VERSION\n", "VERSION"),
        ("setup.cfg", "[options]\ninstall_requires = file: deps/run.in, deps/more.in\n", "deps/more.in"),
        ("setup.cfg", "[options]\nscripts =\n    bin/tool\n", "bin/tool"),
        ("pyproject.toml", BUILD + DYNAMIC + 'version = {file = "VERSION"}\n', "VERSION"),
        ("pyproject.toml", BUILD + REQUIREMENTS_HOOK + 'files = ["deps/a.txt"]\n', "deps/a.txt"),
        ("pyproject.toml", BUILD + '[tool.uv.workspace]\nmembers = ["packages/*"]\n', "packages/a/pyproject.toml"),
        ("pyproject.toml", BUILD + UV + 'a = {path = "libs/a"}\n', "libs/a/a.py"),
        ("pyproject.toml", BUILD + UV + 'a = {path = "libs/a", editable = true}\n', "libs/a/setup.cfg"),
        ("pyproject.toml", BUILD + 'dependencies = ["a @ file:./libs/a"]\n', "libs/a/a.py"),
        ("pyproject.toml", BUILD + 'dependencies = ["a @ {root:uri}/libs/a"]\n', "libs/a/a.py"),
        ("pyproject.toml", BUILD, "uv.toml"),
        ("requirements.txt", "./libs/a\n", "libs/a/a.py"),
        ("requirements.txt", "libs/a-1.0-py3-none-any.whl\n", "libs/a-1.0-py3-none-any.whl"),
        ("requirements.txt", "--find-links wheels\na\n", "wheels/a-2.0-py3-none-any.whl"),
        ("Pipfile", '[packages]\na = {path = "libs/a"}\n', "libs/a/setup.py"),
        ("package.json", '{"workspaces": ["packages/*"]}', "packages/a/package.json"),
        ("package.json", '{"dependencies": {"a": "file:libs/a"}}', "libs/a/index.js"),
        ("package.json", "{}", ".npmrc"),
        ("package.json", '{"scripts": {"postinstall": "node tools/patch.js"}}', "tools/patch.js"),
        ("Cargo.toml", '[workspace]\nmembers = ["crates/*"]\n', "crates/a/Cargo.toml"),
        ("go.mod", "module x\nreplace y => ./libs/y\n", "libs/y/go.mod"),
    ],
)
def test_what_a_dependency_file_reads_counts_too(file: str, text: str, path: str) -> None:
    assert recipe({file: text, path: "1.0"}).key != recipe({file: text, path: "2.0"}).key


@pytest.mark.parametrize(
    ("command", "files", "path"),
    [
        ("sh tools/setup.sh --fast", {}, "tools/setup.sh"),
        ("./bootstrap", {}, "bootstrap"),
        ("make deps", {}, "Makefile"),
        ("make deps", {"Makefile": "deps:\n\tpip install -r ci/all.txt\n"}, "ci/all.txt"),
        ("sh tools/setup.sh", {"tools/setup.sh": "pip install -r more.in"}, "tools/more.in"),
        ("python tools/setup.py", {"tools/setup.py": "open('data/list.json')"}, "data/list.json"),
        ("pip install -rci/all.txt && true", {}, "ci/all.txt"),
        ("pip install --requirement=ci/all.txt", {}, "ci/all.txt"),
        ("pip install ci/*.txt", {}, "ci/all.txt"),
        ("pip install -e './lib[test]'", {}, "lib/pyproject.toml"),
        ("pip install ./lib", {}, "lib/code.py"),
        ("pip install .", {}, "pkg/code.py"),
        ("cp -r data/base /opt/base", {}, "data/base/x"),
        ("tox --notest", {}, "tox.ini"),
    ],
)
def test_what_a_command_of_the_settings_names_counts(command: str, files: dict[str, str], path: str) -> None:
    keys = [recipe({**files, path: text}, setup=(command,)).key for text in ("1", "2")]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("file", "text", "path", "contents"),
    [
        ("pyproject.toml", BUILD + 'readme = "README.md"\n', "README.md", ("1", "2")),
        ("pyproject.toml", BUILD + 'readme = {file = "README.md"}\n', "README.md", ("1", "2")),
        (
            "pyproject.toml",
            BUILD + DYNAMIC + 'version = {attr = "pkg.VERSION"}\n',
            "src/pkg/__init__.py",
            VERSIONS,
        ),
        (
            "pyproject.toml",
            BUILD + '[tool.hatch.version]\npath = "v.py"\n',
            "v.py",
            VERSIONS,
        ),
        ("setup.py", "import pkg_tools\n", "pkg/code.py", ("1", "2")),
        ("requirements.txt", "-e ./lib\n", "lib/code.py", ("1", "2")),
    ],
)
def test_what_provably_leads_to_the_same_installation_sets_nothing_up_again(
    file: str, text: str, path: str, contents: tuple[str, str]
) -> None:
    assert recipe({file: text, path: contents[0]}).key == recipe({file: text, path: contents[1]}).key


@pytest.mark.parametrize("how", ['[tool.hatch.version]\npath = "p.py"', DYNAMIC + 'version = {attr = "p.__version__"}'])
def test_a_version_that_is_read_from_the_code_counts(how: str) -> None:
    contents = ("__version__ = '1'", "__version__ = '2'", "__version__ = compute()")
    assert len({recipe({"pyproject.toml": f"{BUILD}{how}\n", "p.py": text}).key for text in contents}) == 3


def test_settings_of_linters_and_of_watchtest_set_nothing_up_again() -> None:
    first = recipe({"pyproject.toml": PROJECT})
    more = "# a comment\n[tool.ruff]\nline-length = 3\n[tool.watchtest.box]\nmemory = '1g'\n[tool.pytest.ini_options]"
    assert recipe({"pyproject.toml": PROJECT + more}).key == first.key
    assert recipe({"pyproject.toml": PROJECT + "[tool.hatch.version]\npath = 'x'"}).key != first.key


def test_a_recipe_is_found_again_without_reading_and_at_once() -> None:
    files = {f"src/package{number % 50}/module{number}.py": str(number) for number in range(2_000)}
    files |= {"pyproject.toml": PROJECT + "".join(f"[tool.x{n}]\na = [1, 2, 3]\n" for n in range(40)), "uv.lock": "x"}
    snapshot, reads = snapshot_of(files), 0

    def read(path: str, _entry: object) -> bytes:
        nonlocal reads
        reads += 1
        return files[path].encode()

    inputs = RecipeInput(HOST, DEPENDENCIES, lambda _snapshot: True)
    first = recipe_of(inputs, snapshot, read)
    before, times = reads, []
    for _ in range(20):
        began = time.perf_counter()
        assert recipe_of(inputs, snapshot, read) == first
        times.append(time.perf_counter() - began)
    assert reads == before
    assert min(times) < 0.005, "a save waits for it"


def test_pytest_is_needed_where_it_runs_and_changes_what_was_done() -> None:
    bare = recipe({"Makefile": "", "go.mod": "", "a_test.go": ""})
    assert not bare.needs_pytest
    both = recipe({"Makefile": "", "go.mod": "", "a_test.go": "", "test_a.py": "def test(): pass"})
    assert both.needs_pytest
    assert both.commands == bare.commands
    assert both.key != bare.key
