"""A run forked from a warm process behaves like a run in a fresh one, in every kind of box."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from support.box_bench import Bench
from support.warm_bench import PARKED_AFTER_S, Seen, WarmBench

from watchtest.boxes.protocols import JobLimits, JobSpec, PytestCommand
from watchtest.errors import BoxError

pytestmark = [pytest.mark.in_two_boxes, pytest.mark.python_in_the_box]

# Use a separate base for temporary folders: inside bubblewrap pytest would clean up around the test's own folder.
OUTCOMES = {
    "pytest.ini": """\
[pytest]
addopts = -ra --doctest-modules -p no:faulthandler --basetemp=temporary
markers = slow: a marker
filterwarnings = error:raise me
xfail_strict = true
""",
    "conftest.py": """\
import atexit, os, pytest
order = []
@pytest.fixture(scope='session')
def whole():
    order.append('whole')
    yield 1
    with open('order', 'w') as stream:
        stream.write(' '.join(order))
@pytest.fixture(scope='package')
def package(whole):
    order.append('package'); yield; order.append('-package')
@pytest.fixture(scope='module')
def module(package):
    order.append('module'); yield; order.append('-module')
@pytest.fixture(scope='class')
def klass(module):
    order.append('class'); yield; order.append('-class')
@pytest.fixture(params=[1, 2], ids=['one', 'two'])
def both(request, klass):
    order.append('function'); yield request.param; order.append('-function')
@pytest.fixture
def breaks():
    raise RuntimeError('in a setup')
@pytest.fixture
def breaks_later():
    yield
    raise RuntimeError('in a teardown')
@atexit.register
def leave():
    with open('left', 'a') as stream:
        stream.write('x')
def pytest_generate_tests(metafunc):
    if 'made' in metafunc.fixturenames:
        metafunc.parametrize('made', range(3))
def pytest_addoption(parser):
    parser.addoption('--own', default='of its own')
""",
    "src.py": """\
def double(number):
    '''
    >>> double(2)
    4
    >>> double(3)
    7
    '''
    return 2 * number
""",
    "test_outcomes.py": """\
import multiprocessing, os, subprocess, sys, unittest, warnings
import pytest
from src import double

class TestScopes:
    def test_first(self, both): assert double(both) == both + both
    def test_second(self, both, klass): pass
def test_red(): assert double(1) == 3, 'red'
def test_made(made): assert made != 1
@pytest.mark.skip(reason='no')
def test_skipped(): pass
@pytest.mark.xfail
def test_expected(): assert 0
@pytest.mark.xfail(strict=False)
def test_unexpected(): pass
@pytest.mark.xfail
def test_strict(): pass
def test_setup(breaks): pass
def test_teardown(breaks_later): pass
@pytest.mark.slow
def test_capture(capsys, capfd, caplog):
    pass
def test_print(capsys):
    print('hello'); assert capsys.readouterr().out == 'hello\\n'
def test_fd(capfd):
    os.system('echo from a shell'); assert capfd.readouterr().out == 'from a shell\\n'
def test_log(caplog):
    import logging
    logging.getLogger('x').warning('y'); assert caplog.messages == ['y']
def test_warning_raises(): warnings.warn('raise me')
def test_warning_is_shown(): warnings.warn('show me')
def test_option(request): assert request.config.getoption('--own') == 'of its own'
def test_stdin_is_at_its_end():
    assert subprocess.run(['cat'], stdout=subprocess.PIPE).stdout == b''
def test_temporary(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path); assert os.listdir('.') == []
def square(number): return number * number
@pytest.mark.parametrize('how', ['fork', 'spawn'])
def test_processes(how):
    with multiprocessing.get_context(how).Pool(1) as pool:
        assert pool.map(square, [2]) == [4]
def test_fork():
    pid = os.fork()
    if pid == 0: os._exit(3)
    assert os.WEXITSTATUS(os.waitpid(pid, 0)[1]) == 3
class Old(unittest.TestCase):
    @classmethod
    def setUpClass(cls): cls.there = True
    def test_old(self): self.assertTrue(self.there)
    def test_sub(self):
        for number in (1, 2):
            with self.subTest(number=number): self.assertEqual(number, 1)
    @unittest.expectedFailure
    def test_expected(self): self.fail()
""",
}
DUMP = """
import gc, json, locale, logging, os, resource, signal, sys, threading, warnings

def kind(value):
    return getattr(value, '__qualname__', type(value).__qualname__)

