"""Real pytest-xdist workers run exactly what was requested, and the files that their tests touch are recorded."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.selection_lab import Lab

from watchtest.core.model import All, Only
from watchtest.core.verdict import file_of

PROJECT = {
    "shop.py": "def total(price, count):\n    return price * count\n",
    "stock.py": "def empty():\n    return {}\n",
    "conftest.py": "import os\nSEEN = os.environ.get('PYTEST_PLUGINS')\n",
    "tests/test_shop.py": """\
import os
import pytest
from shop import total

def note(name):
    with open(os.environ['NOTES'], 'a') as stream:
        stream.write(name + '\\n')

@pytest.mark.parametrize('count', range(4))
def test_total(count):
    note('total')
    assert total(3, count) == 3 * count

def test_environment():
    note('environment')
    import conftest
    assert conftest.SEEN is None
    assert 'PYTEST_PLUGINS' not in os.environ
    assert os.environ['PYTEST_XDIST_WORKER'].startswith('gw')
""",
    "tests/test_stock.py": """\
from stock import empty

def test_empty():
    assert empty() == {}
""",
    "pytest.ini": "[pytest]\npythonpath = .\n",
}
TOTALS = {f"tests/test_shop.py::test_total[{count}]" for count in range(4)}
ENVIRONMENT = "tests/test_shop.py::test_environment"
EMPTY = "tests/test_stock.py::test_empty"


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("NOTES", str(tmp_path / "notes"))
    for path, text in PROJECT.items():
        (tmp_path / "project" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "project" / path).write_text(text)
    return Lab(tmp_path / "project", tmp_path / "home", args=("-n", "2"))


@pytest.mark.thorough
def test_workers_run_what_was_asked_for_and_nothing_else(lab: Lab, tmp_path: Path) -> None:
    ran = lab.run([EMPTY, ENVIRONMENT])
    assert ran.outcomes == {EMPTY: "passed", ENVIRONMENT: "passed"}, ran.output
    assert (tmp_path / "notes").read_text() == "environment\n"
    one = lab.run(["tests/test_stock.py"])
    assert one.outcomes == {EMPTY: "passed"}, one.output
    assert lab.run(["tests/test_shop.py::test_gone"]).exit_code == 5


def test_what_tests_touch_in_workers_is_recorded(lab: Lab) -> None:
    ran = lab.record()
    assert ran.outcomes == dict.fromkeys({*TOTALS, ENVIRONMENT, EMPTY}, "passed"), ran.output
    (lab.root / "stock.py").write_text("def empty():\n    return dict()\n")
    stock = lab.select()
    assert isinstance(stock, Only)
    assert {file_of(test) for test in stock.tests} == {file_of(EMPTY)}
    (lab.root / "stock.py").write_text(PROJECT["stock.py"])
    (lab.root / "shop.py").write_text("def total(price, count):\n    return count * price\n")
    shop = lab.select()
    assert isinstance(shop, Only)
    assert set(shop.tests) >= TOTALS
    assert {file_of(test) for test in shop.tests} == {"tests/test_shop.py"}
    assert shop.is_proof


@pytest.mark.thorough
def test_a_change_of_what_a_worker_runs_at_its_start_selects_everything(lab: Lab) -> None:
    lab.record()
    (lab.root / "conftest.py").write_text("SEEN = None\n")
    everything = lab.select()
    assert isinstance(everything, All) or set(everything.tests) >= {*TOTALS, ENVIRONMENT, EMPTY}


@pytest.mark.thorough
def test_workers_without_a_selection_run_everything(lab: Lab) -> None:
    assert set(lab.run().outcomes) == {*TOTALS, ENVIRONMENT, EMPTY}
