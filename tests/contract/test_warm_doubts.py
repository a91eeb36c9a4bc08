"""Anything that could make a warm run differ from a fresh process, in libraries or in the project, is found in time.

Only the agent is involved, so one kind of box is enough.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.warm_bench import PARKED_AFTER_S, Seen, WarmBench, local_warm_bench


@pytest.fixture
def warm(tmp_path: Path) -> Iterator[WarmBench]:
    with local_warm_bench(tmp_path) as bench:
        yield bench


def until_warm(warm: WarmBench, limit_s: float = 30.0) -> tuple[Seen, set[str]]:
    """Return the first warm run, and why those before it were cold. Each of them must be green."""
    reasons: set[str] = set()
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        seen = warm.start(True)
        assert seen.end.exit_code == 0, f"{seen.end.cold_because}\n{seen.end.output}"
        if seen.end.is_warm:
            return seen, reasons
        reasons.add(seen.end.cold_because)
        time.sleep(0.2)
    pytest.fail(f"never warm: {reasons}")


def always_alike(warm: WarmBench) -> None:
    """Require green from a cold run and from repeated warm runs."""
    assert warm.cold().end.exit_code == 0
    until_warm(warm)
    for rest_s in (0.0, PARKED_AFTER_S, 0.0):
        time.sleep(rest_s)
        seen = warm.start(True)
        assert seen.end.exit_code == 0, f"{seen.end}\n{seen.end.output}"


@pytest.mark.thorough
def test_a_module_that_changes_is_never_used_as_it_was(warm: WarmBench) -> None:
    for number in range(20, 26):
        warm.install(a_library=f"NUMBER = {number}")
        test = f"import a_library\ndef test_a():\n    assert a_library.NUMBER == {number}\n"
        warm.put({"test_a.py": test})
        seen = warm.start(True)
        assert seen.end.exit_code == 0, f"{seen.end.cold_because}\n{seen.end.output}"
        until_warm(warm)
        time.sleep(PARKED_AFTER_S)


@pytest.mark.thorough
def test_a_module_that_comes_or_goes_is_seen(warm: WarmBench) -> None:
    warm.install(a_library="import another_library", another_library="")
    there = "import importlib.util\ndef test_a():\n    assert (importlib.util.find_spec('late') is not None) is {}\n"
    for is_there in (False, True, False):
        if is_there:
            warm.install(late="")
        else:
            warm.bench.said(f"rm -rf {warm.env['PYTHONPATH']}/late.py")
        warm.put({"test_a.py": "import a_library\n" + there.format(is_there)})
        assert warm.start(True).end.exit_code == 0
        until_warm(warm)
        time.sleep(PARKED_AFTER_S)


@pytest.mark.thorough
def test_a_plugin_that_is_installed_later_takes_part(warm: WarmBench) -> None:
    warm.install(nothing="")
    warm.put(
        {"test_a.py": "def test_a(request):\n    assert request.config.pluginmanager.hasplugin('late') is False\n"}
    )
    until_warm(warm)
    time.sleep(PARKED_AFTER_S)
    folder = warm.env["PYTHONPATH"]
    warm.install(late_plugin="import pytest\n@pytest.fixture\ndef late(): return 5")
    warm.bench.said(
        f"mkdir {folder}/late-1.dist-info && printf '[pytest11]\\nlate = late_plugin\\n' > "
        f"{folder}/late-1.dist-info/entry_points.txt && "
        f"printf 'Name: late\\nVersion: 1\\n' > {folder}/late-1.dist-info/METADATA"
    )
    warm.put({"test_a.py": "def test_a(late):\n    assert late == 5\n"})
    assert warm.start(True).end.exit_code == 0
    until_warm(warm)


@pytest.mark.thorough
def test_a_variable_that_a_conftest_sets_reaches_the_library_that_reads_it(warm: WarmBench) -> None:
    warm.install(
        reader="import os\nMODE = os.environ.get('A_MODE', 'none')", all_reader="import os\nALL = dict(os.environ)"
    )
    for module, found in (("reader", "MODE"), ("all_reader", "ALL['A_MODE']")):
        warm.put(
            {
                "conftest.py": "import os\nos.environ['A_MODE'] = 'testing'\n",
                "test_a.py": f"import {module}\ndef test_a():\n    assert {module}.{found} == 'testing'\n",
            }
        )
        _, first = until_warm(warm)
        time.sleep(PARKED_AFTER_S)
        _, second = until_warm(warm)  # by now the module is known and preloaded
        assert any("A_MODE" in reason for reason in first | second)
        always_alike(warm)  # from now on without that module


@pytest.mark.thorough
def test_a_module_of_the_project_comes_before_a_preloaded_one_of_its_name(warm: WarmBench) -> None:
    warm.install(a_name="WHOSE = 'a library'")
    test = "import a_name\ndef test_a():\n    assert a_name.WHOSE == {!r}\n"
    theirs, ours = test.format("a library"), test.format("the project")
    warm.put({"test_a.py": theirs})
    until_warm(warm)
    warm.put({"test_a.py": ours, "a_name.py": "WHOSE = 'the project'\n"})
    _, reasons = until_warm(warm)
    assert any("a_name" in reason for reason in reasons)
    assert warm.start(True).end.exit_code == 0
    warm.put({"test_a.py": theirs})
    always_alike(warm)


@pytest.mark.parametrize("is_absolute", [False, True])
@pytest.mark.thorough
def test_a_folder_of_the_project_on_the_path_is_looked_at_as_in_a_fresh_process(
    warm: WarmBench, is_absolute: bool
) -> None:
    warm.install(a_name="WHOSE = 'a library'")
    folder = f"{warm.bench.provider.root}/src" if is_absolute else "src"
    warm.env["PYTHONPATH"] = f"{folder}:{warm.env['PYTHONPATH']}"
    test = "import a_name, ours\ndef test_a():\n    assert a_name.WHOSE == {!r}\n"
    theirs, ours = test.format("a library"), test.format("the project")
    warm.put({"tests/test_a.py": theirs, "src/ours.py": ""})
    always_alike(warm)
    warm.put({"tests/test_a.py": ours, "src/ours.py": "", "src/a_name.py": "WHOSE = 'the project'\n"})
    always_alike(warm)


@pytest.mark.parametrize("name", ["difflib", "iniconfig"])
@pytest.mark.thorough
def test_a_project_may_shadow_what_pytest_itself_uses(warm: WarmBench, name: str) -> None:
    """A warm run gives the same result as a fresh process, whatever that is."""
    warm.put({"test_a.py": "def test_a():\n    pass\n"})
    until_warm(warm)
    time.sleep(PARKED_AFTER_S)
    shadow = {f"{name}.py": "WHOSE = 'the project'\n"}
    warm.put({**shadow, "conftest.py": f"from {name} import WHOSE\n", "test_a.py": "def test_a():\n    pass\n"})
    expected = warm.cold().verdicts
    seen = warm.start(True)
    assert not seen.end.is_warm
    assert name in seen.end.cold_because
    assert seen.verdicts == expected
    warm.put({"test_a.py": "def test_a():\n    pass\n"})
    until_warm(warm)


@pytest.mark.thorough
def test_functions_that_a_conftest_replaces_are_replaced_for_libraries_too(warm: WarmBench) -> None:
    warm.install(sleeper="from time import sleep")
    patching = "import time\ntime.sleep = lambda seconds: 'awake'\n"
    warm.put({"test_a.py": "import sleeper\ndef test_a():\n    assert sleeper.sleep(0) is None\n"})
    until_warm(warm)
    warm.put(
        {
            "conftest.py": patching,
            "test_a.py": "import sleeper\ndef test_a():\n    assert sleeper.sleep(0) == 'awake'\n",
        }
    )
    for _ in range(3):
        seen = warm.start(True)
        assert (seen.end.exit_code, seen.end.is_warm) == (0, False)
        assert "time.sleep" in seen.end.cold_because
    warm.put({"conftest.py": "", "test_a.py": "import sleeper\ndef test_a():\n    assert sleeper.sleep(0) is None\n"})
    until_warm(warm)


@pytest.mark.parametrize(
    "look", ["'a_library.rc'", "os.path.join(os.getcwd(), 'a_library.rc')", "pathlib.Path('a_library.rc').absolute()"]
)
@pytest.mark.thorough
def test_a_library_that_looks_into_the_project_when_it_is_imported_does_so_in_every_run(
    warm: WarmBench, look: str
) -> None:
    code = "import os, pathlib\nSETTING = open('a_library.rc').read() if os.path.exists({}) else 'its own'\n"
    warm.install(a_library=code.format(look))
    test = "import a_library, multiprocessing.process as process, os\ndef test_a():\n"
    test += "    assert (a_library.SETTING, process.ORIGINAL_DIR) == ({!r}, os.getcwd())\n"
    for setting in ("one", "two"):
        warm.put({"test_a.py": test.format(setting), "a_library.rc": setting})
        always_alike(warm)


STRANGE = {
    "warns": ("import warnings\nwarnings.warn('old', DeprecationWarning)", "pass", "error"),
    "threads": (
        "import threading, time\nT = threading.Thread(target=time.sleep, args=(600,), daemon=True)\nT.start()",
        "assert strange.T.is_alive()",
        "",
    ),
    "temporary": (
        "import atexit, shutil, tempfile\nF = tempfile.mkdtemp()\natexit.register(shutil.rmtree, F)",
        "import os; assert os.listdir(strange.F) == []",
        "",
    ),
    "process": (
        "import subprocess, sys\nP = subprocess.Popen([sys.executable, '-c', 'input()'], stdin=subprocess.PIPE)",
        "assert strange.P.poll() is None; strange.P.communicate(b'x'); assert strange.P.returncode == 0",
        "",
    ),
    "file": (
        "F = open(__file__)",
        "assert strange.F.readline().startswith('F = ')",
        "",
    ),
    "environment": ("import os\nos.environ['SET_BY_IT'] = '1'", "import os; assert os.environ['SET_BY_IT'] == '1'", ""),
    "path": ("import sys\nsys.path.append('/added')", "import sys; assert sys.path[-1] == '/added'", ""),
    "broken": ("raise ImportError('not here')", "pass", ""),
    "filters": ("import warnings\nwarnings.simplefilter('error')", "pass", ""),
    "pid": ("import os\nP = os.getpid()", "pass", ""),
    "listener": ("import socket\nS = socket.create_server(('127.0.0.1', 49218))", "assert strange.S.fileno() > 0", ""),
    "hangs": (
        "import os, time\nif not os.path.exists('conftest.py'): time.sleep(3)",
        "pass",
        "",
    ),
}


@pytest.mark.parametrize(
    "how", ["listener", *(pytest.param(how, marks=pytest.mark.thorough) for how in STRANGE if how != "listener")]
)
def test_a_module_that_does_more_than_define_things_does_it_in_every_run(warm: WarmBench, how: str) -> None:
    code, test, filters = STRANGE[how]
    warm.install(strange=code)
    importing = "try:\n    import strange\nexcept (ImportError, DeprecationWarning):\n    strange = None\n"
    warm.put(
        {
            "pytest.ini": f"[pytest]\nfilterwarnings = {filters}\n",
            "conftest.py": "",
            "test_a.py": f"{importing}def test_a():\n    {test}\n",
        }
    )
    always_alike(warm)


@pytest.mark.thorough
def test_random_numbers_differ_from_run_to_run(warm: WarmBench) -> None:
    library = (
        "import random\nCHANCE = random.Random()\nSEEDED = random.Random(5)\nLATER = random.Random(); LATER.seed(5)"
    )
    warm.install(a_library=library)
    numbers = "a_library.CHANCE.random(), a_library.SEEDED.random(), a_library.LATER.random(), random.random()"
    test = f"import a_library, random\ndef test_a():\n    open('said', 'a').write(repr(({numbers})) + '\\n')\n"
    warm.put({"test_a.py": test})
    warm.cold()
    until_warm(warm)
    for _ in range(3):
        warm.warm()
        warm.warm(rest_s=PARKED_AFTER_S)
    rows = [line.strip("()").split(", ") for line in warm.bench.said("cat said").splitlines()]
    assert [len(set(column)) for column in zip(*rows, strict=True)] == [len(rows), 1, 1, len(rows)]


@pytest.mark.thorough
def test_a_project_that_is_a_plugin_of_pytest_itself_is_loaded_by_its_runs_alone(warm: WarmBench) -> None:
    warm.install(nothing="")
    folder, root = warm.env["PYTHONPATH"], warm.bench.provider.root
    entry = f"mkdir {folder}/own-1.dist-info && printf '[pytest11]\\nown = own_plugin\\n' > {folder}/own-1.dist-info/"
    warm.bench.said(
        f"{entry}entry_points.txt && printf 'Name: own\\nVersion: 1\\n' > {folder}/own-1.dist-info/METADATA"
    )
    warm.env["PYTHONPATH"] = f"{folder}:{root}/src"
    for number in range(30, 34):
        effect = "open('loaded', 'a').write('x')\n"
        plugin = f"import pytest\n{effect if number > 31 else ''}@pytest.fixture\ndef own(): return {number}\n"
        warm.put({"src/own_plugin.py": plugin, "test_a.py": f"def test_a(own):\n    assert own == {number}\n"})
        if number > 31:
            warm.bench.said("rm -f loaded")
        runs = warm.runs
        until_warm(warm)
        for rest_s in (PARKED_AFTER_S, 0):
            time.sleep(rest_s)
            seen = warm.start(True)
            assert seen.end.exit_code == 0, seen.end.output
        time.sleep(PARKED_AFTER_S)
        if number > 31:
            assert warm.bench.said("cat loaded") == "x" * (warm.runs - runs)


@pytest.mark.thorough
def test_many_runs_leave_no_open_file_and_no_process(warm: WarmBench) -> None:
    warm.put({"test_a.py": "def test_a():\n    pass\n"})

    def agent() -> tuple[int, int]:
        """Return the agent's open files and its memory in KiB. It is the parent of a job's supervisor."""
        script = "p=$(cut -d' ' -f4 /proc/$PPID/stat); ls /proc/$p/fd | wc -l; grep VmRSS /proc/$p/status | tr -dc 0-9"
        files, memory = warm.bench.said(script).split()
        return int(files), int(memory)

    warm.warm()
    for _ in range(20):
        warm.warm()
    time.sleep(PARKED_AFTER_S)
    files, memory = agent()
    for _ in range(60):
        assert warm.start(True).end.is_warm
    time.sleep(PARKED_AFTER_S)
    files_later, memory_later = agent()
    assert files_later == files
    assert memory_later < memory + 1024
    assert len(warm.left()) == 7