def test_dump():
    with open('/proc/self/status') as stream:
        lines = stream.read().splitlines()
    mask = os.umask(0)
    os.umask(mask)
    files = []
    for name in os.listdir('/proc/self/fd'):
        try:
            target = os.readlink('/proc/self/fd/' + name)
            files.append((target.partition(':')[0].partition('#')[0], os.get_inheritable(int(name))))
        except OSError:
            pass
    streams = (sys.__stdin__, sys.__stdout__, sys.__stderr__)
    seen = {
        'path': sys.path, 'argv': sys.argv, 'executable': [sys.executable, sys.prefix, sys.base_prefix],
        'environ': dict(os.environ), 'flags': str(sys.flags), 'filters': [str(entry) for entry in warnings.filters],
        'finders': [kind(finder) for finder in sys.meta_path], 'hooks': [kind(hook) for hook in sys.path_hooks],
        'signals': {number.name: kind(signal.getsignal(number)) + str(signal.getsignal(number) in (0, 1))
                    for number in signal.Signals},
        'status': [line for line in lines if line.startswith(('SigI', 'SigB', 'SigC', 'Cap', 'Uid', 'Gid', 'Groups'))],
        'files': sorted(files), 'locale': [locale.setlocale(locale.LC_ALL), locale.getpreferredencoding()],
        'umask': mask, 'folder': os.getcwd(), 'threads': [threading.active_count(), threading.current_thread().name],
        'is_main': threading.current_thread() is threading.main_thread(),
        'native': threading.get_native_id() == os.getpid(), 'gc': [gc.isenabled(), gc.get_threshold()],
        'log': [str(logging.root), [kind(handler) for handler in logging.root.handlers], logging.root.manager.disable],
        'limits': [sys.getrecursionlimit(), sys.getswitchinterval()],
        'streams': [[kind(one), one.encoding, one.errors, one.line_buffering, one.isatty()] for one in streams],
        'excepthooks': [kind(sys.excepthook), kind(sys.displayhook), kind(sys.unraisablehook)],
        'traced': [str(sys.gettrace()), str(sys.getprofile())], 'leads': os.getsid(0) == os.getpid() == os.getpgid(0),
        'resources': [resource.getrlimit(getattr(resource, name)) for name in dir(resource) if 'RLIMIT' in name],
        'oom': open('/proc/self/oom_score_adj').read(), 'nice': os.nice(0), 'bytecode': sys.dont_write_bytecode,
        'main': str(sys.modules['__main__'].__spec__), 'own': [__name__, __file__, str(__spec__.origin)],
        'input': sys.__stdin__.read(),
    }
    with open('dump.json', 'w') as stream:
        json.dump(seen, stream)
"""


@pytest.fixture
def warm(bench: Bench) -> WarmBench:
    return WarmBench(bench, bench.python)


def test_every_outcome_is_the_same_in_a_warm_run(warm: WarmBench) -> None:
    warm.put(OUTCOMES)
    seen = warm.alike()
    assert set(seen.outcomes.values()) == {"passed", "failed", "skipped", "xfailed", "xpassed", "error"}
    assert "UserWarning: show me" in seen.end.output
    assert "src.py::src.double" in seen.outcomes
    assert warm.bench.said("cat left") == "x" * warm.runs
    warm_order = warm.bench.said("cat order")
    warm.cold()
    assert warm.bench.said("cat order") == warm_order


@pytest.mark.thorough
def test_a_selection_is_the_same_in_a_warm_run(warm: WarmBench) -> None:
    warm.put(OUTCOMES)
    seen = warm.alike("test_outcomes.py::TestScopes::test_first[two]", "test_outcomes.py::test_red")
    assert seen.outcomes == {
        "test_outcomes.py::TestScopes::test_first[two]": "passed",
        "test_outcomes.py::test_red": "failed",
    }
    assert seen.failure("test_outcomes.py::test_red").startswith("AssertionError: red")


@pytest.mark.thorough
def test_a_warm_process_looks_like_a_fresh_one_from_inside(warm: WarmBench) -> None:
    warm.put({"test_dump.py": DUMP, "conftest.py": "import json, resource\n"})
    warm.env["WATCHTEST_TEST_VARIABLE"] = "1"

    def dumped(seen: Seen) -> dict[str, Any]:
        assert seen.end.exit_code == 0, seen.end.output
        dump: dict[str, Any] = json.loads(warm.bench.said("cat dump.json; rm dump.json"))
        return dump

    cold = dumped(warm.cold())
    warm.warm()
    for rest_s in (0.0, PARKED_AFTER_S):
        assert dumped(warm.warm(rest_s=rest_s)) == cold


def test_what_the_project_owns_is_always_fresh(warm: WarmBench) -> None:
    """This includes prestarted sessions, and files of the same size that are saved within the same second."""
    conftest = "from settings import NUMBER\n"
    tests = "import conftest, code_of_ours\ndef test_a():\n    assert (conftest.NUMBER, code_of_ours.NUMBER) == {}\n"
    for number in range(10, 18):
        warm.put(
            {
                "settings.py": f"NUMBER = {number // 2 * 2}\n",  # loaded ahead; changes every second time
                "code_of_ours.py": f"NUMBER = {number}\n",
                "conftest.py": conftest,
                "test_a.py": tests.format((number // 2 * 2, number)),
            }
        )
        seen = warm.warm(rest_s=PARKED_AFTER_S if number % 4 == 3 else 0)
        assert seen.outcomes == {"test_a.py::test_a": "passed"}, seen.end.output


@pytest.mark.thorough
def test_conftest_files_and_settings_may_come_change_and_go(warm: WarmBench) -> None:
    base = {
        "tests/unit/test_a.py": "def test_a(request):\n    print(request.config.getini('addopts'))\n    seen(request)\n"
    }
    base["conftest.py"] = "import builtins\nbuiltins.seen = lambda request: None\n"
    red = "def pytest_runtest_call(item):\n    raise RuntimeError('by a conftest')\n"
    states: list[tuple[dict[str, str], str | None]] = [
        (base, "passed"),
        ({**base, "tests/unit/conftest.py": red}, "failed"),
        (base, "passed"),
        ({**base, "conftest.py": base["conftest.py"] + red}, "failed"),
        (base, "passed"),
        ({**base, "tests/conftest.py": red}, "failed"),
        (base, "passed"),
        ({**base, "pytest.ini": "[pytest]\naddopts = -k nothing\n"}, None),
        ({**base, "pytest.ini": "[pytest]\naddopts = -k test_a\n"}, "passed"),
        ({**base, "tests/pytest.ini": "[pytest]\naddopts = -k nothing\n"}, None),
        ({**base, "pyproject.toml": "[tool.pytest.ini_options]\naddopts = '-k nothing'\n"}, None),
        (base, "passed"),
    ]
    warm.args = ("tests/unit",)
    for content, outcome in states:
        warm.put(content)
        for rest_s in (0, PARKED_AFTER_S):
            seen = warm.warm(rest_s=rest_s)
            # Test ids are relative to the folder of pytest's settings.
            assert list(seen.outcomes.values()) == ([] if outcome is None else [outcome]), seen.end.output
        # What is prestarted now belongs to the state before the next one.
        time.sleep(PARKED_AFTER_S)


NOTICEABLE = {
    "at import": "note()",
    "when it is configured": "def pytest_configure(config):\n    note()",
    "when the session starts": "def pytest_sessionstart(session):\n    note()",
    "when options are added": "def pytest_addoption(parser):\n    note()",
}


@pytest.mark.thorough
def test_what_a_conftest_does_happens_once_a_run_and_never_ahead_of_it(warm: WarmBench) -> None:
    effects = """
import os, socket, subprocess, sys, threading
def note():
    with open('noted', 'a') as stream: stream.write('f')
    subprocess.run('printf p >> noted', shell=True)
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(('127.0.0.1', 49217))
    thread = threading.Thread(target=lambda: os.system('printf t >> noted'))
    thread.start(); thread.join()
    os.mkdir('folder'); os.rmdir('folder')
"""
    for how in NOTICEABLE.values():
        warm.put({"conftest.py": f"{effects}\n{how}\n", "test_a.py": "def test_a():\n    pass\n"})
        warm.bench.said("rm -f noted")
        warm.cold()
        expected = "fpt"
        assert warm.bench.said("cat noted") == expected
        for rest_s in (0, PARKED_AFTER_S, PARKED_AFTER_S):
            seen = warm.start(True)
            expected += "fpt"
            assert seen.outcomes == {"test_a.py::test_a": "passed"}, seen.end.output
            time.sleep(rest_s)
            assert warm.bench.said("cat noted") == expected, (how, seen.end)


# -- the end of it -----------------------------------------------------------------------------------


AT_REST = 7
"""Processes: the warm one, and three runs that wait, each with its supervisor."""


def at_rest(warm: WarmBench) -> list[int]:
    """Return our processes that exist while nothing runs."""
    deadline = time.monotonic() + 15
    while len(left := warm.left()) != AT_REST and time.monotonic() < deadline:
        time.sleep(0.1)
    assert len(left) == AT_REST, left
    return [int(line.split()[0]) for line in left]


HANGING = {
    "test_a.py": """\
import os, subprocess, sys, time
def test_quick(): pass
def test_hangs():
    subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True)
    here_it_hangs()
def here_it_hangs(): time.sleep(600)
"""
}


@pytest.mark.parametrize("is_kill", [True, False])
def test_a_warm_run_can_be_stopped_and_the_next_is_right(warm: WarmBench, is_kill: bool) -> None:
    warm.put(HANGING)
    quick = "test_a.py::test_quick"
    warm.warm(quick)
    for rest_s in (0.0, PARKED_AFTER_S):
        time.sleep(rest_s)
        stops: asyncio.Queue[bool] = asyncio.Queue()

        def stop_when_it_hangs(rows: list[dict[str, Any]], stops: asyncio.Queue[bool] = stops) -> None:
            if {"k": "start", "test": "test_a.py::test_hangs"} in rows:
                stops.put_nowait(is_kill)

        job = JobSpec(PytestCommand(warm.python, is_warm=True), JobLimits(60, 60, 0.5))
        end = warm.bench.do(warm.bench.open().run(job, stop_when_it_hangs, lambda _text: None, stops))
        assert (end.stopped, end.is_warm) == ("killed" if is_kill else "cancelled", True)
        seen = warm.start(True, quick)
        assert (seen.end.is_warm, seen.outcomes) == (True, {quick: "passed"})
    at_rest(warm)


@pytest.mark.thorough
def test_a_warm_run_that_takes_too_long_shows_where_it_hung(warm: WarmBench) -> None:
    warm.put(HANGING)
    warm.warm("test_a.py::test_quick")
    warm.limits = JobLimits(1, 60, 0.3)
    for rest_s in (0.0, PARKED_AFTER_S):
        time.sleep(rest_s)
        seen = warm.start(True)
        assert (seen.end.is_warm, seen.end.stopped) == (True, "timed_out")
        assert "test_a.py::test_hangs" in seen.end.reason
        assert "here_it_hangs" in seen.end.stacks
    at_rest(warm)


def test_a_crash_of_a_warm_run_names_its_test_and_does_not_touch_the_next(warm: WarmBench) -> None:
    crashes = "import ctypes, os\ndef test_good(): pass\ndef test_crashes(): ctypes.string_at(0)\n"
    warm.put({"test_a.py": crashes + "def test_exits(): os._exit(7)\n"})
    warm.warm("test_a.py::test_good")
    for rest_s in (0.0, PARKED_AFTER_S):
        time.sleep(rest_s)
        seen = warm.start(True)
        assert (seen.end.is_warm, seen.end.exit_code, seen.end.current) == (True, None, "test_a.py::test_crashes")
        assert "SIGSEGV" in seen.end.reason
        seen = warm.start(True, "test_a.py::test_exits")
        assert (seen.end.is_warm, seen.end.exit_code, seen.end.current) == (True, 7, "test_a.py::test_exits")
        assert warm.start(True, "test_a.py::test_good").outcomes == {"test_a.py::test_good": "passed"}


@pytest.mark.thorough
def test_whatever_is_killed_the_next_run_is_right_and_nothing_is_left(warm: WarmBench) -> None:
    """Kill each of our processes in the box in turn, and then all of them at once."""
    warm.put({"test_a.py": "def test_a():\n    pass\n"})
    warm.warm(rest_s=0)
    for victim in (0, 1, 2, 3, 4, None):
        pids = at_rest(warm)
        time.sleep(PARKED_AFTER_S)
        chosen = pids if victim is None else [pids[victim]]
        warm.bench.said("kill -9 " + " ".join(map(str, chosen)))
        seen = warm.start(True)
        assert seen.outcomes == {"test_a.py::test_a": "passed"}, seen
        warm.warm()
    warm.bench.do(warm.bench.box.disconnect())
    assert warm.left() == []


def test_a_run_that_cannot_be_repeated_cold_fails_and_the_agent_lives_on(warm: WarmBench) -> None:
    test = {"test_a.py": "def test_a():\n    pass\n"}
    warm.put(test)
    warm.warm()
    order_file = f"{warm.bench.provider.home}/pytest-order.json"
    warm.bench.said(f"rm -f {order_file}; mkdir {order_file}")
    warm.put({**test, "conftest.py": "import socket\nsocket.socket = type('Fake', (socket.socket,), {})\n"})
    with pytest.raises(BoxError, match="cannot be repeated in a fresh process"):
        warm.start(True)
    warm.bench.said(f"rmdir {order_file}")
    seen = warm.start(True)
    assert (seen.outcomes, seen.end.is_warm) == ({"test_a.py::test_a": "passed"}, False)
